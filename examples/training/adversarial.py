"""Domain-adversarial training: features that tell the label and not the domain, by a gradient that is reversed on its way back.

``python examples/training/adversarial.py [--strength X] [--steps N]``. Labels are known in one domain only; the other is shifted. A classifier
trained on the first alone uses the direction of the shift and is wrong in the second; with reversed gradients of a second classifier, which tries
to tell the domains apart, the features lose that direction.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pullback as pb


@dataclass(frozen=True)
class Accuracy:
    """Parts of new points that are told right: labels in the first domain, labels in the second, and domains by their features."""

    known: float
    shifted: float
    domain: float


class Model(nn.Module):
    """Features, a classifier of labels, and one of domains whose gradient is reversed before it reaches the features."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 4))
        self.label = nn.Linear(4, 2)
        self.domain = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
        self.strength = strength

    def forward(self, x: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        """Return logits of label and domain, ``[batch, 2]`` each, for `x`, ``[batch, 6]``."""
        found = self.features(x)
        return self.label(found), self.domain(pb.ops.reverse_gradient(found, strength))


def points(count: int, domain: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points ``[count, 6]`` and labels. In the first domain coordinate 0 tells the label too, in the second it is shifted and tells nothing."""
    label = torch.randint(2, (count,), generator=generator)
    sign = 2.0 * label - 1
    x = torch.randn(count, 6, generator=generator)
    x[:, 1] += 1.5 * sign
    x[:, 2] -= 1.5 * sign
    x[:, 0] += 3 * sign if domain == 0 else 3.0
    return x, label


def train(strength: float, steps: int, seed: int = 0) -> Accuracy:
    """Train with that strength of reversal, which grows from 0; 0 trains on the known labels alone."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Model(strength)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    domains = torch.arange(2).repeat_interleave(64)
    for step in range(steps):
        (known, label), (shifted, _) = points(64, 0, generator), points(64, 1, generator)
        labels, where = model(torch.cat([known, shifted]), strength * min(1.0, 2 * step / steps))
        loss = F.cross_entropy(labels[:64], label) + F.cross_entropy(where, domains)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return measure(model, generator)


def measure(model: Model, generator: torch.Generator) -> Accuracy:
    """Accuracies on new points."""
    right = []
    told = []
    with torch.no_grad():
        for domain in (0, 1):
            x, label = points(1000, domain, generator)
            labels, where = model(x, 0.0)
            right.append((labels.argmax(1) == label).float().mean().item())
            told.append((where.argmax(1) == domain).float().mean().item())
    return Accuracy(right[0], right[1], sum(told) / 2)


def main() -> None:
    """Train without reversal and with it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    print(f"{'reversal':>10}{'known domain':>16}{'shifted domain':>16}{'domain told':>14}")
    for strength in (0.0, given.strength):
        found = train(strength, given.steps)
        print(f"{strength:>10}{found.known:>16.1%}{found.shifted:>16.1%}{found.domain:>14.1%}")


if __name__ == "__main__":
    main()
