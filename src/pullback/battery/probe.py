"""`Probe`: one case under examination, with everything that several checks need computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..capture.calls import BackwardCall, Function, Target, functions_in, observed_backward, resolve_target
from ..capture.case import Case
from ..capture.modules import with_module_state
from ..declare import Declaration
from ..report.finding import Finding, Location
from . import tolerance
from .draws import drawing, shared, stream
from .evaluate import BACKWARD_SEED, FORWARD_SEED, Evaluator, Outcome, UserCodeError, copy_tensor, differentiable, generator_states, random_like
from .state import Snapshot
from .value import SIGNED, ValueTest, ValueVerdict

UNEVEN = (1e-3, 1.0, 1e3)
UNEVEN_REPEATS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a case is checked.

    Args:
        seed: Chooses every random direction, cotangent and sample.
        orders: 2 where second derivatives must be right; the declaration of a case may ask for it too.
        thorough: Whether the thorough tier runs.
        select: Codes that run; empty: all of the default tiers.
        ignore: Codes that do not run.
        dtype: Inputs are cast to this dtype first, or None.
        device: Inputs are moved to this device first, or None.
        leave: An absolute and a relative error of the Jacobian's entries that the caller lets pass.
        distributed: In how many processes the distributed tier runs; 0: not at all.
    """

    seed: int = 0
    orders: int = 1
    thorough: bool = False
    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    dtype: torch.dtype | None = None
    device: str | None = None
    leave: tuple[float, float] = (0.0, 0.0)
    distributed: int = 0

    @property
    def tiers(self) -> set[str]:
        """The tiers that run."""
        chosen = {"default"} | ({"thorough"} if self.thorough else set()) | ({"distributed"} if self.distributed > 1 else set())
        return chosen | ({"gpu"} if (self.device or "").startswith("cuda") else set())

    def runs(self, code: str) -> bool:
        """Return whether a check of the default tier is among the chosen ones."""
        return code not in self.ignore and (not self.select or code in self.select)


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


@dataclass(frozen=True, slots=True)
class Repeats:
    """Whether the call repeats bit for bit under a held random state, and whether it draws random numbers."""

    forward: bool
    backward: bool
    forward_draws: bool
    backward_draws: bool


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
        return self.target.backward_name if self.target.function or self.function is None else f"{self.function.__name__}.backward"

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
            if "not compatible with .grad()" not in text and "incompatible with .grad()" not in text:
                raise
            self.native.through_backward = True
            return self.native.vjp(self.native.forward(), cotangents)

    @shared
    def repeats(self) -> Repeats:
        """Whether two evaluations under the same random state agree bit for bit, and who draws random numbers.

        Raises:
            UserCodeError: if the op raises at the given inputs.
        """
        base = self.baseline
        before = torch.default_generator.manual_seed(FORWARD_SEED).get_state()
        arguments = self.native.arguments()
        own = generator_states(arguments)
        first = self.native.forward(arguments)
        draws_forward = not torch.equal(before, torch.default_generator.get_state()) or not all(map(torch.equal, own, generator_states(arguments)))
        gradients = self._vjp_or_none(first, base.cotangents)
        before = torch.Generator().manual_seed(BACKWARD_SEED).get_state()
        draws_backward = bool(first.carrying) and not torch.equal(before, torch.default_generator.get_state())
        second = self.native.forward()
        again = self._vjp_or_none(second, base.cotangents)
        same_forward = len(first.outputs) == len(second.outputs) and all(map(same, first.outputs, second.outputs))
        same_backward = (gradients is None) == (again is None) and (gradients is None or again is None or all(map(same, gradients, again)))
        same_backward = same_backward and (gradients is None or self._repeats_for_uneven_cotangents())
        return Repeats(same_forward, same_backward, draws_forward, draws_backward)

    def _repeats_for_uneven_cotangents(self) -> bool:
        """Whether gradients repeat where sums round: a changed order of summation rarely shows for cotangents of few digits and one size."""
        outcome = self.native.forward()
        cotangents = [_full_mantissas(random_like(y, self.generator, UNEVEN), self.generator) for y in outcome.live]
        found = [self._vjp_or_none(self.native.forward(), [copy_tensor(c) for c in cotangents]) for _ in range(UNEVEN_REPEATS)]
        present = [g for g in found if g is not None]
        return all(all(map(same, g, present[0])) for g in present[1:])

    def _vjp_or_none(self, outcome: Outcome, cotangents: Sequence[Tensor]) -> list[Tensor | None] | None:
        try:
            return self.native.vjp(outcome, cotangents) if outcome.carrying else []
        except UserCodeError:
            return None

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
            self._vjp_or_none(outcome, self.baseline.cotangents)
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
    def nonlinearity(self) -> tuple[str, str, str, float, float] | None:
        """How backward fails to be linear in grad_output: (law, got, expected, error, tolerance), or None where it is linear.

        Additivity, homogeneity for powers of two (exact in floating point; large and small ones cross clipping thresholds), and backward(0) = 0.
        """
        return _nonlinearity(self.exact, self.generator)

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
        qualname = self.target.function.__qualname__ if self.target.function else self.target.name
        return f"pullback check {place.path}::{qualname} --select {code} --case {self.case.index} --seed {self.settings.seed}"


def same(a: Tensor | None, b: Tensor | None) -> bool:
    """Return whether two results are the same bits in the same shape and dtype (NaN equals NaN)."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return a.layout is b.layout and bool(torch.equal(a.to_dense(), b.to_dense()))
    return bool(torch.equal(a, b)) or bool(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))


def zeros_for(outcome: Outcome) -> list[Tensor]:
    """Return zero cotangents for the live outputs."""
    return [torch.zeros_like(y) for y in outcome.live]


def gradient_name(path: str) -> str:
    """Return how messages call the gradient of an input: ``grad_x``, ``grad of params[0]``."""
    return f"grad_{path}" if path.isidentifier() else f"grad of {path}"


def _nonlinearity(evaluator: Evaluator, generator: torch.Generator) -> tuple[str, str, str, float, float] | None:
    outcome = evaluator.forward()

    def gradient(cotangent: Sequence[Tensor]) -> list[Tensor | None]:
        try:
            return evaluator.vjp(evaluator.again(outcome), [copy_tensor(c) for c in cotangent], retain_graph=True)
        except UserCodeError:
            return evaluator.vjp(evaluator.forward(), [copy_tensor(c) for c in cotangent])

    names = [leaf.path for leaf in evaluator.wanted]
    u, v = ([_full_mantissas(random_like(y, generator, SIGNED), generator) for y in outcome.live] for _ in range(2))
    gu, gv = gradient(u), gradient(v)
    both = gradient([a + b for a, b in zip(u, v, strict=True)])
    power = 2.0 ** (4 if any(y.dtype == torch.float16 for y in outcome.live) else 8)
    trials: list[tuple[str, Any, list[Tensor | None]]] = [
        ("backward(u) + backward(v) = backward(u + v)", both, [_plus(a, b) for a, b in zip(gu, gv, strict=True)])
    ]
    for factor in (power, 1 / power, -1.0):
        trials.append(
            (f"backward({factor:g}·u) = {factor:g}·backward(u)", gradient([factor * a for a in u]), [None if g is None else factor * g for g in gu])
        )
    trials.append(("backward(0) = 0", gradient([torch.zeros_like(a) for a in u]), [None if g is None else torch.zeros_like(g) for g in gu]))
    for law, got, expected in trials:
        for name, a, b, g, h in zip(names, got, expected, gu, gv, strict=True):
            if (a is None) != (b is None):
                return (
                    f"{law}, for {gradient_name(name)}",
                    "None" if a is None else "a tensor",
                    "None" if b is None else "a tensor",
                    float("inf"),
                    0.0,
                )
            if a is None or b is None or a.numel() == 0:
                continue
            scale = max(float(t.detach().abs().max()) for t in (b, g, h) if t is not None) if law != "backward(0) = 0" else float(_peak(g))
            working = max(_working_dtype(g, h), *(y.dtype for y in outcome.live), key=tolerance.eps)  # the sum u + v is rounded to the outputs' dtype
            terms = outcome.live[0].numel() if working == a.dtype or tolerance.eps(working) < 1e-6 else 1
            allowed = tolerance.linear(working, scale, terms) / (1 if terms > 1 or working == a.dtype else 4)
            gap = (a - b).detach().abs()
            at = int(torch.nan_to_num(gap, nan=torch.inf).argmax())
            error = float(gap.flatten()[at])
            if not error <= allowed:
                return f"{law}, for {gradient_name(name)}", f"{_entry(a, at)}", f"{_entry(b, at)}", error, allowed
    return None


def _full_mantissas(cotangent: Tensor, generator: torch.Generator) -> Tensor:
    """Vary a cotangent of few digits, so that its multiples fit into a narrower dtype only where backward casts to it."""
    factor = torch.rand(cotangent.shape, generator=generator, dtype=torch.float64) / 2 + 0.5
    return cotangent.mul_(factor.to(cotangent))


def _working_dtype(*gradients: Tensor | None) -> torch.dtype:
    """The dtype of fewest digits that holds these gradients exactly: what a backward that casts inside really works in."""
    found = [g.detach() for g in gradients if g is not None]
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if all(not g.is_complex() and torch.equal(g.to(dtype).to(g.dtype), g) for g in found):
            return dtype
    return found[0].dtype


def _peak(tensor: Tensor | None) -> float:
    return float(tensor.detach().abs().max()) if tensor is not None and tensor.numel() else 0.0


def _entry(tensor: Tensor, index: int) -> str:
    return f"{tensor.detach().flatten()[index].item():.6g}"


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


__all__ = ["Baseline", "Probe", "Repeats", "Settings", "gradient_name", "replace", "same", "zeros_for"]
