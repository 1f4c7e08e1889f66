"""Straight-through estimators and quantisers in the styles found in public code; their gradients are surrogates."""

from __future__ import annotations

import torch
from torch.autograd import Function


class RoundSTE(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class BinarizeClip(Function):
    expects = ("input",)
    exact = False

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.sign()

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input.ge(1)] = 0
        grad_input[input.le(-1)] = 0
        return grad_input


class Ternarize(Function):
    expects = ("tensor",)
    exact = False

    @staticmethod
    def forward(ctx, tensor, delta_factor=0.7):
        delta = delta_factor * tensor.abs().mean()
        pos, neg = (tensor > delta).to(tensor.dtype), (tensor < -delta).to(tensor.dtype)
        alpha = (tensor.abs() * (pos + neg)).sum() / (pos + neg).sum().clamp(min=1)
        return alpha * (pos - neg)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class UniformQuantize(Function):
    expects = ("input",)
    exact = False

    @staticmethod
    def forward(ctx, input, num_bits=8, min_value=None, max_value=None):
        lo = input.min().item() if min_value is None else min_value
        hi = input.max().item() if max_value is None else max_value
        qmax = 2.0**num_bits - 1.0
        scale = max((hi - lo) / qmax, 1e-8)
        return ((input - lo) / scale).clamp(0, qmax).round() * scale + lo

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None, None, None


class LearnedStepSize(Function):
    expects = ("x", "alpha")
    exact = False

    @staticmethod
    def forward(ctx, x, alpha, g, Qn, Qp):
        assert alpha > 0, f"alpha = {alpha}"
        ctx.save_for_backward(x, alpha)
        ctx.other = g, Qn, Qp
        return (x / alpha).round().clamp(Qn, Qp) * alpha

    @staticmethod
    def backward(ctx, grad_x):
        x, alpha = ctx.saved_tensors
        g, Qn, Qp = ctx.other
        q = x / alpha
        small, big = (q < Qn).to(x.dtype), (q > Qp).to(x.dtype)
        middle = 1.0 - small - big
        grad_alpha = ((small * Qn + big * Qp + middle * (-q + q.round())) * grad_x * g).sum().unsqueeze(0)
        return middle * grad_x, grad_alpha.reshape(alpha.shape), None, None, None


class PACT(Function):
    expects = ("x", "alpha")
    exact = False

    @staticmethod
    def forward(ctx, x, alpha, k):
        ctx.save_for_backward(x, alpha)
        y = torch.clamp(x, min=0, max=alpha.item())
        scale = (2**k - 1) / alpha
        return torch.round(y * scale) / scale

    @staticmethod
    def backward(ctx, dy):
        x, alpha = ctx.saved_tensors
        below, above = x < 0, x > alpha
        grad_alpha = torch.sum(dy * above.to(dy.dtype)).view(-1)
        return dy * (~(below | above)).to(dy.dtype), grad_alpha.reshape(alpha.shape), None


class FakeQuantAffine(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, scale, zero_point, quant_min, quant_max):
        q = torch.round(x / scale) + zero_point
        ctx.save_for_backward((q >= quant_min) & (q <= quant_max))
        return (q.clamp(quant_min, quant_max) - zero_point) * scale

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None, None, None, None


class StochasticRounding(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, training: bool = True):
        if not training:
            return x.round()
        floor = x.floor()
        return floor + (torch.rand_like(x) < x - floor).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class DoReFaWeight(Function):
    expects = ("input",)
    exact = False

    @staticmethod
    def forward(ctx, input, bits):
        if bits == 1:
            return torch.sign(input) * torch.mean(torch.abs(input))
        w = torch.tanh(input)
        w = w / torch.max(torch.abs(w)) / 2 + 0.5
        n = float(2**bits - 1)
        return 2 * torch.round(w * n) / n - 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class GetSubnet(Function):
    expects = ("scores",)
    exact = False

    @staticmethod
    def forward(ctx, scores, k):
        out = scores.clone()
        _, idx = scores.flatten().sort()
        j = int((1 - k) * scores.numel())
        flat = out.flatten()
        flat[idx[:j]] = 0
        flat[idx[j:]] = 1
        return flat.view_as(scores)

    @staticmethod
    def backward(ctx, g):
        return g, None


class VectorQuantizeSTE(Function):
    expects = ("inputs", "codebook")
    exact = False

    @staticmethod
    def forward(ctx, inputs, codebook):
        size = codebook.size(1)
        flat = inputs.reshape(-1, size)
        distances = torch.addmm(codebook.pow(2).sum(1) + flat.pow(2).sum(1, keepdim=True), flat, codebook.t(), alpha=-2.0, beta=1.0)
        indices = distances.argmin(1)
        ctx.save_for_backward(indices, codebook)
        return codebook.index_select(0, indices).view_as(inputs)

    @staticmethod
    def backward(ctx, grad_output):
        indices, codebook = ctx.saved_tensors
        grad_codebook = None
        if ctx.needs_input_grad[1]:
            grad_codebook = torch.zeros_like(codebook)
            grad_codebook.index_add_(0, indices, grad_output.reshape(-1, codebook.size(1)))
        return grad_output.clone(), grad_codebook


class ClampSTE(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, lower, upper):
        return x.clamp(lower, upper)

    @staticmethod
    def backward(ctx, g):
        return g, None, None


class XNORWeight(Function):
    expects = ("weight",)
    exact = False

    @staticmethod
    def forward(ctx, weight):
        _out, _in, _kh, _kw = weight.size()
        scale = weight.abs().mean((1, 2, 3), keepdim=True)
        ctx.save_for_backward(weight, scale)
        return weight.sign() * scale

    @staticmethod
    def backward(ctx, g):
        weight, scale = ctx.saved_tensors
        return g * scale * (weight.abs() <= 1)


class PowerOfTwo(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, n_levels: int, eps: float = 1e-6):
        sign = torch.sign(x)
        exponent = torch.log2(x.abs() + eps).round().clamp(-n_levels, 0)
        return sign * torch.pow(2.0, exponent)

    @staticmethod
    def backward(ctx, g):
        return g, None, None


class HardThresholdMask(Function):
    expects = ("scores",)
    exact = False

    @staticmethod
    def forward(ctx, scores, threshold, sigmoid: bool):
        mask = torch.sigmoid(scores) > threshold if sigmoid else scores > threshold
        return mask.to(scores.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None, None


class OneHotArgmax(Function):
    expects = ("soft",)
    exact = False

    @staticmethod
    def forward(ctx, soft, axis):
        index = soft.max(axis, keepdim=True)[1]
        return torch.zeros_like(soft).scatter_(axis, index, 1.0)

    @staticmethod
    def backward(ctx, g):
        return g, None
