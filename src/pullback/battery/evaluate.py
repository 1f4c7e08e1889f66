"""Run the checked op: fresh arguments for every evaluation, held random state, gradients exactly as the engine receives them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .. import trees
from ..capture.calls import Target
from ..capture.case import Case
from .meter import Meter
from .process_state import KeptDefaults
from .tensors import IMMUTABLE, as_the_user_made_it, cast_tensor, copied, copy_tensor, differentiable, is_freed, move_tensor

FORWARD_SEED = 0x5EED
BACKWARD_SEED = 0xBACC


class UserCodeError(Exception):
    """The checked code raised: `stage` is ``"forward"`` or ``"backward"``, `error` what it raised."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage} raised {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error

    @property
    def short(self) -> str:
        """The error in one line."""
        text = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {text[0] if text else ''}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor among the arguments: its path in the user's names, a private template that is never handed out, and whether it is differentiated."""

    path: str
    template: Tensor
    wanted: bool


@dataclass(slots=True)
class Arguments:
    """Fresh arguments for one evaluation.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        tensors: The tensors passed, one for each leaf of the evaluator.
        roots: What gradients are taken for, aligned with the evaluator's wanted leaves; the passed tensor or, for in-place ops, the leaf behind it.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    roots: list[Tensor]


@dataclass(slots=True)
class Outcome:
    """One forward: its arguments, every tensor it returned with a path, and which of them carry gradients."""

    arguments: Arguments
    result: Any
    outputs: list[Tensor]
    paths: list[str]
    carrying: list[int] = field(default_factory=list)

    @property
    def live(self) -> list[Tensor]:
        """The outputs that gradients flow through."""
        return [self.outputs[i] for i in self.carrying]


class Evaluator:
    """Evaluates one call at chosen values; every evaluation gets fresh copies of all arguments.

    Args:
        target: What is called.
        args: Positional arguments, read once; the given tensors are never handed to the checked code.
        kwargs: Keyword arguments.
        wanted: Paths of the tensors that are differentiated; None: those that require grad, or else every floating one that is not static.
        static: Names of arguments that are never differentiated.
        nonleaf: Whether differentiated tensors are passed as results of an operation (needed by ops that change them in place).
        through_backward: Whether gradients are taken by `.backward()` instead of `autograd.grad`.
    """

    def __init__(
        self,
        target: Target,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        wanted: Iterable[str] | None = None,
        static: Iterable[str] = (),
        nonleaf: bool = False,
        through_backward: bool = False,
    ) -> None:
        self.target = target
        self.kwargs = dict(kwargs or {})
        self.args = tuple(args)
        self.nonleaf = nonleaf
        self.through_backward = through_backward
        self.hold_everything = True
        self.fresh_graphs = False
        self.meter = Meter()
        self.static = tuple(static)
        names = target.positional(len(self.args))
        self._named: list[tuple[str, Any]] = [*zip(names, self.args, strict=True), *self.kwargs.items()]
        self.leaves = self._find_leaves(None if wanted is None else set(wanted))

    @classmethod
    def of_case(cls, target: Target, case: Case) -> Evaluator:
        """Return the evaluator of a case's own call."""
        return cls(target, case.args, case.kwargs, static=case.declaration.static)

    def _find_leaves(self, wanted: set[str] | None) -> list[Leaf]:
        self._of_tensor: dict[int, int] = {}
        pairs: list[tuple[str, Tensor]] = []
        for name, value in self._named:
            for path, leaf in trees.leaves(value, name):
                if isinstance(leaf, Tensor) and id(leaf) not in self._of_tensor:
                    self._of_tensor[id(leaf)] = len(pairs)
                    pairs.append((path, leaf))
        if wanted is None:
            asked = {path for path, t in pairs if t.requires_grad and _root(path) not in self.static}
            wanted = asked or {path for path, t in pairs if differentiable(t) and _root(path) not in self.static}
        return [Leaf(path, copy_tensor(t), path in wanted and differentiable(t)) for path, t in pairs]

    def variant(self, values: Mapping[str, Any] | None = None, *, wanted: Iterable[str] | None = None, target: Target | None = None) -> Evaluator:
        """Return an evaluator of the same call with some leaves replaced: `values` maps paths (``x``, ``cfg.weight``, ``eps``) to new values.

        Tensors stay wanted as they are, unless `wanted` lists other paths.
        """
        values = values or {}

        def swap(path: str, value: Any) -> Any:
            if path in values or not isinstance(value, Tensor):
                return values.get(path, value)
            # One tensor that is passed twice has one leaf, under its first path.
            leaf = self.leaves[self._of_tensor[id(value)]]
            return values.get(leaf.path, leaf.template)

        named = [(name, values[name] if name in values else trees.map_leaves(swap, value, name)) for name, value in self._named]
        count = len(self.args)
        kept = {leaf.path for leaf in self.leaves if leaf.wanted} if wanted is None else wanted
        return self._like_this(target or self.target, [v for _, v in named[:count]], dict(named[count:]), kept)

    def extended(self, values: Sequence[Any]) -> Evaluator:
        """Return an evaluator of the same call with further positional arguments."""
        return self._like_this(self.target, [*self.args, *values], self.kwargs, {leaf.path for leaf in self.leaves if leaf.wanted})

    def _like_this(self, target: Target, args: Sequence[Any], kwargs: Mapping[str, Any], wanted: Iterable[str]) -> Evaluator:
        new = type(self)(target, args, kwargs, wanted=wanted, static=self.static, nonleaf=self.nonleaf, through_backward=self.through_backward)
        new.hold_everything = self.hold_everything
        new.fresh_graphs = self.fresh_graphs
        new.meter = self.meter
        return new

    def cast(self, dtype: torch.dtype) -> Evaluator:
        """Return an evaluator whose floating tensors have `dtype` (complex ones the complex dtype of that width)."""
        wide = {torch.float64: torch.complex128, torch.float32: torch.complex64, torch.float16: torch.complex32, torch.bfloat16: torch.complex64}
        values = {
            leaf.path: cast_tensor(leaf.template, wide[dtype] if leaf.template.is_complex() else dtype)
            for leaf in self.leaves
            if differentiable(leaf.template)
        }
        return self.variant(values)

    def to(self, device: torch.device | str) -> Evaluator:
        """Return an evaluator whose tensors lie on `device`; `torch.device` arguments say so too."""
        place = torch.device(device)
        values: dict[str, Any] = {leaf.path: move_tensor(leaf.template, place) for leaf in self.leaves}
        for name, value in self._named:
            values |= {path: place for path, leaf in trees.leaves(value, name) if isinstance(leaf, torch.device)}
        return self.variant(values)

    @property
    def wanted(self) -> list[Leaf]:
        """The differentiated leaves, in argument order."""
        return [leaf for leaf in self.leaves if leaf.wanted]

    @property
    def named(self) -> list[tuple[str, Any]]:
        """Top-level arguments with their names."""
        return list(self._named)

    def arguments(
        self,
        values: Mapping[str, Tensor] | None = None,
        *,
        layout: Callable[[str, Tensor], Tensor] | None = None,
        requires_grad: Iterable[str] | None = None,
    ) -> Arguments:
        """Return fresh arguments.

        Args:
            values: New values by path, for floating leaves; data only, they are copied.
            layout: Called with path and fresh data, returns the same values in another memory layout.
            requires_grad: Paths that require grad, instead of the wanted ones.
        """
        wanted = None if requires_grad is None else set(requires_grad)
        memo: dict[int, Any] = {}
        passed: list[Tensor] = []
        roots: list[Tensor] = []
        for leaf in self.leaves:
            source = leaf.template if values is None or leaf.path not in values else values[leaf.path]
            data = copy_tensor(source, like=leaf.template)
            if layout is not None:
                data = as_the_user_made_it(layout(leaf.path, data), leaf.template)
            needs = leaf.wanted if wanted is None else leaf.path in wanted
            tensor = data
            if needs:
                data.requires_grad_()
                tensor = data.view_as(data).clone() if self.nonleaf else data
            if leaf.wanted:
                roots.append(data)
            passed.append(tensor)
        fresh = [self._rebuild(name, value, passed, memo) for name, value in self._named]
        count = len(self.args)
        return Arguments(tuple(fresh[:count]), dict(zip(self.kwargs, fresh[count:], strict=True)), passed, roots)

    def _rebuild(self, name: str, value: Any, passed: list[Tensor], memo: dict[int, Any]) -> Any:
        if isinstance(value, Tensor):
            return passed[self._of_tensor[id(value)]]
        if isinstance(value, IMMUTABLE):
            return value

        def fresh(path: str, leaf: Any) -> Any:
            return passed[self._of_tensor[id(leaf)]] if isinstance(leaf, Tensor) else copied(leaf, memo)

        return trees.map_leaves(fresh, value, name)

    def forward(self, arguments: Arguments | None = None, *, seed: int = FORWARD_SEED, **how: Any) -> Outcome:
        """Run the call once under a held random state.

        Raises:
            UserCodeError: if the checked code raises.
        """
        arguments = self.arguments(**how) if arguments is None else arguments
        self._hold(seed)
        return self.call(arguments)

    def call(self, arguments: Arguments) -> Outcome:
        """Run the call once, with whatever random state there is.

        Raises:
            UserCodeError: if the checked code raises.
        """
        self.meter.spend("forward")
        if any(map(is_freed, arguments.tensors)):
            raise UserCodeError("forward", RuntimeError("an earlier call gave back the memory of an argument"))
        try:
            with KeptDefaults():
                result = self.target.call(*arguments.args, **arguments.kwargs)
        except Exception as error:
            raise UserCodeError("forward", error) from error
        if isinstance(result, Tensor):
            pairs: list[tuple[str, Any]] = [("output", result)]
        else:
            pairs = [(p, t) for p, t in trees.leaves(result, "output") if isinstance(t, Tensor)]
        outputs = [t for _, t in pairs]
        carrying = [i for i, t in enumerate(outputs) if t.requires_grad and differentiable(t)]
        return Outcome(arguments, result, outputs, [p for p, _ in pairs], carrying)

    def again(self, outcome: Outcome) -> Outcome:
        """Return `outcome`, or a new one where backward cannot be trusted to do the same twice on one graph (`fresh_graphs`)."""
        return self.forward() if self.fresh_graphs else outcome

    def vjp(
        self,
        outcome: Outcome,
        cotangents: Sequence[Tensor | None],
        *,
        retain_graph: bool = False,
        create_graph: bool = False,
        seed: int = BACKWARD_SEED,
    ) -> list[Tensor | None]:
        """Return the gradients for the wanted leaves, given one cotangent (or None: undefined) for each live output.

        The cotangent is handed to the engine as it is, so that its strides reach backward. Sparse gradients come back dense.

        Raises:
            UserCodeError: if backward raises.
        """
        self.meter.spend("backward")
        pairs = [(y, c) for y, c in zip(outcome.live, cotangents, strict=True) if c is not None]
        roots = [r for r in outcome.arguments.roots if r.requires_grad]
        self._hold(seed)
        try:
            if not pairs or not roots:
                found: list[Tensor | None] = [None] * len(roots)
            elif self.through_backward:
                for root in roots:
                    root.grad = None
                with KeptDefaults():
                    torch.autograd.backward([y for y, _ in pairs], [c for _, c in pairs], retain_graph=retain_graph, create_graph=create_graph)
                found = [root.grad for root in roots]
            else:
                keep = retain_graph or create_graph
                with KeptDefaults():
                    found = list(
                        torch.autograd.grad(
                            [y for y, _ in pairs],
                            roots,
                            [c for _, c in pairs],
                            retain_graph=keep,
                            create_graph=create_graph,
                            allow_unused=True,
                        )
                    )
        except Exception as error:
            raise UserCodeError("backward", error) from error
        by_root = iter([g.to_dense() if g is not None and g.layout is not torch.strided else g for g in found])
        return [next(by_root) if r.requires_grad else None for r in outcome.arguments.roots]

    def values(self, values: Mapping[str, Tensor] | None = None) -> list[Tensor]:
        """Return every floating output at these values, detached."""
        return [t.detach() for t in self.forward(values=values).outputs if differentiable(t)]

    def _hold(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
        if self.hold_everything:
            random.seed(seed)
            numpy = sys.modules.get("numpy")
            if numpy is not None:
                numpy.random.seed(seed)


def generator_states(arguments: Arguments) -> list[Tensor]:
    """Return the states of the random generators among the arguments."""
    values = [leaf for value in (*arguments.args, *arguments.kwargs.values()) for _, leaf in trees.leaves(value)]
    return [leaf.get_state() for leaf in values if isinstance(leaf, torch.Generator)]


def _root(path: str) -> str:
    for i, char in enumerate(path):
        if char in "[.":
            return path[:i]
    return path
