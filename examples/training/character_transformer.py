"""A character transformer, trained once with pullback's ops and once with torch's: the same loss curve, with time and peak memory side by side.

``python examples/training/character_transformer.py [--steps N] [--dropout P]``. The text is made here: sums with their results, ``417+85=502;``,
which a model can learn only by carrying digits. Each of the two trains in a process of its own, so that peak memory (the most that the process ever
held, less what it held before the first step) is its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pullback as pb

ALPHABET = "0123456789+=;"
CODES = {character: i for i, character in enumerate(ALPHABET)}


@dataclass(frozen=True)
class Ops:
    """What the two models do differently.

    Args:
        norm: ``(x, weight)`` to x over its root mean square.
        gate: ``(gate, up)`` to silu(gate) · up.
        loss: ``(x, weight, target)`` to the mean cross-entropy of ``x weightᵀ``.
        dropout: ``(x, p)`` to x with entries set to 0.
    """

    norm: Callable[[Tensor, Tensor], Tensor]
    gate: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    dropout: Callable[[Tensor, float], Tensor]


OPS = {
    "pullback": Ops(
        norm=pb.ops.rms_norm,
        gate=pb.ops.swiglu,
        loss=pb.ops.linear_cross_entropy,
        dropout=pb.ops.dropout,
    ),
    "torch": Ops(
        norm=lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
        gate=lambda gate, up: F.silu(gate) * up,
        loss=lambda x, weight, target: F.cross_entropy(F.linear(x, weight).flatten(0, -2), target.flatten()),
        dropout=F.dropout,
    ),
}


@dataclass(frozen=True)
class Settings:
    """One training."""

    ops: str = "pullback"
    steps: int = 60
    batch: int = 32
    length: int = 96
    width: int = 96
    layers: int = 3
    dropout: float = 0.05
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """What a training gave: the loss of every step, the median time of one in seconds, and peak memory in bytes."""

    losses: list[float]
    seconds: float
    peak: int


class Block(nn.Module):
    """Causal attention and a gated feed-forward layer, each after a norm."""

    def __init__(self, width: int, heads: int, dropout: float, ops: Ops) -> None:
        super().__init__()
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 6 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)
        self.heads, self.dropout, self.ops = heads, dropout, ops

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, of shape ``[batch, time, width]``."""
        batch, length, _ = x.shape
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ops.norm(x, self.norms[0])).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.drop(self.out(mixed))
        gate, up = self.up(self.ops.norm(x, self.norms[1])).chunk(2, -1)
        return x + self.drop(self.down(self.ops.gate(gate, up)))

    def drop(self, x: Tensor) -> Tensor:
        """Dropout, while training."""
        return self.ops.dropout(x, self.dropout) if self.training and self.dropout else x


class Transformer(nn.Module):
    """A language model over the alphabet."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.ops = OPS[settings.ops]
        self.embed = nn.Embedding(len(ALPHABET), settings.width)
        self.position = nn.Parameter(0.02 * torch.randn(settings.length, settings.width))
        self.blocks = nn.ModuleList([Block(settings.width, 4, settings.dropout, self.ops) for _ in range(settings.layers)])
        self.norm = nn.Parameter(torch.ones(settings.width))
        self.head = nn.Parameter(0.02 * torch.randn(len(ALPHABET), settings.width))

    def forward(self, text: Tensor) -> Tensor:
        """Return the mean loss of predicting each character of `text`, ``[batch, time]``, from those before it."""
        x = self.embed(text[:, :-1]) + self.position[: text.shape[1] - 1]
        for block in self.blocks:
            x = block(x)
        return self.ops.loss(self.ops.norm(x, self.norm), self.head, text[:, 1:])


def sums(batch: int, length: int, draw: random.Random) -> Tensor:
    """A batch of texts of sums, one after the other."""
    rows = []
    for _ in range(batch):
        row = ""
        while len(row) < length:
            a, b = draw.randrange(1000), draw.randrange(1000)
            row += f"{a}+{b}={a + b};"
        rows.append([CODES[character] for character in row[:length]])
    return torch.tensor(rows)


def train(settings: Settings) -> Result:
    """Train one model from the seed; the data and the start are the same for both."""
    torch.manual_seed(settings.seed)
    draw = random.Random(settings.seed)
    model = Transformer(settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses, times, before = [], [], most_memory()
    for _ in range(settings.steps):
        text = sums(settings.batch, settings.length, draw)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(text)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return Result(losses, statistics.median(times), most_memory() - before)


def most_memory() -> int:
    """The most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def in_a_process_of_its_own(settings: Settings) -> Result:
    """Train in a new process."""
    command = [sys.executable, __file__, "--settings", json.dumps(asdict(settings))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return Result(**json.loads(run.stdout))


def report(results: dict[str, Result]) -> str:
    """Losses along the way, then time and memory, one column each."""
    names = list(results)
    steps = len(results[names[0]].losses)
    shown = sorted({0, *range(0, steps, max(1, steps // 6)), steps - 1})
    lines = [f"{'step':>8}" + "".join(f"{name:>12}" for name in names)]
    lines += [f"{step:>8}" + "".join(f"{results[name].losses[step]:>12.4f}" for name in names) for step in shown]
    lines.append(f"{'ms/step':>8}" + "".join(f"{1e3 * results[name].seconds:>12.1f}" for name in names))
    lines.append(f"{'MiB peak':>8}" + "".join(f"{results[name].peak / 2**20:>12.1f}" for name in names))
    return "\n".join(lines)


def main() -> None:
    """Train both and print them side by side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    for name, value in asdict(Settings()).items():
        if name != "ops":
            parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args())
    if (text := given.pop("settings")) is not None:
        settings = Settings(**json.loads(text))
        train(replace(settings, steps=1, batch=1, width=8, layers=1))  # what torch loads at its first step is nobody's memory
        print(json.dumps(asdict(train(settings))))
        return
    print(report({name: in_a_process_of_its_own(Settings(ops=name, **given)) for name in OPS}))


if __name__ == "__main__":
    main()
