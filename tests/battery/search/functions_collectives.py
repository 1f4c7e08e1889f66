"""Collectives of tensor and sequence parallelism in the styles found in public code; they run in a world of one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.autograd import Function


def group_size(group):
    return dist.get_world_size(group=group)


def split_last(x, group):
    world = dist.get_world_size(group)
    if world == 1:
        return x
    return x.chunk(world, -1)[dist.get_rank(group)].contiguous()


class CopyToParallelRegion(Function):
    expects = ("input_",)

    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromParallelRegion(Function):
    expects = ("input_",)

    @staticmethod
    def forward(ctx, input_, process_group=None):
        out = input_.clone()
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=process_group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GatherAlongDim(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, dim, group):
        world = group_size(group)
        ctx.dim, ctx.rank, ctx.size = dim, dist.get_rank(group), x.size(dim)
        parts = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx, g):
        return g.narrow(ctx.dim, ctx.rank * ctx.size, ctx.size), None, None


class ScatterToRegion(Function):
    expects = ("tensor",)

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return split_last(tensor, group).clone()

    @staticmethod
    def backward(ctx, g):
        world = dist.get_world_size(ctx.group)
        parts = [torch.empty_like(g) for _ in range(world)]
        dist.all_gather(parts, g.contiguous(), group=ctx.group)
        return torch.cat(parts, -1), None


class ReduceScatterFirst(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, group):
        world = dist.get_world_size(group)
        assert x.size(0) % world == 0, "first dimension must be divisible by the world size"
        ctx.group = group
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out.chunk(world)[dist.get_rank(group)].clone()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, g.contiguous(), group=ctx.group)
        return torch.cat(parts), None


class AllReduceMean(Function):
    expects = ("value",)

    @staticmethod
    def forward(ctx, value):
        out = value.clone()
        dist.all_reduce(out)
        return out / dist.get_world_size()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g / dist.get_world_size()


class BroadcastFrom(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, src, group=None):
        ctx.src, ctx.group = src, group
        if not 0 <= src < dist.get_world_size(group):
            raise ValueError(f"source rank {src} out of range")
        out = x.clone()
        dist.broadcast(out, src, group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.reduce(g, ctx.src, group=ctx.group)
        return g, None, None


class SequenceToHeads(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, group, input, scatter_idx: int, gather_idx: int):
        world = dist.get_world_size(group)
        ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
        assert input.dim() == 4, f"input must be 4D tensor, got {input.dim()}"
        parts = [t.contiguous() for t in torch.tensor_split(input, world, scatter_idx)]
        return torch.cat(parts, gather_idx).clone()

    @staticmethod
    def backward(ctx, *grad_output):
        (g,) = grad_output
        return None, g.clone(), None, None
