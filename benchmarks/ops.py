"""Every op of pullback.ops against torch's own, torch.compile, the naive composite and a hand-written Function: time, kept bytes and peak memory.

``python benchmarks/ops.py [NAME ...] [--sizes 1e4,1e6,1e7] [--large] [--threads 1] [--rounds 15] [--seconds 3] [--kernels 0|1]
[--no-compile] [--json FILE]``

One process measures with the allocator as it is, another with `pb.ops.tune_allocator()`. In each, all contenders of an op and a copy take turns, the
order reversed every round, on inputs of random sign; a figure is the median of the round's ratios. All contenders compute the same function: the
composites of log-sum-exp and cross-entropy take the maximum off first, without which they overflow. torch.compile takes part where it does the work:
it drops hooks on tensors within, as some composites set them, which shows in the gradient of a cotangent that the hook changes. *ours* is forward
and backward in milliseconds; the columns after it say how many times longer the others take (below 1: faster than ours); *limit* is ours over a
copy of the bytes that must move.
Kept and peak are bytes an element, beyond arguments and output, and beyond what was there. Exits with 1 where ours is slower than 1.05 times the
composite from 1e5 elements up (below, calls are measured and not the work), or keeps more than it says.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import pullback as pb
from pullback.ops.kernels import cpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "tutorial"))
import as_published as tutorial

ops = pb.ops
FEWEST = 5
"""Rounds that are always made."""
Call = Callable[..., Any]


@dataclass
class Entry:
    """One op and what it is compared with.

    Args:
        ours: The op.
        moved: Bytes an element that forward and backward must move at least, in float32; 0 where products take the time.
        composite: Naive plain torch.
        native: torch's own.
        taught: The hand-written Function of the tutorials.
        inputs: From the number of elements to the arguments; those of floating dtype are differentiated.
        kept: Bytes an element that may be kept beyond arguments and output, with kernels and without.
        telling: Makes of a cotangent one in whose gradient all of the op's work shows.
    """

    ours: Call
    moved: float
    composite: Call
    native: Call | None = None
    taught: Call | None = None
    inputs: Callable[[int], tuple[Tensor, ...]] = lambda n: (torch.randn(n),)
    kept: tuple[float, float] = (0, 0)
    telling: Callable[[Tensor], Tensor] = lambda dy: dy


def rows(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(max(1, n // 1000), 1000),)


def with_weight(n: int) -> tuple[Tensor, ...]:
    return (*rows(n), torch.randn(1000))


def classes(n: int) -> tuple[Tensor, ...]:
    (logits,) = rows(n)
    return logits, torch.randint(1000, (len(logits),))


def layer(n: int) -> tuple[Tensor, ...]:
    width = 256
    return torch.randn(max(1, n // width), width), torch.randn(4 * width, width) / 16, torch.randn(4 * width)


def reference(op: Any) -> Call:
    return op.__pullback__["reference"]


def log_sum_exp(x: Tensor) -> Tensor:
    top = x.amax(-1, keepdim=True).detach()
    return torch.log(torch.exp(x - top).sum(-1)) + top[:, 0]


def mean_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return (log_sum_exp(logits) - logits.gather(-1, target[:, None])[:, 0]).mean()


def with_holes(dy: Tensor) -> Tensor:
    """Return a cotangent in which some elements are NaN."""
    return dy.masked_fill(dy > 1, math.nan)


ENTRIES = {
    "swish": Entry(ops.swish, 20, lambda x: x * torch.sigmoid(x), F.silu, tutorial.Swish.apply),
    "gelu_tanh": Entry(
        lambda x: ops.gelu(x, "tanh"),
        20,
        lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "gelu": Entry(ops.gelu, 20, lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067812)), F.gelu),
    "sigmoid": Entry(ops.sigmoid, 20, lambda x: 1 / (1 + torch.exp(-x)), torch.sigmoid, tutorial.Sigmoid.apply),
    "relu": Entry(ops.relu, 20, lambda x: x.clamp(min=0), F.relu, tutorial.MyReLU.apply),
    "scaled_relu": Entry(lambda x: ops.scaled_relu(x, 0.1), 20, lambda x: reference(ops.scaled_relu)(x, 0.1)),
    "guided_relu": Entry(ops.guided_relu, 20, reference(ops.guided_relu), None, tutorial.GuidedReLU.apply),
    "dropout": Entry(
        lambda x: ops.dropout(x, 0.3),
        16,
        lambda x: x * (torch.rand_like(x) >= 0.3) * (1 / 0.7),
        lambda x: F.dropout(x, 0.3),
        lambda x: tutorial.Dropout.apply(x, 0.3),
        kept=(0, 1),
    ),
    "add_noise": Entry(lambda x: ops.add_noise(x, 0.5), 8, lambda x: x + 0.5 * torch.randn_like(x), None, tutorial.RandomOp.apply),
    "exp_scaled": Entry(lambda x: ops.exp_scaled(x, 2.0), 20, lambda x: 2.0 * torch.exp(x), None, lambda x: 2.0 * tutorial.Exp.apply(x)),
    "scale": Entry(lambda x: ops.scale(x, 2.0), 16, lambda x: x * 2.0, None, lambda x: tutorial.ScalarOp.apply(x, 2.0)),
    "muladd": Entry(ops.muladd, 40, lambda w, x, b: w * x + b, None, None, lambda n: (torch.randn(n), torch.randn(n), torch.randn(n))),
    "split": Entry(
        lambda x: ops.split(x, (x.shape[0] // 3, x.shape[0] - x.shape[0] // 3)),
        16,
        lambda x: tuple(part.clone() for part in x.split((x.shape[0] // 3, x.shape[0] - x.shape[0] // 3))),
        None,
        lambda x: tutorial.Split.apply(x, x.shape[0] // 3, 0),
    ),
    "observe": Entry(lambda x: ops.observe(x, lambda what, value: None), 0, lambda x: reference(ops.observe)(x, lambda what, value: None)),
    "round_ste": Entry(ops.round_ste, 8, reference(ops.round_ste)),
    "sign_ste": Entry(ops.sign_ste, 20, reference(ops.sign_ste)),
    "clamp_ste": Entry(lambda x: ops.clamp_ste(x, -1.0, 1.0), 8, lambda x: reference(ops.clamp_ste)(x, -1.0, 1.0)),
    "heaviside": Entry(ops.heaviside, 20, reference(ops.heaviside)),
    "reverse_gradient": Entry(ops.reverse_gradient, 8, reference(ops.reverse_gradient)),
    "scale_gradient": Entry(lambda x: ops.scale_gradient(x, 0.5), 8, lambda x: reference(ops.scale_gradient)(x, 0.5)),
    "clip_gradient": Entry(lambda x: ops.clip_gradient(x, value=0.5), 8, lambda x: reference(ops.clip_gradient)(x, value=0.5)),
    "zero_nan_gradient": Entry(ops.zero_nan_gradient, 8, reference(ops.zero_nan_gradient), telling=with_holes),
    "swiglu": Entry(
        ops.swiglu, 32, lambda g, u: g * torch.sigmoid(g) * u, lambda g, u: F.silu(g) * u, None, lambda n: (torch.randn(n), torch.randn(n)), (0, 0)
    ),
    "rms_norm": Entry(ops.rms_norm, 20, reference(ops.rms_norm), lambda x, w: F.rms_norm(x, (1000,), w, 1e-6), None, with_weight, (0.01, 0.01)),
    "layer_norm": Entry(
        ops.layer_norm,
        20,
        reference(ops.layer_norm),
        lambda x, w, b: F.layer_norm(x, (1000,), w, b),
        None,
        lambda n: (*with_weight(n), torch.randn(1000)),
        (0.01, 0.01),
    ),
    "softmax_cross_entropy": Entry(ops.softmax_cross_entropy, 12, mean_entropy, F.cross_entropy, None, classes, (4, 4)),
    "logsumexp": Entry(ops.logsumexp, 12, log_sum_exp, lambda x: torch.logsumexp(x, -1), None, rows, (0.01, 0.01)),
    "linear_gelu": Entry(
        lambda x, w, b: ops.linear_gelu(x, w, b, "tanh"),
        0,
        lambda x, w, b: reference(ops.linear_gelu)(x, w, b, "tanh"),
        lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
        tutorial.FusedLinearGELU.apply,
        layer,
        (16, 16),
    ),
}


@dataclass
class Row:
    """What was measured of one op at one size. Ratios are others over ours."""

    op: str
    size: int
    tuned: bool
    kernels: bool
    ms: float
    limit: float | None
    ratios: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)


def contenders(entry: Entry, compile: bool) -> dict[str, Call]:
    found = {"ours": entry.ours, "native": entry.native, "composite": entry.composite, "tutorial": entry.taught}
    if compile:
        # what compiles best: torch's own function where there is one
        found["compile"] = torch.compile(entry.native or entry.composite, dynamic=False)
    return {name: call for name, call in found.items() if call is not None}


def agrees(compiled: Call, source: Call, args: tuple[Tensor, ...], xs: list[Tensor], dys: list[Tensor]) -> bool:
    """Whether the compiled function has its source's gradients: the compiler drops hooks on tensors within. Random functions are let through."""
    first, again, other = (torch.autograd.grad(forward(call, args), xs, dys) for call in (source, source, compiled))
    same = all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    return not same or all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in zip(first, other, strict=True))


def leaves(args: tuple[Tensor, ...]) -> list[Tensor]:
    return [arg.requires_grad_() for arg in args if arg.is_floating_point()]


def forward(call: Call, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    out = call(*args)
    return (out,) if isinstance(out, Tensor) else tuple(out)


def once(call: Call, args: tuple[Tensor, ...], xs: list[Tensor], dys: list[Tensor]) -> None:
    torch.autograd.grad(forward(call, args), xs, dys)


def timed(step: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls


def measure(name: str, size: int, tuned: bool, rounds: int, compile: bool, seconds: float = math.inf) -> Row:
    torch.manual_seed(0)
    torch._dynamo.reset()  # else it stops compiling after eight sizes of one function
    entry = ENTRIES[name]
    args = entry.inputs(size)
    xs = leaves(args)
    found = contenders(entry, compile)
    dys = [torch.randn_like(out) for out in forward(entry.ours, args)]
    if "compile" in found and not agrees(found["compile"], entry.native or entry.composite, args, xs, [entry.telling(dy) for dy in dys]):
        del found["compile"]
    steps: dict[str, Callable[[], object]] = {n: lambda call=call: once(call, args, xs, dys) for n, call in found.items()}
    elements = max(x.numel() for x in xs)
    source, target = torch.randn(elements), torch.randn(elements)
    steps["copy"] = lambda: target.copy_(source)
    # Short rounds, of which few are hit by what else the machine does; many of them.
    calls = max(1, min(200, round(5e-4 / min(timed(steps["ours"], 1) for _ in range(3)))))
    rounds = 4 * rounds if calls > 1 else rounds
    for step in steps.values():
        timed(step, 2)
    times: dict[str, list[float]] = {n: [] for n in steps}
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for i in range(rounds):
            if i >= FEWEST and time.perf_counter() - start > seconds:
                break
            for n in list(steps) if i % 2 else reversed(steps):
                times[n].append(timed(steps[n], calls))
    finally:
        gc.enable()
    ours = times["ours"]
    ratios = {n: statistics.median(b / a for a, b in zip(ours, times[n], strict=True)) for n in found if n != "ours"}
    share = entry.moved / 8
    limit = statistics.median(a / (share * c) for a, c in zip(ours, times["copy"], strict=True)) if share and len(xs) else None
    row = Row(name, size, tuned, cpu.loaded(), 1e3 * statistics.median(ours), limit, ratios)
    row.kept = {n: pb.saved(forward(call, args)).extra / elements for n, call in found.items() if n != "compile"}
    return row


def peaks(name: str, size: int) -> dict[str, float]:
    """Bytes an element at the highest point; the allocator has to give memory back at once for this, so it comes last."""
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return {}
    libc.mallopt(-3, 65536)
    torch.manual_seed(0)
    entry = ENTRIES[name]
    args = entry.inputs(size)
    xs = leaves(args)
    dys = [torch.randn_like(out) for out in forward(entry.ours, args)]
    found = {}
    for n, call in contenders(entry, compile=False).items():
        once(call, args, xs, dys)
        gc.collect()
        libc.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        once(call, args, xs, dys)
        found[n] = (status("VmHWM") - before) / max(x.numel() for x in xs)
    return found


def status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def child(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    if options.kernels:
        ops.compile_kernels()
    if options.tuned and not ops.tune_allocator():
        sys.exit("the allocator cannot be tuned here")
    found = []
    for name in options.names:
        for size in options.sizes:
            found.append(measure(name, size, options.tuned, options.rounds, options.compile, options.seconds))
            print(line(found[-1]), file=sys.stderr, flush=True)
    if not options.tuned:
        for row in found:
            try:
                row.peak = peaks(row.op, row.size) if row.size >= 10**6 else {}
            except OSError:  # no /proc, or not ours to write to
                row.peak = {}
    print(json.dumps([asdict(row) for row in found]))


COLUMNS = ("native", "compile", "composite", "tutorial")
HEAD = f"{'op':22}{'size':>7} {'alloc':7}{'ours ms':>9}{'limit':>7}" + "".join(f"{c:>10}" for c in COLUMNS) + f"  {'kept':>16}  {'peak':>20}"


def line(row: Row) -> str:
    ratios = "".join(f"{row.ratios[c]:10.2f}" if c in row.ratios else f"{'–':>10}" for c in COLUMNS)
    limit = f"{row.limit:7.2f}" if row.limit else f"{'–':>7}"
    kept = " / ".join(f"{row.kept[c]:.3g}" for c in ("ours", "native", "composite") if c in row.kept)
    peak = " / ".join(f"{row.peak[c]:.3g}" for c in ("ours", "native", "composite") if c in row.peak)
    return f"{row.op:22}{row.size:7.0e} {'tuned' if row.tuned else 'default':7}{row.ms:9.3f}{limit}{ratios}  {kept:>16}  {peak:>20}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--sizes", default="1e4,1e6,1e7", type=lambda text: [int(float(part)) for part in text.split(",")])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0, help=f"start no further round of an op and size after so many, once {FEWEST} are made")
    parser.add_argument("--kernels", type=int, default=1)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=("default", "tuned"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = options.names or list(ENTRIES)
    options.sizes = [*options.sizes, 10**8] if options.large else options.sizes
    if options.child:
        options.tuned = options.child == "tuned"
        child(options)
        return 0
    found: list[Row] = []
    for kind in ("default", "tuned"):
        command = [sys.executable, __file__, *sys.argv[1:], "--child", kind]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found += [Row(**row) for row in json.loads(run.stdout)]
    found.sort(key=lambda row: (list(ENTRIES).index(row.op), row.size, row.tuned))
    print(HEAD, *map(line, found), sep="\n")
    if options.json:
        options.json.write_text(
            json.dumps({"torch": torch.__version__, "threads": options.threads, "rows": [asdict(row) for row in found]}, indent=1)
        )
    return report(found)


def report(found: list[Row]) -> int:
    """Print where a promise is not kept, and return 1 there."""
    bad = []
    for row in found:
        allowed = ENTRIES[row.op].kept[0 if row.kernels else 1]
        if row.kept["ours"] > allowed + 64 / row.size:
            bad.append(f"{row.op} at {row.size:.0e} keeps {row.kept['ours']:.3g} bytes an element, allowed {allowed}")
        if row.size >= 10**5 and row.ratios["composite"] < 1 / 1.05:
            bad.append(
                f"{row.op} at {row.size:.0e} takes {1 / row.ratios['composite']:.2f} times its composite ({'tuned' if row.tuned else 'default'})"
            )
    print(*bad, sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
