"""A spiking network that learns in which order two bursts come, by a step function with a surrogate gradient.

``python examples/training/spiking.py [--surrogate NAME] [--steps N]``. Rates say nothing here: every pattern has the same spikes on average, only
their order tells the classes apart, so the neurons have to remember. A fixed step function without a surrogate learns nothing, which the last
column shows.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pullback as pb

TIME, INPUTS = 16, 20


class Leaky(nn.Module):
    """Leaky integrate-and-fire neurons: a potential that decays, a spike where it reaches 1, which it then gives off."""

    def __init__(self, inputs: int, neurons: int, surrogate: str) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, neurons)
        self.decay = nn.Parameter(torch.full((neurons,), 2.0))
        self.surrogate = surrogate

    def forward(self, spikes: Tensor) -> Tensor:
        """Map spikes ``[time, batch, inputs]`` to spikes ``[time, batch, neurons]``."""
        potential, fired = torch.zeros(spikes.shape[1], self.linear.out_features), []
        for current in self.linear(spikes):
            potential = torch.sigmoid(self.decay) * potential + current
            fired.append(self.fire(potential - 1))
            potential = potential - fired[-1]
        return torch.stack(fired)

    def fire(self, above: Tensor) -> Tensor:
        """1 where the potential is at the threshold or above."""
        return (above >= 0).to(above.dtype) if self.surrogate == "none" else pb.ops.heaviside(above, self.surrogate)


class Network(nn.Module):
    """A layer of spiking neurons, and a readout of how often they fired."""

    def __init__(self, surrogate: str, neurons: int = 40) -> None:
        super().__init__()
        self.hidden = Leaky(INPUTS, neurons, surrogate)
        self.read = nn.Linear(neurons, 2)

    def forward(self, spikes: Tensor) -> Tensor:
        """Return logits ``[batch, 2]`` for spikes ``[time, batch, inputs]``."""
        return self.read(self.hidden(spikes).mean(0))


def bursts(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Spikes ``[time, batch, inputs]`` of two groups of inputs that fire one after the other, and which came first."""
    label = torch.randint(2, (batch,), generator=generator)
    rates = torch.full((TIME, 2, INPUTS), 0.02)
    early, late, half = slice(0, TIME // 2), slice(TIME // 2, TIME), INPUTS // 2
    rates[early, 0, :half] = rates[late, 0, half:] = rates[late, 1, :half] = rates[early, 1, half:] = 0.3
    return (torch.rand(TIME, batch, INPUTS, generator=generator) < rates[:, label]).float(), label


def train(surrogate: str, steps: int, batch: int = 64, seed: int = 0) -> tuple[list[float], float]:
    """Return the losses, and the accuracy on new patterns."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, losses = Network(surrogate), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        spikes, label = bursts(batch, generator)
        loss = F.cross_entropy(model(spikes), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    spikes, label = bursts(512, generator)
    with torch.no_grad():
        return losses, (model(spikes).argmax(1) == label).float().mean().item()


def main() -> None:
    """Train with a surrogate and without one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--surrogate", choices=["arctan", "fast_sigmoid", "triangle"], default="arctan")
    parser.add_argument("--steps", type=int, default=120)
    given = parser.parse_args()
    results = {name: train(name, given.steps) for name in (given.surrogate, "none")}
    print(f"{'step':>8}" + "".join(f"{name:>14}" for name in results))
    for step in range(0, given.steps, max(1, given.steps // 6)):
        print(f"{step:>8}" + "".join(f"{losses[step]:>14.4f}" for losses, _ in results.values()))
    print(f"{'right':>8}" + "".join(f"{accuracy:>14.1%}" for _, accuracy in results.values()))


if __name__ == "__main__":
    main()
