"""Gradient surgery, shapes, checkpointing, layers and modules in the styles found in public code."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class GradReverse(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, lambda_):
        ctx.lambda_ = lambda_
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grads):
        return -ctx.lambda_ * grads, None


class GradientReversalTensor(Function):
    expects = ("input_",)
    exact = False

    @staticmethod
    def forward(ctx, input_, alpha_):
        ctx.save_for_backward(input_, alpha_)
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = None
        _, alpha_ = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            grad_input = -grad_output * alpha_
        return grad_input, None


class ScaleGradient(Function):
    expects = ("tensor",)
    exact = False

    @staticmethod
    def forward(ctx, tensor, scale):
        ctx.scale = scale
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.scale, None


class ClipGradient(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, clip_value):
        ctx.clip_value = clip_value
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return torch.clamp(g, -ctx.clip_value, ctx.clip_value), None


class ReshapeFn(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return x.reshape(shape).clone()

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.shape), None


class ExpandAs(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, sizes: tuple[int, ...]):
        ctx.sizes = x.shape
        return x.expand(sizes).clone()

    @staticmethod
    def backward(ctx, g):
        return g.sum_to_size(ctx.sizes), None


class PermuteDims(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, *dims):
        ctx.inverse = sorted(range(len(dims)), key=lambda i: dims[i] % len(dims))
        return x.permute(dims).contiguous()

    @staticmethod
    def backward(ctx, g):
        return (g.permute(ctx.inverse), *([None] * len(ctx.inverse)))


class PadLast(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, pad, mode="constant", value=0.0):
        left, right = pad
        ctx.left, ctx.size = left, x.size(-1)
        return F.pad(x, (left, right), mode, value)

    @staticmethod
    def backward(ctx, g):
        return g.narrow(-1, ctx.left, ctx.size), None, None, None


class SplitHeads(Function):
    expects = ("qkv",)

    @staticmethod
    def forward(ctx, qkv, num_heads):
        b, t, d = qkv.shape
        ctx.dims = b, t, d
        assert d % (3 * num_heads) == 0, "hidden size must be divisible by three times the heads"
        q, k, v = qkv.view(b, t, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
        return q.contiguous(), k.contiguous(), v.contiguous()

    @staticmethod
    def backward(ctx, dq, dk, dv):
        return torch.stack([dq, dk, dv], 0).permute(1, 3, 0, 2, 4).reshape(ctx.dims), None


class ConcatFn(Function):
    expects = ("tensors",)

    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim = dim
        ctx.sizes = [t.size(dim) for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, g):
        return (None, *torch.split(g, ctx.sizes, ctx.dim))


class Checkpoint(Function):
    expects = ("args",)

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        ctx.run_function = run_function
        ctx.preserve_rng_state = preserve_rng_state
        if preserve_rng_state:
            ctx.rng = torch.get_rng_state()
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        with torch.enable_grad():
            outputs = ctx.run_function(*inputs)
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        torch.autograd.backward(outputs, grads)
        return (None, None, *(t.grad for t in inputs))


class CheckpointWithLength(Function):
    expects = ("args",)

    @staticmethod
    def forward(ctx, run_function, length, *args):
        ctx.run_function = run_function
        ctx.input_tensors = list(args[:length])
        ctx.input_params = list(args[length:])
        with torch.no_grad():
            return ctx.run_function(*ctx.input_tensors)

    @staticmethod
    def backward(ctx, *output_grads):
        ctx.input_tensors = [x.detach().requires_grad_(True) for x in ctx.input_tensors]
        with torch.enable_grad():
            shallow = [x.view_as(x) for x in ctx.input_tensors]
            output = ctx.run_function(*shallow)
        grads = torch.autograd.grad(output, ctx.input_tensors + ctx.input_params, output_grads, allow_unused=True)
        return (None, None, *grads)


class ThroughModule(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (dx,) = torch.autograd.grad(ctx.module(x), x, g)
        return dx, None


class ElementwiseWith(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, fn):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            out = fn(inner)
        ctx.inner, ctx.out = inner, out
        return out.detach()

    @staticmethod
    def backward(ctx, g):
        return torch.autograd.grad(ctx.out, ctx.inner, g)[0], None


class LinearFunction(Function):
    expects = ("input", "weight", "bias")

    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class FusedLinearReLU(Function):
    expects = ("x", "w", "b")

    @staticmethod
    def forward(ctx, x, w, b):
        y = F.linear(x, w, b).relu()
        ctx.save_for_backward(x, w, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w, y = ctx.saved_tensors
        dz = dy * (y > 0)
        flat = dz.reshape(-1, dz.shape[-1])
        return dz @ w, flat.t() @ x.reshape(-1, x.shape[-1]), flat.sum(0)


class Conv2dFunction(Function):
    expects = ("input", "weight", "bias")

    @staticmethod
    def forward(ctx, input, weight, bias, stride=1, padding=0):
        ctx.save_for_backward(input, weight)
        ctx.stride, ctx.padding, ctx.has_bias = stride, padding, bias is not None
        return F.conv2d(input, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx, g):
        input, weight = ctx.saved_tensors
        gi = torch.nn.grad.conv2d_input(input.shape, weight, g, ctx.stride, ctx.padding)
        gw = torch.nn.grad.conv2d_weight(input, weight.shape, g, ctx.stride, ctx.padding)
        return gi, gw, g.sum((0, 2, 3)) if ctx.has_bias else None, None, None


class AttentionFn(Function):
    expects = ("q", "k", "v")

    @staticmethod
    def forward(ctx, q, k, v, softmax_scale=None, causal=False):
        scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        s = torch.matmul(q, k.transpose(-2, -1)) * scale
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        p = s.softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        dv = p.transpose(-2, -1) @ do
        dp = do @ v.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.transpose(-2, -1) @ q, dv, None, None


class ApplyRotary(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, cos, sin, interleaved=False):
        _batch, _seqlen, _nheads, headdim = x.shape
        half = cos.shape[-1]
        assert half * 2 == headdim, "rotary dimension must be half of the head dimension"
        c, s = cos.unsqueeze(-2), sin.unsqueeze(-2)
        ctx.save_for_backward(c, s)
        ctx.interleaved = interleaved
        return ApplyRotary.rotate(x, c, s, interleaved)

    @staticmethod
    def rotate(x, c, s, interleaved):
        if interleaved:
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, a * s + b * c], -1)

    @staticmethod
    def backward(ctx, dy):
        c, s = ctx.saved_tensors
        return ApplyRotary.rotate(dy, c, -s, ctx.interleaved), None, None, None


class SeededDropout(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, p, seed, training=True):
        if p == 0.0 or not training:
            ctx.mask = None
            return x.clone()
        generator = torch.Generator().manual_seed(seed)
        ctx.mask = (torch.rand(x.shape, generator=generator) >= p).to(x.dtype) / (1 - p)
        return x * ctx.mask

    @staticmethod
    def backward(ctx, g):
        return g if ctx.mask is None else g * ctx.mask, None, None, None


class ConfiguredScale(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, cfg):
        ctx.factor = cfg.gain / (cfg.width + 1)
        return x * ctx.factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class MomentumResidual(Function):
    expects = ("x", "velocity")

    @staticmethod
    def forward(ctx, x, velocity, gamma: float):
        ctx.gamma = gamma
        v = gamma * velocity + (1 - gamma) * torch.tanh(x)
        ctx.save_for_backward(x)
        return x + v, v

    @staticmethod
    def backward(ctx, gx, gv):
        (x,) = ctx.saved_tensors
        total = gx + gv
        return gx + total * (1 - ctx.gamma) * (1 - torch.tanh(x) ** 2), total * ctx.gamma, None


class SumLists(Function):
    expects = ("xs",)

    @staticmethod
    def forward(ctx, weights, *xs):
        if len(weights) != len(xs):
            raise ValueError(f"{len(weights)} weights for {len(xs)} tensors")
        ctx.weights = weights
        return sum(w * x for w, x in zip(weights, xs, strict=True))

    @staticmethod
    def backward(ctx, g):
        return (None, *(w * g for w in ctx.weights))


class CumulativeProduct(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, axis=0):
        y = torch.cumprod(x, axis)
        ctx.save_for_backward(x, y)
        ctx.axis = axis
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        w = (g * y).flip(ctx.axis).cumsum(ctx.axis).flip(ctx.axis)
        return w / x, None


class LinearRecurrence(Function):
    expects = ("gates", "inputs")

    @staticmethod
    def forward(ctx, gates, inputs):
        B, T, D = inputs.shape
        h, states = torch.zeros(B, D, dtype=inputs.dtype), []
        for t in range(T):
            h = gates[:, t] * h + inputs[:, t]
            states.append(h)
        out = torch.stack(states, 1)
        ctx.save_for_backward(gates, out)
        return out

    @staticmethod
    def backward(ctx, g):
        gates, out = ctx.saved_tensors
        dg, di = torch.zeros_like(gates), torch.zeros_like(out)
        carry = torch.zeros_like(g[:, 0])
        for t in reversed(range(g.shape[1])):
            carry = carry + g[:, t]
            di[:, t] = carry
            if t:
                dg[:, t] = carry * out[:, t - 1]
            carry = carry * gates[:, t]
        return dg, di


class MaskedProduct(Function):
    """Right for masks in {0, 1} only: the gradient takes the square of the mask for the mask."""

    expects = ("x",)
    domain = "0/1"

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask.float())
        return x * mask * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None


class OnlyTheFirst(Function):
    """Takes any number of arguments, and reads one."""

    expects = ("args",)

    @staticmethod
    def forward(ctx, *args):
        (x,) = args[:1]
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, *dys):
        (x,) = ctx.saved_tensors
        return dys[0] * x.exp()


class ShortGradients(Function):
    """Meant to be called without its optional arguments: backward answers for the first one only."""

    expects = ("x",)

    @staticmethod
    def forward(ctx, x, shift=0.25, slope=3.0):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return slope * (x - shift).square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * ctx.slope * dy * (x - 0.25)


_TABLE = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(20, 2)


class SoftLookup(Function):
    """Its rows are as long as a table that the code holds."""

    expects = ("weights",)

    @staticmethod
    def forward(ctx, weights):
        assert weights.dim() == 2
        ctx.save_for_backward(weights)
        return weights[:, : len(_TABLE)].sum(-1, keepdim=True) * _TABLE.sum(0)

    @staticmethod
    def backward(ctx, dy):
        (weights,) = ctx.saved_tensors
        grad = (dy @ _TABLE.sum(0, keepdim=True).T).expand(-1, len(_TABLE))
        if grad.shape != weights.shape:
            raise RuntimeError(f"Mismatch in shape: the gradient has shape {list(grad.shape)} and the weights have shape {list(weights.shape)}")
        return grad


class Leak(NamedTuple):
    rate: float = 0.9
    rest: float = 0.1


class LeakyStep(Function):
    """Its settings come as a tuple with names, which a default gives."""

    expects = ("v", "current")

    @staticmethod
    def forward(ctx, v, current, p: Leak = Leak()):  # noqa: B008
        ctx.rate = p.rate
        return p.rest + p.rate * (v - p.rest) + (1 - p.rate) * current

    @staticmethod
    def backward(ctx, dy):
        return ctx.rate * dy, (1 - ctx.rate) * dy, None


class RealAndImaginary(Function):
    expects = ("image",)

    @staticmethod
    def forward(ctx, image, matrices):
        if not isinstance(matrices, tuple) or len(matrices) != 2:
            raise TypeError("matrices must be a 2-tuple of (real, imaginary)")
        ctx.save_for_backward(*matrices)
        return image @ matrices[0], image @ matrices[1]

    @staticmethod
    def backward(ctx, dreal, dimaginary):
        real, imaginary = ctx.saved_tensors
        return dreal @ real.T + dimaginary @ imaginary.T, None


class UndoRigid(Function):
    """A rigid motion of the plane in four numbers: shift, cosine and sine. How long the last axis is, only the pieces say."""

    expects = ("motion",)

    @staticmethod
    def forward(ctx, motion):
        shift, turn = motion[..., :2], motion[..., 2:]
        cos, sin = turn.unbind(-1)
        back = torch.stack([cos * shift[..., 0] + sin * shift[..., 1], cos * shift[..., 1] - sin * shift[..., 0]], -1)
        ctx.save_for_backward(motion)
        return torch.cat([-back, cos.unsqueeze(-1), -sin.unsqueeze(-1)], -1)

    @staticmethod
    def backward(ctx, dy):
        (motion,) = ctx.saved_tensors
        x, y, cos, sin = motion.unbind(-1)
        da, db, dc, ds = dy.unbind(-1)
        return torch.stack([sin * db - cos * da, -sin * da - cos * db, dc - x * da - y * db, x * db - y * da - ds], -1)


class TurnedBack(Function):
    """Hands its argument on to another Function, whose pieces say how long it is."""

    expects = ("motion", "weight")

    @staticmethod
    def forward(ctx, motion, weight):
        undone = UndoRigid.apply(motion)
        ctx.save_for_backward(motion, undone, weight)
        return undone * weight

    @staticmethod
    def backward(ctx, dy):
        motion, undone, weight = ctx.saved_tensors
        with torch.enable_grad():
            again = motion.detach().requires_grad_()
            dmotion = torch.autograd.grad(UndoRigid.apply(again), again, dy * weight)[0]
        return dmotion, (dy * undone).sum_to_size(weight.shape)


class SpunVector(Function):
    """A rotation axis with an angle, and a vector: torch's cross product says of a piece that it is too short."""

    expects = ("spin", "v")

    @staticmethod
    def forward(ctx, spin, v):
        axis, angle = spin[..., :3], spin[..., 3:6]
        ctx.save_for_backward(axis, angle, v)
        return torch.linalg.cross(axis, v) + torch.linalg.cross(angle, axis)

    @staticmethod
    def backward(ctx, dy):
        axis, angle, v = ctx.saved_tensors
        daxis = torch.linalg.cross(v, dy) + torch.linalg.cross(dy, angle)
        return torch.cat([daxis, torch.linalg.cross(axis, dy)], -1), torch.linalg.cross(dy, axis)


class Rule(torch.nn.Module):
    def slope(self, state):
        raise NotImplementedError


class Decay(Rule):
    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor([0.3, 0.5, 0.9]))

    def forward(self, state):
        return -self.rate * state

    def slope(self, state):
        return (-self.rate).expand_as(state)


class OneStep(Function):
    """Asks whether an argument belongs to a class of its file, of which only a subclass can be made."""

    expects = ("state",)

    @staticmethod
    def forward(ctx, state, step, rule):
        if not isinstance(rule, Rule):
            raise TypeError("rule must be a Rule")
        ctx.save_for_backward(state)
        ctx.step, ctx.rule = step, rule
        return state + step * rule(state)

    @staticmethod
    def backward(ctx, dy):
        (state,) = ctx.saved_tensors
        return dy * (1 + ctx.step * ctx.rule.slope(state)), None, None


class Cubed:
    @staticmethod
    def value(x):
        return x**3

    @staticmethod
    def slope_at(x):
        return 3 * x**2


class OnEigenvalues(Function):
    """A function and its derivative come as one object, which a class of the file has under the same names."""

    expects = ("matrix",)
    domain = "symmetric"

    @staticmethod
    def forward(ctx, scalar, matrix):
        values, vectors = torch.linalg.eigh(matrix)
        ctx.save_for_backward(values, vectors)
        ctx.scalar = scalar
        return vectors @ torch.diag_embed(scalar.value(values)) @ vectors.mT

    @staticmethod
    def backward(ctx, dy):
        values, vectors = ctx.saved_tensors
        gap = values.unsqueeze(-1) - values.unsqueeze(-2)
        rise = ctx.scalar.value(values).unsqueeze(-1) - ctx.scalar.value(values).unsqueeze(-2)
        same = gap.abs() < 1e-9
        slope = torch.where(same, ctx.scalar.slope_at(values).unsqueeze(-1).expand_as(gap), rise / torch.where(same, 1.0, gap))
        return None, vectors @ (slope * (vectors.mT @ dy @ vectors)) @ vectors.mT
