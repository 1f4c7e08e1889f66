"""What each process of the tests of collectives runs: every op against the derivative of all processes' computation in one."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import pullback as pb


def tensors(size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, 8, generator=generator, dtype=torch.float64) for _ in range(size)]


def together(name: str, xs: list[Tensor], dim: int = 0) -> list[Tensor]:
    """What the op returns in each process, computed in one."""
    size = len(xs)
    if name in ("all_reduce", "reduce_from_group"):
        return [torch.stack(xs).sum(0) for _ in range(size)]
    if name == "mean":
        return [torch.stack(xs).mean(0) for _ in range(size)]
    if name == "all_gather":
        return [torch.cat(xs, dim) for _ in range(size)]
    return list(torch.stack(xs).sum(0).chunk(size, dim))


def loss(y: Tensor, rank: int) -> Tensor:
    return ((rank + 1) * y + 0.3 * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape)).sin().sum()


def call(name: str, x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    if name == "mean":
        return pb.ops.all_reduce(x, "mean", group)
    if name in ("all_gather", "reduce_scatter"):
        return getattr(pb.ops, name)(x, dim, group)
    return getattr(pb.ops, name)(x, group=group)


def check_losses_of_their_own(rank: int, size: int) -> None:
    """Each process has a loss; the gradient is that of their sum, of first and second order, in reverse and forward mode."""
    for name in ("all_reduce", "mean", "all_gather", "reduce_scatter"):
        for dim in (0, -1) if "gather" in name or "scatter" in name else (0,):
            xs = [x.requires_grad_() for x in tensors(size)]
            ys = together(name, xs, dim)
            want = torch.autograd.grad(sum(loss(y, r) for r, y in enumerate(ys)), xs, create_graph=True)
            second = torch.autograd.grad(sum((w.sin()).sum() for w in want), xs)
            own = tensors(size)[rank].requires_grad_()
            y = call(name, own, dim)
            torch.testing.assert_close(y, ys[rank])
            (got,) = torch.autograd.grad(loss(y, rank), own, create_graph=True)
            torch.testing.assert_close(got, want[rank])
            torch.testing.assert_close(torch.autograd.grad(got.sin().sum(), own)[0], second[rank])
            (by_func,) = torch.func.vjp(lambda x, name=name, dim=dim: call(name, x, dim), own.detach())[1](torch.ones_like(y))
            torch.testing.assert_close(by_func, torch.autograd.grad(call(name, own, dim).sum(), own)[0])
            tangent = torch.func.jvp(lambda x, name=name, dim=dim: call(name, x, dim), (own.detach(),), (own.detach().cos(),))[1]
            torch.testing.assert_close(tangent, together(name, [x.cos() for x in tensors(size)], dim)[rank])


def check_examples_of_a_batch(rank: int, size: int) -> None:
    for name in ("all_reduce", "all_gather", "reduce_scatter", "reduce_from_group", "copy_to_group"):
        rows = torch.stack([tensors(size)[rank], 2 * tensors(size)[rank]], 1)
        for dim in (0, -1):
            got = torch.vmap(lambda x, name=name, dim=dim: call(name, x, dim), in_dims=1)(rows)
            torch.testing.assert_close(got, torch.stack([call(name, row, dim) for row in rows.unbind(1)]))
            grads = torch.vmap(torch.func.grad(lambda x, name=name, dim=dim: call(name, x, dim).sin().sum()), in_dims=1)(rows)
            want = [torch.func.grad(lambda x, name=name, dim=dim: call(name, x, dim).sin().sum())(row) for row in rows.unbind(1)]
            torch.testing.assert_close(grads, torch.stack(want))


def check_tensor_parallel_layer(rank: int, size: int) -> None:
    """Two linear layers, the first cut by columns, the second by rows: gradients equal those of the whole layers in one process."""
    generator = torch.Generator().manual_seed(4)
    first, second, x = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((8, 4), (3, 8), (5, 4)))
    whole = [t.clone().requires_grad_() for t in (first, second, x)]
    (whole[2] @ whole[0].T).tanh().matmul(whole[1].T).sin().sum().backward()
    mine = first.chunk(size, 0)[rank].clone().requires_grad_(), second.chunk(size, 1)[rank].clone().requires_grad_(), x.clone().requires_grad_()
    hidden = (pb.ops.copy_to_group(mine[2]) @ mine[0].T).tanh()
    pb.ops.reduce_from_group(hidden @ mine[1].T).sin().sum().backward()
    torch.testing.assert_close(mine[0].grad, whole[0].grad.chunk(size, 0)[rank])
    torch.testing.assert_close(mine[1].grad, whole[1].grad.chunk(size, 1)[rank])
    torch.testing.assert_close(mine[2].grad, whole[2].grad)


def check_every_dtype_and_layout(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        for name in ("all_reduce", "all_gather", "reduce_scatter"):
            xs = [(4 * x).round().to(dtype) for x in tensors(size)]
            for layout in (lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x.repeat_interleave(2, 1)[:, ::2]):
                y = call(name, layout(xs[rank]))
                assert y.dtype is dtype
                torch.testing.assert_close(y, together(name, xs)[rank])
    assert pb.ops.all_reduce(torch.empty(0, 3)).shape == (0, 3)
    assert pb.ops.all_gather(torch.empty(0, 3)).shape == (0, 3)
    assert pb.ops.reduce_scatter(torch.empty(size, 0)).shape == (1, 0)


def check_groups(rank: int, size: int) -> None:
    groups = [dist.new_group([r]) for r in range(size)]
    x = torch.ones(2, requires_grad=True)
    pb.ops.all_reduce(x, group=groups[rank]).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises((RuntimeError, TypeError), match="all_reduce: "):
        pb.ops.all_reduce(x, group=groups[(rank + 1) % size])
    with pytest.raises(ValueError, match=f"x has {size + 1} elements along dim 0, which {size} processes cannot share equally"):
        pb.ops.reduce_scatter(torch.ones(size + 1))


CHECKS = {
    "losses of their own": check_losses_of_their_own,
    "a batch": check_examples_of_a_batch,
    "tensor parallel": check_tensor_parallel_layer,
    "dtypes and layouts": check_every_dtype_and_layout,
    "groups": check_groups,
}


def work(rank: int, size: int, folder: str, queue: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", size), rank=rank, world_size=size)
    found = {}
    for name, check in CHECKS.items():
        try:
            check(rank, size)
            found[name] = "right"
        except Exception:
            found[name] = traceback.format_exc()
            break
    queue.put((rank, found))
    dist.destroy_process_group()
