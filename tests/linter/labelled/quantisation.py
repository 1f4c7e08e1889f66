# ruff: noqa: RUF059
"""Straight-through estimators, low precision products, custom rounding, as quantisation libraries write them."""

import torch
from torch.autograd import Function


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad_y):
        return grad_y


class ClampSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.lo = lo
        ctx.hi = hi
        ctx.scale = hi - lo  # expect: PB204
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g[x < ctx.lo] = 0  # expect: PB101
        g[x > ctx.hi] = 0  # expect: PB101
        return g, None, None


class ClampMasked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.mask = (x >= lo) & (x <= hi)
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask, None, None


class LearnedStep(Function):
    @staticmethod
    def forward(ctx, x, s, qn, qp):
        ctx.save_for_backward(x, s)
        ctx.other = qn, qp
        q = (x / s).round().clamp(qn, qp)
        return q * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        qn, qp = ctx.other
        q = x / s
        low = (q < qn).float()
        high = (q > qp).float()
        middle = 1.0 - low - high
        ds = ((low * qn + high * qp + middle * (-q + q.round())) * g).sum().unsqueeze(0)
        return middle * g, ds  # expect: PB109


class DoReFa(Function):
    @staticmethod
    def forward(ctx, x, k):
        n = 2**k - 1
        return torch.round(x * n) / n

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = grad_output.clone()  # expect: PB307
        return grad_input, None


class BinaryActive(Function):
    @staticmethod
    def forward(self, input):
        self.save_for_backward(input)
        return input.sign()

    @staticmethod
    def backward(self, grad_output):
        (input,) = self.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input.ge(1)] = 0
        grad_input[input.le(-1)] = 0
        return grad_input


class SignGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return torch.sign(grad_output)  # expect: PB301


class GradientClip(Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        norm = g.norm()  # expect: PB301
        scale = (ctx.limit / (norm + 1e-6)).clamp(max=1.0)
        return g * scale, None


class DeclaredClip(Function):
    __pullback__ = {"exact": False, "linear": False, "reason": "clips on purpose"}

    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.limit, ctx.limit), None


class NanGuard(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g[torch.isnan(g)] = 0  # expect: PB101
        return g


class Int8Linear(Function):
    @staticmethod
    def forward(ctx, x, w, bias):
        scale = w.abs().amax(1, keepdim=True) / 127
        wq = (w / scale).round().to(torch.int8)
        ctx.x = x  # expect: PB201
        ctx.wq = wq
        ctx.scale = scale  # expect: PB201
        ctx.has_bias = bias is not None
        out = x @ (wq.to(x.dtype) * scale).t()
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx, dy):
        w = ctx.wq.to(dy.dtype) * ctx.scale
        dx = dy @ w
        dw = dy.view(-1, dy.shape[-1]).t() @ ctx.x.reshape(-1, ctx.x.shape[-1])  # expect: PB214
        db = dy.sum(0) if ctx.has_bias else None
        return dx, dw, db  # expect: PB306


class Fp8Dynamic(Function):
    @staticmethod
    def forward(ctx, x, dtype):
        ctx.target = dtype
        return x

    @staticmethod
    def backward(ctx, g):
        amax = g.abs().max()  # expect: PB301
        scale = 448.0 / amax.clamp(min=1e-12)
        return (g * scale).to(ctx.target).to(g.dtype) / scale, None


class StochasticRound(Function):
    @staticmethod
    def forward(ctx, x, seed):
        torch.manual_seed(seed)  # expect: PB212
        noise = torch.rand_like(x)
        ctx.noise = noise  # expect: PB201 PB204
        return torch.floor(x + noise)

    @staticmethod
    def backward(ctx, g):
        return g, None


class PowerOfTwo(Function):
    @staticmethod
    def forward(ctx, x, bits):
        e = torch.log2(x.abs()).round()
        out = x.sign() * 2**e
        ctx.save_for_backward(x, out, e)  # expect: PB203
        return out

    @staticmethod
    def backward(ctx, g):
        x, out, e = ctx.saved_tensors
        return g * (x.abs() < 1).to(g.dtype), None


class Ternary(Function):
    @staticmethod
    def forward(ctx, w, threshold):
        delta = threshold * w.abs().mean()
        mask = (w.abs() > delta).float()
        alpha = (w.abs() * mask).sum() / mask.sum()
        ctx.save_for_backward(w, mask, alpha)
        return alpha * w.sign() * mask

    @staticmethod
    def backward(ctx, g):
        w, mask, alpha = ctx.saved_tensors
        w_copy = w
        w_copy.mul_(mask)  # expect: PB104
        return g * alpha * mask + g * (1 - mask), None


class MaskedWeight(Function):
    @staticmethod
    def forward(ctx, weight, mask):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(mask)
        return weight * mask, mask.sum()

    @staticmethod
    def backward(ctx, g, gcount):
        (mask,) = ctx.saved_tensors
        return g * mask, None  # expect: PB120


class TopK(Function):
    @staticmethod
    def forward(ctx, x, k):
        values, index = x.topk(k, -1)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return values, index

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        out = g.new_zeros(ctx.shape)
        return out.scatter(-1, index, g), None


class SparsifyGrad(Function):
    @staticmethod
    def forward(ctx, x, keep):
        ctx.keep = keep
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        flat = g.view(-1)  # expect: PB214
        k = int(ctx.keep * flat.numel())
        cut = flat.abs().kthvalue(flat.numel() - k).values
        return g * (g.abs() > cut), None  # expect: PB301


class FakeQuant(Function):
    @staticmethod
    def symbolic(g, x, scale, zero):
        return g.op("custom::FakeQuant", x, scale, zero)

    @staticmethod
    def forward(ctx, x, scale, zero):
        return (torch.round(x / scale) + zero).clamp(-128, 127)

    @staticmethod
    def backward(ctx, g):
        return None


class ExportOnly(Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("Mul", x, factor)


class ScaleGradMissing(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale  # expect: PB204
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scal, None  # expect: PB205


class Swapped(Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return None, grad * mask, grad  # expect: PB122


def quantise(x, s):
    return LearnedStep.apply(x, s, -128, 127)
