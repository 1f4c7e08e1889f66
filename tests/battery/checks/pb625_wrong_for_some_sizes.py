"""Kills and spares of PB625."""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class LastChunkOnly(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_w = torch.zeros_like(w)
        for i in range(0, len(x), 32):
            grad_w = x[i : i + 32].t() @ dy[i : i + 32]
        return dy @ w.t(), grad_w


class ForgetsTail(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        whole = x.shape[0] // 2 * 2
        return dy @ w.t(), x[:whole].t() @ dy[:whole]


class OneRowCrashes(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        x, dy = x.squeeze(), dy.squeeze()
        return dy @ w.t(), x.t() @ dy if x.dim() == 2 else x @ dy


class WrapsAt16Bits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        inverse = order.argsort().numpy()
        start = inverse.astype(np.int16) * np.int16(dy.shape[1])
        where = torch.from_numpy(start.astype(np.int64) % dy.numel())[:, None] + torch.arange(dy.shape[1])
        return dy.detach().reshape(-1)[where], None


class Gathers(WrapsAt16Bits):
    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return dy[order.argsort()], None


class SquaresBlocks(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        grad = torch.zeros_like(x)
        grad[..., :1024] = 2 * x[..., :1024] * dy[..., :1024]
        return grad


class SquaresAll(SquaresBlocks):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


class Reshapes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, heads):
        ctx.heads = heads
        return x.view(x.shape[0], heads, -1).cumsum(1)

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(1).cumsum(1).flip(1).reshape(dy.shape[0], -1), None


class WindowedState(torch.autograd.Function):
    """A state of fixed length: sizes of the state that are not 3 are refused late, in backward, since nothing ties them to the input."""

    @staticmethod
    def forward(ctx, x, state):
        ctx.length = len(x)
        return torch.cat([state, x])[-len(x) :] * 2

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(3 + ctx.length)
        grad[-ctx.length :] = 2 * dy
        return grad[3:], grad[:3]


class SegmentSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, offsets):
        ctx.save_for_backward(offsets)
        return torch.stack([x[a:b].sum(0) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)])

    @staticmethod
    def backward(ctx, dy):
        (offsets,) = ctx.saved_tensors
        return dy.repeat_interleave(offsets.diff(), 0), None


class AttentionWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k):
        p = (q @ k.transpose(-1, -2)).softmax(-1)
        ctx.save_for_backward(q, k, p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, p = ctx.saved_tensors
        ds = p * (dy - (p * dy).sum(-1, keepdim=True))
        return ds @ k, ds.transpose(-1, -2) @ q


class LogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.linalg.slogdet(a).logabsdet

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy[..., None, None] * torch.linalg.inv(a).transpose(-1, -2)


class Signs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, dy):
        return dy


class SlowRows(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        rows = [row[:, None] * d for row, d in zip(x, dy, strict=True)]
        return dy @ w.t(), torch.stack([torch.zeros_like(w), *rows]).sum(0)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(LastChunkOnly, x(4, 3), x(3, 2)),
    pb.case(ForgetsTail, x(4, 3), x(3, 2)),
    pb.case(OneRowCrashes, x(4, 3), x(3, 2)),
    pb.case(WrapsAt16Bits, x(4, 3), torch.tensor([2, 0, 3, 1])),
    pb.case(SquaresBlocks, x(2, 3)),
]
spares = [
    pb.case(Linear, x(4, 3), x(3, 2)),
    pb.case(Linear, x(4, 4), x(4, 4)),
    pb.case(Linear, x(4, 3, dtype=torch.float32), x(3, 2, dtype=torch.float32)),
    pb.case(Gathers, x(4, 3), torch.tensor([2, 0, 3, 1])),
    pb.case(SquaresAll, x(2, 3)),
    pb.case(SquaresAll, x()),
    pb.case(Reshapes, x(2, 6), 2),
    pb.case(WindowedState, x(6), x(3)),
    pb.case(SegmentSums, x(6, 2), torch.tensor([0, 2, 3, 6])),
    pb.case(AttentionWeights, x(2, 2, 2), x(2, 2, 2)),
    pb.case(LogDeterminant, x(3, 3)),
    pb.case(Signs, x(4)),
    pb.case(SlowRows, x(4, 3), x(3, 2)),
]


class SpendsBudget(torch.autograd.Function):
    """Weights between 0 and 1 that spend a budget; fewer entries than the budget cannot, and forward then gives all ones."""

    @staticmethod
    def forward(ctx, x, budget):
        low, high = x.amin(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
        for _ in range(60):
            middle = (low + high) / 2
            enough = (x - middle).clamp(0, 1).sum(-1, keepdim=True) >= budget
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        y = (x - low).clamp(0, 1)
        ctx.save_for_backward((y > 0) & (y < 1))
        return torch.where(torch.tensor(x.shape[-1] < budget), x, y)

    @staticmethod
    def backward(ctx, dy):
        (inside,) = ctx.saved_tensors
        g = dy * inside
        return g - g.sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp(min=1) * inside, None


class BelowBlock(Linear):
    """Wrong for fewer rows than a block has, which is no contract."""

    @staticmethod
    def forward(ctx, x, w, block):
        ctx.block = block
        return Linear.forward(ctx, x, w)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), (x.t() @ dy) * (len(x) >= ctx.block), None


kills.append(pb.case(BelowBlock, x(4, 3), x(3, 2), 2))
spares.append(pb.case(SpendsBudget, torch.linspace(-0.4, 0.5, 12, dtype=torch.float64).reshape(2, 6).requires_grad_(), 2))
