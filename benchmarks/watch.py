"""What `pb.watch` costs in the steady state, beside anomaly mode and beside looking at the leaf gradients by hand.

    python benchmarks/watch.py [--rounds 400]

Every way runs in turn, in blocks of a few steps, the order reversed each round; a ratio is the median over the rounds of a way's time over that of
the plain program in the same round. Times are CPU time of the thread, in which forward and backward run.
"""

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import pullback as pb


def mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(16, 32)


def block() -> tuple[nn.Module, torch.Tensor]:
    return nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), torch.randn(4, 16, 64)


def wide() -> tuple[nn.Module, torch.Tensor]:
    return nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True), torch.randn(8, 128, 256)


def stepper(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> tuple[nn.Module, Callable[[], None]]:
    torch.manual_seed(0)
    model, x = make()

    def step() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return model, step


def ways(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> dict[str, Callable[[], None]]:
    _, plain = stepper(make)
    watched, watched_step = stepper(make)
    pb.watch(watched)
    never, never_step = stepper(make)
    pb.watch(never, every=0)
    model, leaf_step = stepper(make)
    _, anomalous_step = stepper(make)

    def leaves() -> None:
        leaf_step()
        norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
        assert math.isfinite(float(norm))

    def anomaly() -> None:
        with torch.autograd.set_detect_anomaly(True):
            anomalous_step()

    return {"plain": plain, "pb.watch": watched_step, "pb.watch(every=0)": never_step, "leaf gradients by hand": leaves, "anomaly mode": anomaly}


def ratios(steps: dict[str, Callable[[], None]], rounds: int, block_of: int) -> tuple[dict[str, float], float]:
    names = list(steps)
    seen: dict[str, list[float]] = {name: [] for name in names}
    for step in steps.values():
        for _ in range(block_of):
            step()
    gc.disable()
    for i in range(rounds):
        for name in names if i % 2 else reversed(names):
            start = time.thread_time()
            for _ in range(block_of):
                steps[name]()
            seen[name].append((time.thread_time() - start) / block_of)
    gc.enable()
    return {name: statistics.median(a / b for a, b in zip(seen[name], seen["plain"], strict=True)) for name in names}, min(seen["plain"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time what watching costs.")
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for title, make, share, block_of in (
        ("MLP, 4 × 32, batch 16", mlp, 1.0, 10),
        ("transformer block, d 64", block, 0.5, 5),
        ("transformer block, d 256", wide, 0.05, 1),
    ):
        found, seconds = ratios(ways(make), max(5, int(rounds * share)), block_of)
        print(f"{title}: {seconds * 1e6:,.0f} µs a step, without watching")
        for name, ratio in found.items():
            if name != "plain":
                print(f"  {name:24} ×{ratio:.2f}")


if __name__ == "__main__":
    main()
