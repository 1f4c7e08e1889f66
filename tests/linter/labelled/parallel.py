# ruff: noqa: B905, F401, RUF059
"""Collectives of tensor, sequence and pipeline parallelism, and checkpointing, as training frameworks write them."""

import torch
import torch.distributed as dist
from torch import nn


def _reduce(x, group):
    if dist.get_world_size(group) == 1:
        return x
    dist.all_reduce(x.contiguous(), group=group)
    return x


def _reduce_safely(x, group):
    if dist.get_world_size(group) == 1:
        return x
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x, group=group)
    return x


def _gather(x, group):
    world = dist.get_world_size(group)
    out = torch.empty((world * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def _split(x, group):
    size = x.shape[0] // dist.get_world_size(group)
    rank = dist.get_rank(group)
    return x[rank * size : (rank + 1) * size].contiguous()


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(grad_output, ctx.group), None  # expect: PB102 PB103


class CopyToRegionSafely(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce_safely(grad_output, ctx.group), None


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return _reduce_safely(x, group)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GatherFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        ctx.rank = dist.get_rank(group)  # expect: PB204
        return _gather(x, group)

    @staticmethod
    def backward(ctx, grad_output):
        return _split(grad_output, ctx.group), None


class AllReduceBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)  # expect: PB107
        return x

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous()
        dist.all_reduce(grad_output)  # expect: PB102
        return grad_output


class VocabParallelLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        top = logits.max(-1)[0]
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        logits = logits - top[..., None]
        e = logits.exp()
        z = e.sum(-1)
        dist.all_reduce(z, group=group)
        e.div_(z[..., None])
        mask = target < 0
        ctx.save_for_backward(e, mask, target)
        ctx.group = group  # expect: PB204
        return z.log()

    @staticmethod
    def backward(ctx, grad_output):
        softmax, mask, target = ctx.saved_tensors
        grad = softmax
        flat = grad.view(-1, softmax.shape[-1])
        flat[torch.arange(flat.shape[0]), target.view(-1)] -= 1.0 - mask.view(-1).float()  # expect: PB104
        grad.mul_(grad_output.unsqueeze(-1))  # expect: PB104
        return grad, None, None


class ColumnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, group, accumulate):
        ctx.save_for_backward(x, weight)
        ctx.use_bias = bias is not None
        ctx.group = group
        ctx.accumulate = accumulate
        out = x @ weight.t()
        return out + bias if bias is not None else out

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = dy @ weight
        handle = dist.all_reduce(dx, group=ctx.group, async_op=True)
        dy = dy.reshape(-1, dy.shape[-1])
        x = x.reshape(-1, x.shape[-1])
        if ctx.accumulate:
            weight.main_grad.add_(dy.t() @ x)
            weight.grad_added = True  # expect: PB215
            dw = None
        else:
            dw = dy.t() @ x
        db = dy.sum(0) if ctx.use_bias else None
        handle.wait()
        return dx, dw, db, None, None, None  # expect: PB302 PB306


class LowRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a, b, scale):
        ctx.save_for_backward(x, a, b)
        ctx.scale = scale
        return scale * (x @ a) @ b

    @staticmethod
    def backward(ctx, dy):
        x, a, b = ctx.saved_tensors
        h = x @ a
        return ctx.scale * dy @ b.t() @ a.t(), ctx.scale * x.t() @ (dy @ b.t()), ctx.scale * h.t() @ dy, None  # expect: PB306


class LinearGated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        out = x.mm(weight.t())
        if bias is not None:
            out += bias.unsqueeze(0).expand_as(out)
        return out

    @staticmethod
    def backward(ctx, dy):
        x, weight, bias = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = dy.mm(weight)
        if ctx.needs_input_grad[1]:
            dw = dy.t().mm(x)
        if bias is not None and ctx.needs_input_grad[2]:
            db = dy.sum(0)
        return dx, dw, db


class LinearWrongGate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        needs_x, needs_w, needs_b = ctx.needs_input_grad
        dx = dw = db = None
        if needs_x:
            dx = dy @ weight
        if needs_w:
            dw = dy.t() @ x
            db = dy.sum(0)  # expect: PB113
        return dx, dw, db


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.cpu_state = torch.get_rng_state()
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run(*args)

    @staticmethod
    def backward(ctx, *grads):
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        before = torch.get_rng_state()
        torch.set_rng_state(ctx.cpu_state)
        with torch.enable_grad():
            outputs = ctx.run(*inputs)
        torch.set_rng_state(before)
        torch.autograd.backward(outputs, grads)  # expect: PB213
        return (None, *(t.grad for t in inputs))


class CheckpointForgetful(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.state = torch.get_rng_state()
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        x.requires_grad_(True)  # expect: PB105
        torch.set_rng_state(ctx.state)  # expect: PB212
        with torch.enable_grad():
            y = ctx.run(x)
        y.backward(grad)
        return None, x.grad


class TiledMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, mlp, x, shards, *params):
        ctx.fn, ctx.mlp, ctx.shards = fn, mlp, shards
        ctx.save_for_backward(x)
        with torch.no_grad():
            return torch.cat([fn(mlp, part) for part in x.chunk(shards, dim=-2)], dim=-2)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        needs = x.requires_grad
        x = x.detach()
        dx = torch.zeros_like(x)
        for part, g, out in zip(x.chunk(ctx.shards, -2), grad.chunk(ctx.shards, -2), dx.chunk(ctx.shards, -2)):
            part.requires_grad_(needs)
            part.grad = out
            with torch.enable_grad():
                y = ctx.fn(ctx.mlp, part)
            torch.autograd.backward(y, g)  # expect: PB213
        return None, None, dx, None, None


class ReverseLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg_() * ctx.alpha, None  # expect: PB101


class ReverseLayerRight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, peer):
        ctx.peer = peer
        ctx.shape = x.shape  # expect: PB204
        dist.send(x, peer)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        dist.recv(grad_output, ctx.peer)  # expect: PB102
        return grad_output, None


class Dispatch(torch.autograd.Function):
    buffer = None

    @staticmethod
    def forward(ctx, x, index):
        order = index.argsort()
        ctx.order = order
        ctx.x_shape = x.shape  # expect: PB204
        return x[order], order

    @staticmethod
    def backward(ctx, dx, _):
        out = torch.empty_like(dx)
        out[ctx.order] = dx
        del ctx.order  # expect: PB304
        return out, None


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, index):
        ctx.save_for_backward(x, weights, index)
        return (x * weights[:, None])[index]

    @staticmethod
    def backward(ctx, dy):
        x, weights, index = ctx.saved_tensors
        if not dy.is_contiguous:  # expect: PB118
            dy = dy.contiguous()
        d = torch.zeros_like(x).index_add_(0, index, dy)
        return d * weights[:, None], (d * x).sum(-1), None


class AuxLoss(torch.autograd.Function):
    scale = None

    @staticmethod
    def forward(ctx, output, aux):
        ctx.save_for_backward(aux)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (aux,) = ctx.saved_tensors
        if AuxLoss.scale is None:
            AuxLoss.scale = torch.tensor(1.0, device=aux.device)
        return grad_output, torch.ones_like(aux) * AuxLoss.scale

    @staticmethod
    def set_scale(scale):
        AuxLoss.scale = scale


def forward_only(x):
    return LowRank.forward(None, x, x, x, 1.0)  # expect: PB210


def linear(x, w):
    return LinearGated.apply(x, w)
