"""Scatter, gather and masks in the styles found in public code."""

from __future__ import annotations

import torch
from torch.autograd import Function


class GatherAlong(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, index, dim):
        ctx.save_for_backward(index)
        ctx.dim, ctx.shape = dim, x.shape
        return torch.gather(x, dim, index)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return torch.zeros(ctx.shape, dtype=g.dtype, device=g.device).scatter_add_(ctx.dim, index, g), None, None


class ScatterSum(Function):
    expects = ("src",)

    @staticmethod
    def forward(ctx, src, index, dim_size):
        ctx.save_for_backward(index)
        out = src.new_zeros((dim_size, *src.shape[1:]))
        return out.index_add_(0, index, src)

    @staticmethod
    def backward(ctx, grad_out):
        (index,) = ctx.saved_tensors
        return grad_out.index_select(0, index), None, None


class EmbeddingLookup(Function):
    expects = ("weight",)

    @staticmethod
    def forward(ctx, indices, weight, padding_idx=-1):
        ctx.save_for_backward(indices)
        ctx.num, ctx.padding_idx = weight.size(0), padding_idx
        return weight[indices]

    @staticmethod
    def backward(ctx, grad_output):
        (indices,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.num, grad_output.size(-1))
        grad.index_add_(0, indices.reshape(-1), grad_output.reshape(-1, grad_output.size(-1)))
        if ctx.padding_idx >= 0:
            grad[ctx.padding_idx] = 0
        return None, grad, None


class SegmentMean(Function):
    expects = ("data",)

    @staticmethod
    def forward(ctx, data, segment_ids, num_segments):
        counts = torch.bincount(segment_ids, minlength=num_segments).clamp(min=1).to(data.dtype)
        out = torch.zeros(num_segments, *data.shape[1:], dtype=data.dtype)
        out.index_add_(0, segment_ids, data)
        scale = counts.view(-1, *([1] * (data.dim() - 1)))
        ctx.save_for_backward(segment_ids, scale)
        return out / scale

    @staticmethod
    def backward(ctx, grad):
        segment_ids, scale = ctx.saved_tensors
        return (grad / scale)[segment_ids], None, None


class PermuteTokens(Function):
    expects = ("tokens",)

    @staticmethod
    def forward(ctx, tokens, perm):
        ctx.perm = perm
        return tokens[perm]

    @staticmethod
    def backward(ctx, g):
        out = torch.zeros_like(g)
        out[ctx.perm] = g
        return out, None


class MaskedFill(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, mask, value):
        ctx.save_for_backward(mask)
        return x.masked_fill(mask, value)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g.masked_fill(mask, 0), None, None


class IndexFirstAxis(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, input, indices):
        ctx.save_for_backward(indices)
        assert input.ndim >= 2
        ctx.first_axis_dim, other_shape = input.shape[0], input.shape[1:]
        second_dim = other_shape.numel()
        flat = input.reshape(ctx.first_axis_dim, second_dim)
        return torch.gather(flat, 0, indices.unsqueeze(1).expand(-1, second_dim)).reshape(-1, *other_shape)

    @staticmethod
    def backward(ctx, grad_output):
        (indices,) = ctx.saved_tensors
        other_shape = grad_output.shape[1:]
        grad = grad_output.reshape(grad_output.shape[0], -1)
        grad_input = torch.zeros([ctx.first_axis_dim, grad.shape[1]], dtype=grad.dtype)
        grad_input.scatter_add_(0, indices.unsqueeze(1).expand(-1, grad.shape[1]), grad)
        return grad_input.reshape(ctx.first_axis_dim, *other_shape), None


class RaggedSum(Function):
    expects = ("values",)

    @staticmethod
    def forward(ctx, values, offsets):
        lengths = offsets[1:] - offsets[:-1]
        ids = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
        out = values.new_zeros(lengths.numel(), *values.shape[1:])
        out.index_add_(0, ids, values)
        ctx.save_for_backward(ids)
        return out

    @staticmethod
    def backward(ctx, g):
        (ids,) = ctx.saved_tensors
        return g[ids], None


class TopKValues(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, k, dim=-1):
        values, indices = torch.topk(x, k, dim)
        ctx.save_for_backward(indices)
        ctx.mark_non_differentiable(indices)
        ctx.dim, ctx.shape = dim, x.shape
        return values, indices

    @staticmethod
    def backward(ctx, g, _):
        (indices,) = ctx.saved_tensors
        return g.new_zeros(ctx.shape).scatter_(ctx.dim, indices, g), None, None


class MoEDispatch(Function):
    expects = ("x", "gates")

    @staticmethod
    def forward(ctx, x, gates, expert_index):
        _tokens, _hidden = x.shape
        chosen = gates.gather(1, expert_index.view(-1, 1))
        ctx.save_for_backward(x, gates, expert_index)
        return x * chosen

    @staticmethod
    def backward(ctx, dy):
        x, gates, expert_index = ctx.saved_tensors
        index = expert_index.view(-1, 1)
        dgates = torch.zeros_like(gates).scatter_(1, index, (dy * x).sum(1, keepdim=True))
        return dy * gates.gather(1, index), dgates, None


class RollShift(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, shifts, dims):
        ctx.shifts, ctx.dims = shifts, dims
        return torch.roll(x, shifts, dims)

    @staticmethod
    def backward(ctx, g):
        back = tuple(-s for s in ctx.shifts) if isinstance(ctx.shifts, tuple) else -ctx.shifts
        return torch.roll(g, back, ctx.dims), None, None


class MaxPool1dFn(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, kernel_size):
        _B, _C, L = x.shape
        windows = x.unfold(2, kernel_size, kernel_size)
        values, where = windows.max(-1)
        ctx.save_for_backward(where + torch.arange(values.shape[-1]) * kernel_size)
        ctx.length = L
        return values

    @staticmethod
    def backward(ctx, g):
        (where,) = ctx.saved_tensors
        return g.new_zeros(*g.shape[:2], ctx.length).scatter_(2, where, g), None


class MaskedMean(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, mask):
        _b, _t, _d = x.shape
        m = mask.unsqueeze(-1).to(x.dtype)
        total = m.sum(1).clamp(min=1)
        ctx.save_for_backward(m, total)
        return (x * m).sum(1) / total

    @staticmethod
    def backward(ctx, g):
        m, total = ctx.saved_tensors
        return (g / total).unsqueeze(1) * m, None


class PadByLengths(Function):
    expects = ("packed",)

    @staticmethod
    def forward(ctx, packed: torch.Tensor, lengths: list):
        ctx.lengths = lengths
        out = packed.new_zeros(len(lengths), max(lengths), packed.shape[-1])
        start = 0
        for i, n in enumerate(lengths):
            out[i, :n] = packed[start : start + n]
            start += n
        if start != packed.shape[0]:
            raise ValueError(f"lengths add up to {start}, packed has {packed.shape[0]} rows")
        return out

    @staticmethod
    def backward(ctx, g):
        return torch.cat([g[i, :n] for i, n in enumerate(ctx.lengths)]), None


class EntriesTimesDense(Function):
    """Where the entries of a sparse matrix are is given in two rows, which only torch's constructor says."""

    expects = ("entries", "dense")

    @staticmethod
    def forward(ctx, where, entries, extent, dense):
        sparse = torch.sparse_coo_tensor(where, entries, extent)
        ctx.save_for_backward(where, entries, dense)
        ctx.extent = extent
        return sparse @ dense

    @staticmethod
    def backward(ctx, dy):
        where, entries, dense = ctx.saved_tensors
        sparse = torch.sparse_coo_tensor(where, entries, ctx.extent)
        return None, (dy[where[0]] * dense[where[1]]).sum(-1), None, sparse.t() @ dy


class LastFrame(Function):
    """Lengths are used as an index only after one is taken off; no frame is before the first."""

    expects = ("frames",)

    @staticmethod
    def forward(ctx, frames: torch.tensor, frame_lengths: torch.tensor):
        batch, time, _ = frames.shape
        rows = torch.arange(batch)
        if int(frame_lengths.min()) < 1 or int(frame_lengths.max()) > time:
            raise ValueError("every length must lie between 1 and the number of frames")
        ctx.save_for_backward(frame_lengths)
        ctx.extent = frames.shape
        return frames[rows, frame_lengths[rows] - 1] / frame_lengths.unsqueeze(-1)

    @staticmethod
    def backward(ctx, dy):
        (frame_lengths,) = ctx.saved_tensors
        rows = torch.arange(ctx.extent[0])
        dframes = dy.new_zeros(ctx.extent)
        dframes[rows, frame_lengths - 1] = dy / frame_lengths.unsqueeze(-1)
        return dframes, None
