"""Elementwise ops on a CUDA device: bandwidth against the measured copy rate, time against torch and torch.compile.

``python benchmarks/classics_gpu.py [--seconds 40] [--no-compile] [--device cpu --tiny]``

Read as the table of fused_gpu.py. Dropout moves half as much as its composite: its mask comes from a seed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

import pullback as pb

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fused_gpu import copy_rate, forward_backward, medians, peak

# name: ours, torch's, how often a tensor of that size must move in forward and backward
OPS = {
    "swish beta=1.5": (lambda x: pb.ops.swish(x, 1.5), lambda x: x * torch.sigmoid(1.5 * x), 5),
    "swish": (pb.ops.swish, F.silu, 5),
    "gelu tanh": (lambda x: pb.ops.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh"), 5),
    "dropout": (lambda x: pb.ops.dropout(x, 0.3), lambda x: F.dropout(x, 0.3), 4),
    "relu": (pb.ops.relu, F.relu, 5),
    "guided_relu": (pb.ops.guided_relu, F.relu, 5),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    given = parser.parse_args()
    rate = copy_rate(given.device, given.tiny)
    print(f"copy: {rate / 1e9:.0f} GB/s")
    sizes = (1 << 12,) if given.tiny else (1 << 24, 1 << 27)
    for name, (ours, plain, passes) in OPS.items():
        for size in sizes:
            x = torch.randn(size, device=given.device).requires_grad_()
            dy = torch.randn_like(x)
            steps = {"ours": forward_backward(ours, [x], dy), "torch": forward_backward(plain, [x], dy)}
            if not given.no_compile:
                steps["compile"] = forward_backward(torch.compile(plain), [x], dy)
            times = medians(steps, given.device, given.seconds / len(OPS) / len(sizes))
            share = passes * x.nbytes / times["ours"] / rate
            others = "  ".join(f"{other} {times[other] / times['ours']:.2f}x" for other in times if other != "ours")
            peaked = peak(steps["ours"], given.device)
            print(f"{name:16}{size:>12}  ours {1e3 * times['ours']:.3f} ms  of copy {share:.0%}  {others}  peak {peaked:.0f} MiB")


if __name__ == "__main__":
    main()
