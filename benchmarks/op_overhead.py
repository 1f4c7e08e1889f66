"""Per-call overhead of `pb.op` against the best hand-written forms of the same op, on tiny tensors.

All entries of a table run alternately in one process, the order reversed every round, garbage collection off; a ratio is the median over rounds of
that round's ratio. Run it by hand: ``python benchmarks/op_overhead.py [--rounds 60]``. It exits with 1 where a ratio is over its limit.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

import pullback as pb

Tensor = torch.Tensor
torch.set_num_threads(1)


@pb.op
def sin(x):
    return torch.sin(x)


@sin.vjp("x")
def _(dy, x):
    return dy * torch.cos(x)


@pb.op
def scaled(x, scale=1.0, shift=0.0):
    return torch.sin(x)


@scaled.vjp("x")
def _(dy, x):
    return dy * torch.cos(x)


class CtxSin(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.cos(x)


class SetupSin(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.cos(x)


@torch.library.custom_op("pullback_benchmark::sin", mutates_args=())
def library_sin(x: Tensor) -> Tensor:
    return torch.sin(x)


library_sin.register_autograd(
    lambda ctx, dy: dy * torch.cos(ctx.saved_tensors[0]), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])
)


@pb.op
def muladd(w, x, b):
    return w * x + b


@muladd.vjp("w")
def _(dy, x):
    return dy * x


@muladd.vjp("x")
def _(dy, w):
    return dy * w


@muladd.vjp("b")
def _(dy):
    return dy


class CtxMuladd(Function):
    @staticmethod
    def forward(ctx, w, x, b):
        ctx.save_for_backward(w if ctx.needs_input_grad[1] else None, x if ctx.needs_input_grad[0] else None)
        return w * x + b

    @staticmethod
    def backward(ctx, dy):
        w, x = ctx.saved_tensors
        need_w, need_x, need_b = ctx.needs_input_grad
        return dy * x if need_w else None, dy * w if need_x else None, dy if need_b else None


class SetupMuladd(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(w, x, b):
        return w * x + b

    @staticmethod
    def setup_context(ctx, inputs, output):
        w, x, _ = inputs
        ctx.save_for_backward(w if ctx.needs_input_grad[1] else None, x if ctx.needs_input_grad[0] else None)

    @staticmethod
    def backward(ctx, dy):
        return CtxMuladd.backward(ctx, dy)


@torch.library.custom_op("pullback_benchmark::muladd", mutates_args=())
def library_muladd(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
    return w * x + b


library_muladd.register_autograd(
    lambda ctx, dy: CtxMuladd.backward(ctx, dy),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(
        inputs[0] if ctx.needs_input_grad[1] else None, inputs[1] if ctx.needs_input_grad[0] else None
    ),
)


@pb.op
def sin_all(*xs):
    return tuple([torch.sin(x) for x in xs])


@sin_all.vjp("xs")
def _(dys, xs):
    return tuple([dy * torch.cos(x) for dy, x in zip(dys, xs, strict=True)])


class CtxSinAll(Function):
    @staticmethod
    def forward(ctx, *xs):
        ctx.save_for_backward(*xs)
        return tuple([torch.sin(x) for x in xs])

    @staticmethod
    def backward(ctx, *dys):
        return tuple([dy * torch.cos(x) for dy, x in zip(dys, ctx.saved_tensors, strict=True)])


class SetupSinAll(Function):
    @staticmethod
    def forward(*xs):
        return tuple([torch.sin(x) for x in xs])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *dys):
        return CtxSinAll.backward(ctx, *dys)


def seconds(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def interleaved(calls: dict[str, Callable[[], Any]], rounds: int, count: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The least time of each call, and all of them."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        seconds(call, 3 * count)
    gc.disable()
    for i in range(rounds):
        for name in list(calls) if i % 2 else reversed(calls):
            found[name].append(seconds(calls[name], count))
    gc.enable()
    return {name: min(times) for name, times in found.items()}, found


def ratio(found: dict[str, list[float]], ours: str, other: str) -> float:
    return statistics.median(a / b for a, b in zip(found[ours], found[other], strict=True))


def chain(op: Callable[..., Tensor], *args: Any) -> Callable[[], None]:
    """A forward and backward of one call, driven by a ready cotangent."""
    dy = torch.ones(4)

    def run() -> None:
        y = op(*args)
        torch.autograd.backward((y,), (dy,))

    return run


def many(op: Callable[..., Any], xs: list[Tensor]) -> Callable[[], None]:
    dys = tuple(torch.ones(4) for _ in xs)

    def run() -> None:
        torch.autograd.backward(op(*xs), dys)

    return run


def tables(rounds: int) -> list[tuple[str, str, float, float]]:
    x = torch.randn(4, requires_grad=True)
    plain = torch.randn(4)
    w, b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    rows: list[tuple[str, str, float, float]] = []

    def table(title: str, calls: dict[str, Callable[[], Any]], limits: dict[str, float], count: int) -> None:
        least, found = interleaved(calls, rounds, count)
        print(f"\n{title}")
        for name, value in least.items():
            print(f"  {name:34s} {value * 1e6:8.2f} us")
        for name, limit in limits.items():
            value = ratio(found, "pb.op", name)
            rows.append((title, name, value, limit))
            print(f"  pb.op / {name:26s} {value:8.3f}   limit {limit:.2f}   {'' if value <= limit else 'OVER'}")

    three = {"ctx-style Function": 0.9, "setup_context Function": 0.35, "custom_op + register_autograd": 0.35}
    both = {"ctx-style Function": 1.0, "setup_context Function": 0.70, "custom_op + register_autograd": 0.70}
    sins = {"pb.op": sin, "ctx-style Function": CtxSin.apply, "setup_context Function": SetupSin.apply, "custom_op + register_autograd": library_sin}
    muls = {
        "pb.op": muladd,
        "ctx-style Function": CtxMuladd.apply,
        "setup_context Function": SetupMuladd.apply,
        "custom_op + register_autograd": library_muladd,
    }
    table("forward, sin of 4 floats", {name: lambda f=f: f(x) for name, f in sins.items()}, three, 2000)
    table("forward + backward, sin of 4 floats", {name: chain(f, x) for name, f in sins.items()}, both, 1000)
    table("forward, muladd of 4 floats", {name: lambda f=f: f(w, x, b) for name, f in muls.items()}, {"ctx-style Function": 1.0}, 2000)
    table("forward + backward, muladd of 4 floats", {name: chain(f, w, x, b) for name, f in muls.items()}, both, 1000)
    table(
        "no gradient wanted, sin",
        {"pb.op": lambda: sin(plain), "setup_context Function": lambda: SetupSin.apply(plain), "torch.sin": lambda: torch.sin(plain)},
        {"setup_context Function": 0.12},
        5000,
    )
    table(
        "two keywords and a default", {"pb.op": lambda: scaled(x=x, scale=1.0), "positional": lambda: scaled(x, 1.0, 0.0)}, {"positional": 1.1}, 2000
    )
    xs = [torch.randn(4, requires_grad=True) for _ in range(100)]
    alls = {"pb.op": sin_all, "ctx-style Function": CtxSinAll.apply, "setup_context Function": SetupSinAll.apply}
    table("100 in, 100 out, forward", {name: lambda f=f: f(*xs) for name, f in alls.items()}, {"ctx-style Function": 1.0}, 50)
    table("100 in, 100 out, forward + backward", {name: many(f, xs) for name, f in alls.items()}, {"ctx-style Function": 1.0}, 30)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rows = tables(parser.parse_args().rounds)
    over = [row for row in rows if row[2] > row[3]]
    print(f"\n{len(rows) - len(over)} of {len(rows)} ratios within their limits")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
