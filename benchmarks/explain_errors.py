"""What running under `pb.explain_errors` costs a right program, beside the same program alone.

    python benchmarks/explain_errors.py [--rounds 30]

Blocks of steps run in turn with and without it, the order reversed each round, after some steps that warm up; a ratio is the median over the rounds,
of the CPU time of the thread.
"""

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import pullback as pb

WARM, STEPS = 20, 100


def adam() -> Callable[[], None]:
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.ReLU())])
    optimizer, x = torch.optim.Adam(model.parameters(), 1e-3), torch.randn(16, 32)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def in_place() -> Callable[[], None]:
    x, w = torch.randn(16, 32), torch.randn(32, 32, requires_grad=True)

    def step() -> None:
        y = x @ w
        for _ in range(10):
            y = y.clone()
            y.mul_(0.5)
            y[0] += 1
            y.relu_()
        w.grad = None
        y.mean().backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)

    return step


def block() -> Callable[[], None]:
    model, x = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(4, 16, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], context: contextlib.AbstractContextManager[object]) -> float:
    with context:
        for _ in range(WARM):
            step()
        start = time.thread_time()
        for _ in range(STEPS):
            step()
        return (time.thread_time() - start) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description="Time what explaining errors costs where there are none.")
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for title, make in (
        ("MLP, 4 × 32, batch 16, Adam", adam),
        ("transformer block, d 64, SGD", block),
        ("40 writes in place a step on 16 × 32", in_place),
    ):
        step, ratios, best = make(), [], float("inf")
        gc.disable()
        for i in range(rounds):
            contexts = {"plain": contextlib.nullcontext(), "explained": pb.explain_errors()}
            times = {name: seconds(step, contexts[name]) for name in (contexts if i % 2 else reversed(contexts))}
            ratios.append(times["explained"] / times["plain"])
            best = min(best, times["plain"])
        gc.enable()
        print(f"{title:40}{best * 1e6:>8,.0f} µs a step   ×{statistics.median(ratios):.2f}")
    start = time.thread_time()
    with pb.explain_errors():
        pass
    print(f"entering and leaving once: {(time.thread_time() - start) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
