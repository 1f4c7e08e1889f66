"""Second derivatives: what double backward gives, against difference quotients of the first-order gradient that backward returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import numeric, tolerance
from .evaluate import BACKWARD_SEED, Evaluator, Outcome, UserCodeError
from .tensors import random_like
from .value import SIGNED, spread


@dataclass(frozen=True, slots=True)
class SecondMismatch:
    """One second derivative that is wrong.

    Args:
        path: With respect to which input.
        loss: For which loss, in words.
        tracked: Whether the first-order gradient carries a graph at all.
        got: What double backward gives.
        low: Least value that the difference quotients allow.
        high: Greatest.
        error: Distance of `got` from that.
        allowed: Tolerance.
    """

    path: str
    loss: str
    tracked: bool
    got: float
    low: float
    high: float
    error: float
    allowed: float


class SecondTest:
    """The test of second derivatives for one loss.

    Args:
        evaluator: The call, preferably in float64.
        linear: Whether the loss is linear in the outputs, so that grad_output needs no gradient; else it is quadratic.
        seed: Chooses directions and cotangents.
    """

    def __init__(self, evaluator: Evaluator, *, linear: bool, seed: int) -> None:
        self.evaluator = evaluator
        self.linear = linear
        self.generator = torch.Generator().manual_seed(seed + 0x2D)
        self.base = evaluator.forward()
        self.weights = [random_like(y, self.generator, SIGNED) for y in self.base.live]
        self.sizes = [leaf.template for leaf in evaluator.wanted]
        self.tracked = False

    @property
    def loss(self) -> str:
        return "(weights * output).sum()" if self.linear else "(weights * output**2).sum() / 2"

    def cotangents(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [w.clone() if self.linear else w * y for w, y in zip(self.weights, outputs, strict=True)]

    def gradients(self, outcome: Outcome, *, graph: bool) -> list[Tensor]:
        """Return first-order gradients of the loss, zeros for None."""
        found = self.evaluator.vjp(outcome, self.cotangents(outcome.live), create_graph=graph)
        return [torch.zeros_like(t) if g is None else g for g, t in zip(found, self.sizes, strict=True)]

    def evaluate(self, values: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the first-order gradients at other values, flat."""
        return numeric.flat([g.detach() for g in self.gradients(self.evaluator.forward(values=values), graph=False)])

    def run(self) -> SecondMismatch | None:
        """Return the first wrong second derivative.

        Raises:
            UserCodeError: if backward raises when it is differentiated.
        """
        centre = self.evaluate()
        for leaf in self.evaluator.wanted:
            x = leaf.template
            if x.numel() == 0:
                continue
            found = numeric.slopes(self.evaluate, leaf.path, x, spread(x.shape, x.is_complex(), self.generator), centre)
            v = torch.where(found.measured, _signed(centre, self.generator), 0.0)
            second = self.double_backward(v)[leaf.path]
            low, high, allowed = found.bounds(v)
            along = numeric.flat([second]) * found.displacement
            got = float(along.sum())
            allowed += 64 * tolerance.eps(x.dtype) * float(along.norm())
            error = max(low - got, got - high, 0.0) if got == got else float("nan")
            if not error <= allowed:
                return SecondMismatch(leaf.path, self.loss, self.tracked, got, low, high, error, allowed)
        return None

    def double_backward(self, v: Tensor) -> dict[str, Tensor]:
        """Return the gradients of <v, first-order gradients> by `.backward()`, as a training loop would take them.

        `autograd.grad(..., allow_unused=True)` would return None for a backward that refuses to be differentiated, without saying so.
        """
        outcome = self.evaluator.forward()
        first = self.gradients(outcome, graph=True)
        self.tracked = any(g.requires_grad for g in first)
        roots = outcome.arguments.roots
        total = sum((root * 0).sum().abs() for root in roots) + (v.to(roots[0].device) * _flat_graph(first)).sum()
        for root in roots:
            root.grad = None
        torch.default_generator.manual_seed(BACKWARD_SEED)
        try:
            torch.autograd.backward(torch.as_tensor(total))
        except Exception as error:
            raise UserCodeError("backward", error) from error
        return {
            leaf.path: torch.zeros_like(leaf.template) if root.grad is None else root.grad
            for leaf, root in zip(self.evaluator.wanted, roots, strict=True)
        }


def _flat_graph(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([(torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).reshape(-1).to(torch.float64) for t in tensors])


def _signed(like: Tensor, generator: torch.Generator) -> Tensor:
    return random_like(like, generator, SIGNED)
