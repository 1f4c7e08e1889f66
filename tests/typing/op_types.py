"""What type checkers know about ops; pyright and mypy read this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, assert_type

import torch
from torch import Tensor

import pullback as pb
from pullback.authoring.op import Sample


class Pair(NamedTuple):
    a: Tensor
    b: Tensor


@pb.op
def muladd(w: Tensor, x: Tensor, b: float = 0.0) -> Tensor:
    return w * x + b


@muladd.vjp("w")
def _w(dy: Tensor, x: Tensor) -> Tensor:
    return dy * x


@muladd.vjp("x").kernel("cuda")
def _x(dy: Tensor, w: Tensor) -> Tensor:
    return dy * w


@muladd.samples
def _samples() -> Iterator[Sample]:
    yield pb.sample(torch.ones(1), torch.ones(1), b=2.0)


@pb.op(static=("size",), autocast=torch.float32)
def split(x: Tensor, *, size: int) -> Pair:
    return pb.keep(Pair(x[:size], x[size:]), size=size)


class Layer(torch.nn.Module):
    @pb.op
    def twice(self, x: Tensor) -> Tensor:
        return 2 * x

    def forward(self, x: Tensor) -> Tensor:
        return self.twice(x)


x = torch.ones(3)
assert_type(muladd(x, x), Tensor)
assert_type(muladd(x, x=x, b=1.0), Tensor)
assert_type(split(x, size=1), Pair)
assert_type(split(x, size=1).a, Tensor)
assert_type(Layer().twice(x), Tensor)
assert_type(pb.keep(x, z=x), Tensor)

plain: Callable[[Tensor, Tensor], Tensor] = muladd

muladd(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
muladd(x, x, b="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
split(x, 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
muladd.vjp("w", undefined="ones")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pb.check(muladd, x, x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pb.chekc(muladd, (x, x))  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
pb.ops.swisch(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
