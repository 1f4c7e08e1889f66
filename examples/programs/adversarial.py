"""A domain-adversarial network: features that tell the label and not the domain, by a gradient that is reversed on its way back.

``python examples/programs/adversarial.py [--faulty] [--steps N]``. In the second half of training the weight of the feature extractor is frozen. The
faulty layer then gives its bias no gradient either: it asks about the weight where it should ask about the bias.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn


class ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by -strength (Ganin and Lempitsky, arXiv:1409.7495)."""

    __pullback__ = {"exact": False, "reason": "gradient reversal"}

    @staticmethod
    def forward(ctx, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy: Tensor):
        return -ctx.strength * dy, None


class Affine(torch.autograd.Function):
    """``x @ weight.T + bias``."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return dy @ weight if needs_x else None, dy.t() @ x if needs_weight else None, dy.sum(0) if needs_bias else None


class FrozenAffine(Affine):
    """The same, with the gradient of the bias skipped whenever the weight is frozen."""

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        return dy @ weight if needs_x else None, dy.t() @ x if needs_weight else None, dy.sum(0) if needs_weight else None


class Layer(nn.Module):
    """An affine map with parameters."""

    def __init__(self, inputs: int, outputs: int, function: type[Affine]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, of shape ``[batch, inputs]``."""
        return self.function.apply(x, self.weight, self.bias)


def main() -> None:
    """Train for some steps on two shifted domains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faulty", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    torch.manual_seed(0)
    function = FrozenAffine if given.faulty else Affine
    features, label, domain = Layer(6, 8, function), Layer(8, 2, function), Layer(8, 2, function)
    optimizer = torch.optim.SGD([*features.parameters(), *label.parameters(), *domain.parameters()], lr=0.1)
    for step in range(given.steps):
        features.weight.requires_grad_(step < given.steps // 2)
        where, what = torch.randint(2, (10,)), torch.randint(2, (10,))
        x = torch.randn(10, 6) + where[:, None] + 2 * what[:, None]
        found = torch.tanh(features(x))
        loss = nn.functional.cross_entropy(label(found), what)
        loss = loss + nn.functional.cross_entropy(domain(ReverseGradient.apply(found, 0.5)), where)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
