"""`Probe`: one case under examination, with everything that several checks need computed once."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..capture.calls import Function, Target, functions_in, name_of, resolve_target
from ..capture.case import Case
from ..capture.modules import with_module_state
from ..capture.observed_calls import BackwardCall, observed_backward
from ..declare import Declaration
from ..report.finding import Finding, Location
from .draws import drawing, shared, stream
from .evaluate import Evaluator, Outcome, UserCodeError
from .linearity import Nonlinearity, nonlinearity
from .meter import HEAVY, Meter
from .repeats import Repeats, repeats, vjp_or_none
from .settings import Settings
from .state import Snapshot
from .tensors import copy_tensor, differentiable, random_like, same
from .value import SIGNED, ValueTest, ValueVerdict

T = TypeVar("T")
WEIGHINGS = 3


@dataclass(slots=True)
class Baseline:
    """One forward and backward of the given call, observed.

    Args:
        outcome: The forward, or None if it raised.
        cotangents: Random signed cotangents for its live outputs, laid out like them.
        gradients: What the engine delivered for the wanted inputs.
        calls: Every call of the checked Functions' backward, with what it really returned.
        functions: The Function classes found: the target's own, or those in the graph of a callable.
        forward_error: What forward raised.
        backward_error: What backward, or the engine after it, raised.
    """

    outcome: Outcome | None = None
    cotangents: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor | None] = field(default_factory=list)
    calls: list[BackwardCall] = field(default_factory=list)
    functions: list[type[Function]] = field(default_factory=list)
    forward_error: UserCodeError | None = None
    backward_error: UserCodeError | None = None


class SparseOutput(TypeError):
    """An output that carries a gradient is not dense."""


class Probe:
    """One case under examination.

    Checks read what they need from its cached properties, draw from its generator, which starts anew for each check, and run the op through `native`
    (as given) or `exact` (float64 where the op takes it). What a check that passes has to add is left in `remarks` under its code.
    """

    def __init__(self, case: Case, settings: Settings | None = None) -> None:
        case = with_module_state(case)
        self.case = case
        self.settings = settings or Settings()
        self.target: Target = resolve_target(case.target)
        self.findings: list[Finding] = []
        self.pristine = Snapshot(self.target)
        self.native = Evaluator.of_case(self.target, case)
        if self.settings.dtype is not None:
            self.native = self.native.cast(self.settings.dtype)
        if self.settings.device is not None:
            self.native = self.native.to(self.settings.device)
        self.generator = stream(*self.origin)
        self.memo: dict[str, Any] = {}
        self.remarks: dict[str, str] = {}

    @property
    def declaration(self) -> Declaration:
        return self.case.declaration

    @property
    def function(self) -> type[Function] | None:
        """The Function under test: the target's own, or the only one in the graph of a callable."""
        if self.target.function is not None:
            return self.target.function
        return self.baseline.functions[0] if len(self.baseline.functions) == 1 else None

    @property
    def meter(self) -> Meter:
        """What evaluations cost, and what is left of it."""
        return self.native.meter

    @property
    def orders(self) -> int:
        return max(self.settings.orders, self.declaration.orders)

    @property
    def asked(self) -> bool:
        """Whether the caller asked for the gradients (given, recorded or declared cases), rather than the search guessing them."""
        return self.case.origin != "searched" and any(t.requires_grad for t in self._given_tensors())

    def _given_tensors(self) -> list[Tensor]:
        from .. import trees

        return [t for _, value in self.native.named for _, t in trees.leaves(value) if isinstance(t, Tensor)]

    @property
    def backward_name(self) -> str:
        """How messages name the backward: ``"Swish.backward"``."""
        return self.target.backward_name if self.target.function or self.function is None else f"{name_of(self.function)}.backward"

    def backward_name_of(self, path: str) -> str:
        """How messages name what computes the gradient of one input: the backward, or the rule of an op."""
        return self.backward_name if self.target.rule_of(path) is None else self.target.backward_name_of(path)

    @property
    def backward_location(self) -> Location | None:
        return self._function_target.backward_location

    @property
    def forward_location(self) -> Location | None:
        return self._function_target.forward_location

    @functools.cached_property
    def _function_target(self) -> Target:
        return self.target if self.target.function or self.function is None else resolve_target(self.function)

    @property
    def origin(self) -> tuple[str, ...]:
        """What every stream of random draws starts from: the seed and the target."""
        return str(self.settings.seed), self.target.name

    def seconds(self, budget: float) -> float:
        """Return how long a sweep may take: half as long where a searched sample comes after another, in which the same sweep has been before."""
        return budget / 2 if self.case.origin == "searched" and self.case.index > 0 else budget

    def once(self, key: str, compute: Callable[[], T]) -> T:
        """Return what several checks share, computed for the first that asks, with draws of its own."""
        if key not in self.memo:
            with drawing(self, key):
                self.memo[key] = compute()
        return self.memo[key]

    def cotangents(self, outcome: Outcome, choices: Sequence[float] = SIGNED) -> list[Tensor]:
        """Return fresh random signed cotangents for the live outputs, laid out like them."""
        return [random_like(y, self.generator, choices) for y in outcome.live]

    @shared
    def baseline(self) -> Baseline:
        """One observed forward and backward of the call as given; also settles whether inputs must be non-leaf, and how gradients are taken."""
        try:
            outcome = self._first_forward()
        except UserCodeError as error:
            return Baseline(forward_error=error)
        sparse = [path for path, y in zip(outcome.paths, outcome.outputs, strict=True) if y.requires_grad and y.layout is not torch.strided]
        if sparse:
            return Baseline(forward_error=UserCodeError("forward", SparseOutput(f"{', '.join(sparse)} is sparse; dense outputs can be checked")))
        functions = [self.target.function] if self.target.function else functions_in(outcome.outputs)
        result = Baseline(outcome, self.cotangents(outcome), functions=functions)
        if not outcome.carrying:
            return result
        with observed_backward(*functions) as calls:
            result.calls = calls
            try:
                result.gradients = self._first_backward(outcome, result.cotangents)
            except UserCodeError as error:
                result.backward_error = error
        return result

    def _first_forward(self) -> Outcome:
        try:
            return self.native.forward()
        except UserCodeError as error:
            text = str(error.error)
            if "leaf Variable" not in text or "in-place" not in text:
                raise
            self.native.nonleaf = True
            return self.native.forward()

    def _first_backward(self, outcome: Outcome, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        try:
            return self.native.vjp(outcome, cotangents)
        except UserCodeError as error:
            text = str(error.error)
            if ".grad()" not in text and "autograd.grad" not in text:
                raise
            self.native.through_backward = True
            return self.native.vjp(self.native.forward(), cotangents)

    @shared
    def repeats(self) -> Repeats:
        """Whether two evaluations under the same random state agree bit for bit, and who draws random numbers.

        Raises:
            UserCodeError: if the op raises at the given inputs.
        """
        return repeats(self.native, self.baseline.cotangents, self.generator)

    def weigh(self) -> None:
        """Find out what an evaluation costs: not the first, which may load or compile something, and the quickest, since a busy machine waits."""
        start = time.perf_counter()
        base = self.baseline
        if base.outcome is None or not base.outcome.carrying or base.backward_error is not None or time.perf_counter() - start < HEAVY:
            return
        quickest = min((self._timed(base.cotangents) for _ in range(WEIGHINGS)), key=sum)
        self.meter.forward, self.meter.backward = quickest

    def _timed(self, cotangents: Sequence[Tensor]) -> tuple[float, float]:
        start = time.perf_counter()
        outcome = self.native.forward()
        middle = time.perf_counter()
        vjp_or_none(self.native, outcome, [copy_tensor(c) for c in cotangents])
        return middle - start, time.perf_counter() - middle

    @shared
    def exact(self) -> Evaluator:
        """The call in float64 where forward and backward take it, else as given."""
        _ = self.baseline
        if all(leaf.template.dtype in (torch.float64, torch.complex128) for leaf in self.native.leaves if differentiable(leaf.template)):
            return self._lean(self.native)
        wide = self.native.cast(torch.float64)
        try:
            outcome = wide.forward()
            wide.vjp(outcome, self.cotangents(outcome))
        except UserCodeError:
            return self._lean(self.native)
        native = self.baseline.outcome
        takes = native is not None and len(native.outputs) == len(outcome.outputs) and any(y.dtype == torch.float64 for y in outcome.live)
        return self._lean(wide if takes else self.native)

    def _lean(self, evaluator: Evaluator) -> Evaluator:
        lean = evaluator.variant()
        lean.hold_everything = self.repeats.forward_draws or not self._plain_randomness
        lean.fresh_graphs = not isinstance(self.second_backward, list) or not all(map(same, *self.second_backward))
        return lean

    @shared
    def second_backward(self) -> list[list[Tensor | None]] | UserCodeError:
        """The gradients of two backward calls on one retained graph with the same cotangents, or what was raised."""
        try:
            outcome = self.native.forward()
            cotangents = self.cotangents(outcome)
            first = self.native.vjp(outcome, [copy_tensor(c) for c in cotangents], retain_graph=True)
            kept = [None if g is None else g.detach().clone() for g in first]
            return [kept, self.native.vjp(outcome, [copy_tensor(c) for c in cotangents])]
        except UserCodeError as error:
            return error

    @shared
    def _plain_randomness(self) -> bool:
        """Whether the op leaves numpy's and Python's random states alone, so that only torch's needs to be held."""
        import random
        import sys

        numpy = sys.modules.get("numpy")
        before = (random.getstate(), numpy.random.get_state()[1].tobytes() if numpy else None)
        self.native.hold_everything = False
        try:
            outcome = self.native.forward()
            vjp_or_none(self.native, outcome, self.baseline.cotangents)
        except UserCodeError:
            return False
        finally:
            self.native.hold_everything = True
        return before == (random.getstate(), numpy.random.get_state()[1].tobytes() if numpy else None)

    @shared
    def value(self) -> ValueVerdict:
        """The value test's verdict with signed cotangents.

        Raises:
            UserCodeError: if the op raises on a draw.
        """
        return ValueTest(self.exact, seed=self.settings.seed, leave=self.settings.leave).run()

    @shared
    def value_nonnegative(self) -> ValueVerdict:
        """The verdict with non-negative cotangents, which is what counts where backward is not linear."""
        return ValueTest(self.exact, seed=self.settings.seed, nonnegative=True, leave=self.settings.leave).run()

    @shared
    def nonlinearity(self) -> Nonlinearity | None:
        """How backward fails to be linear in grad_output, or None where it is linear."""
        return nonlinearity(self.exact, self.generator)

    def deliberate(self, path: str) -> str:
        """Return why the gradient of an input looks deliberate although it is not the derivative, or an empty string.

        Either the forward is piecewise constant in some input and that input's gradient is not zero, which marks the whole Function as a surrogate;
        or an output equals the input bit for bit.
        """
        return self._deliberate.get(path, "")

    @shared
    def _deliberate(self) -> dict[str, str]:
        from .deliberate import deliberate_inputs

        return deliberate_inputs(self.exact, (self.value if self.nonlinearity is None else self.value_nonnegative).wrong, self.settings.seed)

    def explained(self, path: str, *codes: str) -> bool:
        """Return whether an earlier finding of one of `codes` already explains a failure of this input's gradient."""
        return any(f.code in codes and f.status != "waste" and (f.attachments.get("input") in (None, path)) for f in self.findings)

    def repro(self, code: str) -> str:
        """Return the command that shows a finding again."""
        place = self.target.location
        if self.case.origin in ("given", "recorded") or place is None:
            return f"pb.check({self.target.name}, inputs, select=[{code!r}], seed={self.settings.seed})"
        described = self.target.function or self.target.described
        qualname = described.__qualname__ if described else self.target.name
        return f"pullback check {place.path}::{qualname} --select {code} --case {self.case.index} --seed {self.settings.seed}"
