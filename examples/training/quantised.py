"""Training for a few bits: weights and activations of two or three bits, with learned step sizes, against rounding after training.

``python examples/training/quantised.py [--bits N] [--steps N]``. A small network learns a smooth map in full precision. Rounded to few bits
afterwards it is wrong; trained on with the rounding in place (straight-through gradients, LSQ's for the step sizes) it finds weights for which it
is right.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pullback as pb


class Quantised(nn.Module):
    """A linear layer whose weights and inputs have few levels, with a step size for each row of weights and one for the inputs.

    Args:
        linear: The layer in full precision.
        inputs: Inputs that the layer sees, ``[batch, in]``, from which its first step sizes are taken.
        bits: For weights and inputs alike.
    """

    def __init__(self, linear: nn.Linear, inputs: Tensor, bits: int) -> None:
        super().__init__()
        self.linear = linear
        self.high = 2 ** (bits - 1) - 1
        self.weight_step = nn.Parameter(2 * linear.weight.detach().abs().mean(1) / self.high**0.5)
        self.input_step = nn.Parameter(2 * inputs.detach().abs().mean() / self.high**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, ``[batch, in]``, to ``[batch, out]``."""
        weight = pb.ops.fake_quantize(self.linear.weight, self.weight_step, -self.high - 1, self.high, axis=0, gradient_scale="lsq")
        x = pb.ops.fake_quantize(x, self.input_step, -self.high - 1, self.high, gradient_scale="lsq")
        return F.linear(x, weight, self.linear.bias)


@dataclass(frozen=True)
class Result:
    """Mean squared errors on new data."""

    full: float
    rounded: float
    trained: float


def data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points ``[count, 4]`` and what is to be learnt of them, ``[count, 2]``."""
    x = torch.rand(count, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return x, torch.stack([torch.sin(3 * x[:, 0]) * x[:, 1], x[:, 2] * x[:, 3] + x[:, 0]], 1)


def fit(model: nn.Module, steps: int, lr: float) -> nn.Module:
    """Train `model` on the whole of the data."""
    x, y = data(512, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def quantised(model: nn.Sequential, bits: int) -> nn.Sequential:
    """A copy of `model` whose linear layers, but the last, are quantised."""
    x, layers = data(512, seed=1)[0], []
    for i, layer in enumerate(copy.deepcopy(model)):
        layers.append(Quantised(layer, x, bits) if isinstance(layer, nn.Linear) and i + 1 < len(model) else layer)
        x = layer(x).detach()
    return nn.Sequential(*layers)


def error(model: nn.Module) -> float:
    """The mean squared error on new data."""
    x, y = data(512, seed=2)
    with torch.no_grad():
        return F.mse_loss(model(x), y).item()


def compare(bits: int, steps: int, seed: int = 0) -> Result:
    """Train in full precision, round, and train on with the rounding in place."""
    torch.manual_seed(seed)
    full = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
    fit(full, steps, lr=1e-2)
    rounded = quantised(full, bits)
    before = error(rounded)
    return Result(error(full), before, error(fit(rounded, steps, lr=3e-3)))


def main() -> None:
    """Print the three errors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    found = compare(given.bits, given.steps)
    print("mean squared error on new data")
    print(f"{'full precision':>32}{found.full:>10.4f}")
    print(f"{f'rounded to {given.bits} bits':>32}{found.rounded:>10.4f}")
    print(f"{f'trained with {given.bits} bits':>32}{found.trained:>10.4f}")


if __name__ == "__main__":
    main()
