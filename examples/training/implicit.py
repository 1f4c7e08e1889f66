"""A layer defined by an equation, z = tanh(W z + U x + b), differentiated at its solution and by going back through every step of the solver.

``python examples/training/implicit.py [--width N] [--steps N]``. Both gradients are the same; what is kept for backward is not: the implicit one
keeps the solution alone, however near to it the solver goes. Then a small equilibrium model learns the parity of signs in a row.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pullback as pb


def cell(z: Tensor, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """One step of the equation; a contraction, since the recurrent weights are kept below 1 in norm."""
    recurrent = 0.9 * weights["recurrent"] / torch.linalg.matrix_norm(weights["recurrent"], 2).clamp(min=0.9)
    return torch.tanh(z @ recurrent.mT + x @ weights["inner"].mT + weights["bias"])


def implicit(x: Tensor, weights: dict[str, Tensor], tol: float | None = None) -> Tensor:
    """The solution for `x`, ``[batch, in]``, as ``[batch, width]``, by `pb.ops.fixed_point`."""
    return pb.ops.fixed_point(cell, x.new_zeros(x.shape[0], weights["bias"].shape[0]), x, weights, tol=tol)


def unrolled(x: Tensor, weights: dict[str, Tensor], iterations: int) -> Tensor:
    """The same by so many steps, through which autograd goes back."""
    z = x.new_zeros(x.shape[0], weights["bias"].shape[0])
    for _ in range(iterations):
        z = cell(z, x, weights)
    return z


def random_weights(inputs: int, width: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights of the layer, which require grad."""
    shapes = {"recurrent": (width, width), "inner": (width, inputs), "bias": (width,)}
    return {name: (torch.randn(shape, dtype=dtype) / shape[-1] ** 0.5).requires_grad_() for name, shape in shapes.items()}


@dataclass(frozen=True)
class Row:
    """One comparison: how far gradients are apart, relative to their size, and bytes kept for backward beyond weights and output."""

    iterations: int
    tol: float
    difference: float
    kept_unrolled: int
    kept_implicit: int


def compare(width: int, inputs: int = 8, batch: int = 32) -> list[Row]:
    """Compare both for solvers that go nearer and nearer to the solution."""
    torch.manual_seed(0)
    weights = random_weights(inputs, width, torch.float64)
    x = torch.randn(batch, inputs, dtype=torch.float64)
    rows = []
    for iterations, tol in ((25, 1e-2), (100, 1e-6), (400, 1e-13)):
        z, u = implicit(x, weights, tol), unrolled(x, weights, iterations)
        grads = [torch.autograd.grad(out.sin().sum(), list(weights.values()), retain_graph=True) for out in (z, u)]
        size = max(float(g.norm()) for g in grads[1])
        gap = max(float((a - b).norm()) for a, b in zip(*grads, strict=True)) / size
        rows.append(Row(iterations, tol, gap, pb.saved(u).extra, pb.saved(z).extra))
    return rows


class Equilibrium(nn.Module):
    """The layer with a linear readout."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.weights = nn.ParameterDict({name: w.detach() for name, w in random_weights(inputs, width, torch.float32).items()})
        self.read = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[batch, outputs]``."""
        return self.read(implicit(x, dict(self.weights.items())))


def train(steps: int, width: int = 32, inputs: int = 4) -> tuple[list[float], float]:
    """Learn the parity of signs; return the losses, and the accuracy on new rows."""
    torch.manual_seed(0)
    model, losses = Equilibrium(inputs, width, 2), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def rows(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, inputs)
        return x, (x > 0).sum(1) % 2

    for _ in range(steps):
        x, label = rows(128)
        loss = F.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    x, label = rows(1024)
    with torch.no_grad():
        return losses, (model(x).argmax(1) == label).float().mean().item()


def main() -> None:
    """Print both comparisons, then the training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    print(f"{'steps':>8}{'tolerance':>12}{'gradients differ by':>22}{'unrolled keeps':>18}{'implicit keeps':>18}")
    for row in compare(given.width):
        print(f"{row.iterations:>8}{row.tol:>12.0e}{row.difference:>22.1e}{row.kept_unrolled:>12} bytes{row.kept_implicit:>12} bytes")
    losses, accuracy = train(given.steps)
    print(f"\nparity: loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {given.steps} steps, {accuracy:.1%} right")


if __name__ == "__main__":
    main()
