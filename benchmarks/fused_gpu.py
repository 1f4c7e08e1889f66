"""Norms and losses on a CUDA device: bandwidth against the measured copy rate, time against torch, torch.compile and Liger's ops.

``python benchmarks/fused_gpu.py [--seconds 100] [--no-compile] [--device cpu --tiny]``

Everything of one op runs alternately in one process; times are medians. *of copy* is the share of the measured rate of a copy, for the bytes that the
op must move in forward and backward at least. Peak memory is what forward and backward allocate beyond what was there before.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import pullback as pb

Step = Callable[[], object]


@dataclass
class Task:
    """One op at one size.

    Args:
        name: What is printed.
        ours: Forward and backward by pullback.
        others: The same by others, by name.
        moved: Bytes that must move, or None where a matrix product takes the time.
    """

    name: str
    ours: Step
    others: dict[str, Step]
    moved: int | None


def timed(step: Step, device: str) -> float:
    """Seconds of one call."""
    if device == "cpu":
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def medians(steps: dict[str, Step], device: str, seconds: float) -> dict[str, float]:
    """The median time of each step, all in turn, within about `seconds`."""
    for step in steps.values():
        step()
    found: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(found.values()):
        for name, step in steps.items():
            found[name].append(timed(step, device))
    return {name: statistics.median(values) for name, values in found.items()}


def peak(step: Step, device: str) -> float:
    """MiB allocated during a call beyond what was there."""
    if device == "cpu":
        return float("nan")
    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def forward_backward(function: Callable[..., Tensor], leaves: list[Tensor], dy: Tensor | None = None) -> Step:
    return lambda: torch.autograd.grad(function(*leaves), leaves, dy)


def tasks(device: str, tiny: bool, compiled: bool) -> list[Task]:
    """The ops at their sizes."""
    torch.manual_seed(0)
    rows, width, classes, inner = (64, 64, 100, 32) if tiny else (16384, 4096, 32000, 2048)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()

    def others(plain: Callable[..., Tensor], leaves: list[Tensor], dy: Tensor | None, liger: Callable[..., Tensor] | None = None) -> dict[str, Step]:
        found = {"torch": forward_backward(plain, leaves, dy)}
        if compiled:
            found["compile"] = forward_backward(torch.compile(plain), leaves, dy)
        if liger is not None:
            found["liger"] = forward_backward(liger, leaves, dy)
        return found

    size = torch.empty((), dtype=dtype).element_size()
    x, weight, dy = leaf(rows, width), leaf(width), torch.randn(rows, width, device=device, dtype=dtype)
    norm = [x, weight]
    found = [
        Task(
            f"rms_norm {rows} x {width}",
            forward_backward(lambda x, w: pb.ops.rms_norm(x, w, 1e-6), norm, dy),
            others(lambda x, w: F.rms_norm(x, (width,), w, 1e-6), norm, dy, liger_norm()),
            5 * rows * width * size,
        )
    ]
    gated, dy = [leaf(rows, width), leaf(rows, width)], torch.randn(rows, width, device=device, dtype=dtype)
    found.append(
        Task(
            f"swiglu {rows} x {width}",
            forward_backward(pb.ops.swiglu, gated, dy),
            others(lambda g, u: F.silu(g) * u, gated, dy, liger_gate()),
            8 * rows * width * size,
        )
    )
    for v in (classes,) if tiny else (classes, 4 * classes):
        n = rows // 4
        logits, target = leaf(n, v), torch.randint(v, (n,), device=device)
        found.append(
            Task(
                f"softmax_cross_entropy {n} x {v}",
                forward_backward(lambda z, t=target: pb.ops.softmax_cross_entropy(z, t), [logits]),
                others(lambda z, t=target: F.cross_entropy(z, t), [logits], None),
                3 * n * v * size,
            )
        )
        h, head = leaf(n, inner), leaf(v, inner)
        found.append(
            Task(
                f"linear_cross_entropy {n} x {inner} -> {v}",
                forward_backward(lambda h, w, t=target: pb.ops.linear_cross_entropy(h, w, t), [h, head]),
                others(lambda h, w, t=target: F.cross_entropy(F.linear(h, w), t), [h, head], None, liger_loss(target)),
                None,
            )
        )
    return found


def liger_norm() -> Callable[..., Tensor] | None:
    """Liger's norm, if it is installed."""
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # type: ignore[import-not-found]

    return lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)


def liger_gate() -> Callable[..., Tensor] | None:
    """Liger's gated unit, if it is installed."""
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction  # type: ignore[import-not-found]

    return LigerSiLUMulFunction.apply


def liger_loss(target: Tensor) -> Callable[..., Tensor] | None:
    """Liger's fused loss, if it is installed."""
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy  # type: ignore[import-not-found]

    return lambda h, w: liger_fused_linear_cross_entropy(h, w, target)


def copy_rate(device: str, tiny: bool) -> float:
    """Bytes a second of a copy, read and written."""
    source = torch.empty(1 << (16 if tiny else 28), device=device, dtype=torch.float32)
    goal = torch.empty_like(source)
    times = medians({"copy": lambda: goal.copy_(source)}, device, 0.2 if tiny else 2.0)
    return 2 * source.nbytes / times["copy"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    given = parser.parse_args()
    rate = copy_rate(given.device, given.tiny)
    print(f"copy: {rate / 1e9:.0f} GB/s")
    for task in (todo := tasks(given.device, given.tiny, not given.no_compile)):
        steps = {"pullback": task.ours, **task.others}
        times = medians(steps, given.device, given.seconds / 2 / len(todo))
        share = f", {task.moved / times['pullback'] / rate:.0%} of copy" if task.moved else ""
        print(f"{task.name}: pullback {times['pullback'] * 1e3:.3f} ms{share}, peak {peak(task.ours, given.device):.0f} MiB")
        for name, step in task.others.items():
            ratio = times["pullback"] / times[name]
            print(f"    {name}: {times[name] * 1e3:.3f} ms, pullback takes {ratio:.2f} of it; peak {peak(step, given.device):.0f} MiB")


if __name__ == "__main__":
    main()
