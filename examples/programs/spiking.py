"""A spiking network whose neurons fire by a step function with a surrogate gradient, trained with activation checkpointing.

``python examples/programs/spiking.py [--faulty] [--steps N]``. The faulty neuron keeps its threshold for backward in a running average that every
forward moves, so that the forward that checkpointing runs a second time gives another result.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def arctan(u: Tensor, threshold: Tensor) -> Tensor:
    """The smooth function whose derivative stands for that of the step."""
    return torch.atan(torch.pi * (u - threshold)) / torch.pi


class Spike(torch.autograd.Function):
    """1 where the membrane potential `u` reaches the threshold, else 0; the gradient is that of an arctan."""

    __pullback__ = {"surrogate": arctan, "reason": "arctan surrogate"}

    @staticmethod
    def level(threshold: Tensor) -> Tensor:
        return threshold

    @staticmethod
    def forward(ctx, u: Tensor, threshold: Tensor) -> Tensor:
        ctx.save_for_backward(u, threshold)
        return (u >= threshold).to(u.dtype)

    @staticmethod
    def backward(ctx, dy: Tensor):
        u, threshold = ctx.saved_tensors
        slope = dy / (1 + (torch.pi * (u - threshold)).square())
        return slope, -slope.sum()


class AdaptiveSpike(Spike):
    """The same with a threshold that each forward moves towards the mean potential: a hidden state that a second forward moves again."""

    __pullback__ = {"surrogate": arctan, "reason": "arctan surrogate"}
    mean = 0.0

    @staticmethod
    def forward(ctx, u: Tensor, threshold: Tensor) -> Tensor:
        AdaptiveSpike.mean = 0.5 * AdaptiveSpike.mean + 0.5 * float(u.detach().mean())
        return Spike.forward(ctx, u, threshold + AdaptiveSpike.mean)

    @staticmethod
    def backward(ctx, dy: Tensor):
        return Spike.backward(ctx, dy)


class Layer(nn.Module):
    """Leaky integrate-and-fire neurons."""

    def __init__(self, inputs: int, neurons: int, function: type[Spike]) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, neurons)
        self.threshold = nn.Parameter(torch.tensor(0.5))
        self.function = function

    def forward(self, spikes: Tensor) -> Tensor:
        """Map spikes ``[time, batch, inputs]`` to spikes ``[time, batch, neurons]``."""
        potential, out = torch.zeros(spikes.shape[1], self.linear.out_features), []
        for now in self.linear(spikes):
            potential = 0.9 * potential + now
            fired = self.function.apply(potential, self.threshold)
            potential = potential - fired * self.threshold.detach()
            out.append(fired)
        return torch.stack(out)


def main() -> None:
    """Train for some steps to tell two rates of spikes apart."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faulty", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    function = AdaptiveSpike if given.faulty else Spike
    layers = nn.ModuleList([Layer(12, 10, function), Layer(10, 8, function)])
    read = nn.Linear(8, 2)
    optimizer = torch.optim.SGD([*layers.parameters(), *read.parameters()], lr=0.1)
    for step in range(given.steps):
        label = torch.randint(2, (6,))
        spikes = (torch.rand(5, 6, 12) < 0.2 + 0.4 * label[:, None]).float()
        for layer in layers:
            spikes = checkpoint(layer, spikes, use_reentrant=False)
        loss = nn.functional.cross_entropy(read(spikes.mean(0)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
