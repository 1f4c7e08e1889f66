"""Hand a wrong gradient to the diagnosis: the mismatch with its oracles, and fresh ones to test a guess on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..capture.frames import calling_frame
from ..diagnosis.explain import TRIES, explain, visible
from ..diagnosis.mismatch import Guess, Mismatch
from .evaluate import Evaluator, UserCodeError
from .locate import trusted_truth
from .probe import Probe
from .sizes import Resizer, Symbol, symbols
from .tensors import differentiable, random_like
from .value import SIGNED

LARGEST = 20_000
SYMBOLS = 4
"""How many sizes are changed, and how many places of one."""


def causes(probe: Probe, path: str) -> tuple[Guess, ...]:
    """Return the ranked causes of a wrong gradient, empty where nothing fits or no trusted right gradient is at hand."""
    truth = trusted_truth(probe, path)
    if truth is None or sum(leaf.template.numel() for leaf in truth.leaves) > LARGEST:
        return ()
    builder = _Builder(probe.exact, truth, path, probe.settings.seed)
    try:
        first = next((m for m in (builder.mismatch(None, n) for n in range(TRIES)) if m is not None and visible(m)), None)
        return () if first is None else explain(first, builder.replay, builder.resized)
    except (UserCodeError, RuntimeError):
        return ()


class _Builder:
    """Builds mismatches of one op and input."""

    def __init__(self, op: Evaluator, truth: Evaluator, path: str, seed: int) -> None:
        self.op = op
        self.truth = truth
        self.path = path
        self.seed = seed
        self.shown: list[Tensor] = []
        self.wanted = [leaf.path for leaf in self.op.wanted]

    def replay(self, n: int) -> Mismatch | None:
        """Return the n-th fresh mismatch; the first one turns the signs of grad_output round, which tells a nonlinear backward from a linear one."""
        generator = torch.Generator().manual_seed(self.seed + 7919 * (n + 1))
        values = {
            leaf.path: leaf.template * (0.8 + 0.4 * torch.rand(leaf.template.shape, dtype=torch.float64, generator=generator)).to(leaf.template)
            for leaf in self.op.wanted
        }
        try:
            return self.mismatch(values, n + 1, opposite=n == 0)
        except UserCodeError:
            return None

    def resized(self) -> list[Mismatch]:
        """Return a mismatch for every size that can be changed, and for every place of a size that can be changed alone."""
        found: list[Mismatch] = []
        for symbol in symbols(self.op)[:SYMBOLS]:
            joint = (self._with_size(s) for s in dict.fromkeys((symbol.without_numbers(), symbol)))
            found += [m for m in joint if m is not None][:1]
            if 1 < len(symbol.axes) <= SYMBOLS:
                found += [m for m in map(self._with_size, symbol.split()) if m is not None]
        return found

    def _with_size(self, symbol: Symbol) -> Mismatch | None:
        for size in (symbol.size + 3, 2 * symbol.size):
            op = Resizer(self.op).resized(symbol, size)
            if op is None:
                continue
            values = {leaf.path: leaf.template for leaf in op.leaves} | dict.fromkeys(symbol.numbers, size)
            try:
                found = _Builder(op, self.truth.variant(values), self.path, self.seed).mismatch(None, size)
            except (UserCodeError, RuntimeError):
                continue
            if found is not None and found.got.shape == found.expected.shape:
                return found
        return None

    def mismatch(self, values: Mapping[str, Tensor] | None, n: int, *, opposite: bool = False) -> Mismatch | None:
        generator = torch.Generator().manual_seed(self.seed + 104729 * (n + 1))
        outcome = self.op.forward(values=values)
        drawn = [random_like(y, generator, SIGNED) for y in outcome.live]
        if values is None:
            self.shown = drawn
        cotangents = [-c for c in self.shown] if opposite else drawn
        paths = [outcome.paths[i] for i in outcome.carrying]
        returned = dict(zip(self.wanted, self.op.vjp(outcome, cotangents), strict=True))
        arguments = {
            leaf.path: (leaf.template if values is None else values.get(leaf.path, leaf.template))
            for leaf in self.op.leaves
            if differentiable(leaf.template)
        }
        named = dict(zip(paths, cotangents, strict=True))
        gradients = self._truths(values, named)
        got, expected = returned[self.path], gradients.get(self.path)
        if expected is None:
            return None
        return Mismatch(
            path=self.path,
            got=torch.zeros_like(expected) if got is None else got.detach(),
            expected=expected,
            arguments=arguments,
            numbers=self._numbers(),
            outputs=dict(zip(paths, [y.detach() for y in outcome.live], strict=True)),
            cotangents=named,
            gradients=gradients,
            returned={p: g.detach() for p, g in returned.items() if g is not None},
            vjp=lambda path, *, values=None, cotangents=None, numbers=None, base=values: self._truths(
                {**(base or {}), **(values or {})}, cotangents or named, numbers
            ).get(path),
            cut=lambda n: self._cut(n, values, named),
            nudged=lambda by: self._nudged(by, values, cotangents),
        )

    def _numbers(self) -> dict[str, float]:
        """Numbers among the arguments: Python's, and tensors without dimensions that are not differentiated."""
        plain = {name: float(v) for name, v in self.op.named if isinstance(v, (int, float)) and not isinstance(v, bool)}
        held = {leaf.path: leaf.template for leaf in self.op.leaves if not leaf.wanted and leaf.template.dim() == 0}
        return plain | {path: float(t) for path, t in held.items() if t.is_floating_point()}

    def _as_passed(self, numbers: Mapping[str, float]) -> dict[str, Any]:
        held = {leaf.path: leaf.template for leaf in self.truth.leaves}
        return {path: torch.full_like(held[path], v) if path in held else v for path, v in numbers.items()}

    def _nudged(self, by: float, values: Mapping[str, Tensor] | None, cotangents: list[Tensor]) -> Tensor | None:
        moved = {leaf.path: (values or {}).get(leaf.path, leaf.template) * (1 + by) for leaf in self.op.wanted}
        try:
            gradients = self.op.vjp(self.op.forward(values=moved), [c.clone() for c in cotangents])
        except UserCodeError:
            return None
        return dict(zip(self.wanted, gradients, strict=True))[self.path]

    def _truths(
        self, values: Mapping[str, Tensor] | None, cotangents: Mapping[str, Tensor], numbers: Mapping[str, float] | None = None
    ) -> dict[str, Tensor]:
        try:
            truth = self.truth if numbers is None else self.truth.variant(self._as_passed(numbers))
            outcome = truth.forward(values=values)
            by_path = [cotangents.get(outcome.paths[i]) for i in outcome.carrying]
            gradients = truth.vjp(outcome, [None if c is None else c.to(y.dtype) for c, y in zip(by_path, outcome.live, strict=True)])
        except (UserCodeError, RuntimeError):
            return {}
        return {leaf.path: torch.zeros_like(leaf.template) if g is None else g.detach() for leaf, g in zip(self.truth.wanted, gradients, strict=True)}

    def _cut(self, n: int, values: Mapping[str, Tensor] | None, cotangents: Mapping[str, Tensor]) -> tuple[str, Tensor] | None:
        knife = _Knife(n)
        call = self.truth.target.call

        def cutting(*args: Any, **kwargs: Any) -> Any:
            with knife:
                return call(*args, **kwargs)

        evaluator = self.truth.variant(target=replace(self.truth.target, call=cutting))
        try:
            outcome = evaluator.forward(values=values)
            if knife.place is None:
                return None
            pairs = [cotangents.get(outcome.paths[i]) for i in outcome.carrying]
            gradients = evaluator.vjp(outcome, pairs)
        except UserCodeError:
            return knife.place or "", torch.full((), torch.nan)
        index = next(i for i, leaf in enumerate(evaluator.wanted) if leaf.path == self.path)
        gradient = gradients[index]
        return knife.place, torch.zeros_like(evaluator.wanted[index].template) if gradient is None else gradient.detach()


class _Knife(TorchFunctionMode):
    """Detaches the result of the n-th differentiable torch call and remembers which one it was."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.left = n
        self.place: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if (
            not isinstance(result, Tensor)
            or not result.requires_grad
            or name in ("__get__", "requires_grad_")
            or (name.endswith("_") and not name.endswith("__"))
        ):
            return result
        self.left -= 1
        if self.left != -1:
            return result
        self.place = f"the result of {name.strip('_')}() in forward{_line()}"
        return result.detach()


def _line() -> str:
    frame = calling_frame(sys._getframe(2))
    return "" if frame is None else f", line {frame.f_lineno}"
