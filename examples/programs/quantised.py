"""Quantisation-aware training with a learnable step size (LSQ), under autocast.

``python examples/programs/quantised.py [--faulty] [--steps N]``. The faulty layer saves a shifted copy of its product and takes the shift off again
in backward: in float32 that costs some digits; under autocast the product is bfloat16, and nothing of it is left.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

LEVELS = 7


class Quantise(torch.autograd.Function):
    """Round x / step to whole numbers from -LEVELS to LEVELS and scale back (Esser et al., arXiv:1902.08153)."""

    __pullback__ = {"exact": False, "reason": "straight-through rounding, learned step size"}

    @staticmethod
    def forward(ctx, x: Tensor, step: Tensor) -> Tensor:
        ctx.save_for_backward(x, step)
        return (x / step).round().clamp(-LEVELS, LEVELS) * step

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, step = ctx.saved_tensors
        ratio = x / step
        inside = ratio.abs() <= LEVELS
        return dy * inside, (dy * torch.where(inside, ratio.round() - ratio, ratio.sign() * LEVELS)).sum()


class ScaledLinear(torch.autograd.Function):
    """``scale · (x @ weight.T)`` for activations in whatever precision autocast chooses."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        product = x @ weight.t()
        ctx.save_for_backward(x, weight, scale, product)
        return scale * product

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, weight, scale, product = ctx.saved_tensors
        dy = dy.to(weight.dtype)
        scaled = dy * scale
        return scaled @ weight, scaled.t() @ x.to(weight.dtype), (dy * product.to(weight.dtype)).sum()


class OffsetLinear(ScaledLinear):
    """The same, which finds the product again from an output that was shifted: a large offset eats the digits of bfloat16."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        product = x @ weight.t()
        shifted = product + 4096
        ctx.save_for_backward(x, weight, scale, shifted)
        return scale * product

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, weight, scale, shifted = ctx.saved_tensors
        dy = dy.to(weight.dtype)
        scaled = dy * scale
        return scaled @ weight, scaled.t() @ x.to(weight.dtype), (dy * (shifted.to(weight.dtype) - 4096)).sum()


class Layer(nn.Module):
    """A linear layer with quantised weights and a learned output scale."""

    def __init__(self, inputs: int, outputs: int, function: type[ScaledLinear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.step = nn.Parameter(torch.tensor(0.1))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, of shape ``[batch, inputs]``."""
        return self.function.apply(x, Quantise.apply(self.weight, self.step), self.scale)


def main() -> None:
    """Train for some steps on a linear target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faulty", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    function = OffsetLinear if given.faulty else ScaledLinear
    model = nn.Sequential(Layer(8, 12, function), nn.Tanh(), Layer(12, 4, function))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    target = torch.randn(8, 4)
    for step in range(given.steps):
        x = torch.randn(16, 8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), x @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
