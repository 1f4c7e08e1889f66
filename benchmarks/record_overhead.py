"""What recording costs: one training step of a model of 100 layers with a custom Function each, with and without it.

Steps with and without recording alternate, order reversed every round, so that the machine's moods hit both. Processor time is measured, on one
thread; the ratio is the median over rounds of the ratio of the fastest steps. ``python benchmarks/record_overhead.py``.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import torch

import pullback as pb


class Gate(torch.autograd.Function):
    """x · sigmoid(x), with only x kept."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * (s + x * s * (1 - s))


class Layer(torch.nn.Module):
    """A linear map and the gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map `x`, of shape ``[batch, width]``."""
        return Gate.apply(self.linear(x))


def step_of(layers: int, width: int, batch: int):
    """Return a training step, without arguments."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer(width) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def seconds(step) -> float:
    """Return the time of one step."""
    start = time.process_time()
    step()
    return time.process_time() - start


def measure(step, rounds: int, repeats: int) -> tuple[float, float]:
    """Return the fastest step without recording, in seconds, and the median ratio of one with recording to one without."""
    plain: list[float] = []
    recorded: list[float] = []

    def with_recording() -> None:
        with pb.recording():
            step()
            recorded.append(min(seconds(step) for _ in range(repeats)))

    def without() -> None:
        step()
        plain.append(min(seconds(step) for _ in range(repeats)))

    for i in range(rounds):
        for run in (without, with_recording) if i % 2 else (with_recording, without):
            run()
    return min(plain), statistics.median(b / a for a, b in zip(plain, recorded, strict=True))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    step = step_of(given.layers, given.width, given.batch)
    gc.collect()
    gc.disable()
    plain, ratio = measure(step, given.rounds, given.repeats)
    print(f"a step of {given.layers} layers takes {1e3 * plain:.1f} ms; recorded: ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
