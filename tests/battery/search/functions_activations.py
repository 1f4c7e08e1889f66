"""Activations in the styles found in public code; `expects` names the inputs that are differentiated."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function


class MemoryEfficientSwish(Function):
    expects = ("i",)

    @staticmethod
    def forward(ctx, i):
        result = i * torch.sigmoid(i)
        ctx.save_for_backward(i)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        i = ctx.saved_tensors[0]
        sigmoid_i = torch.sigmoid(i)
        return grad_output * (sigmoid_i * (1 + i * (1 - sigmoid_i)))


class MishAutoFn(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mul(torch.tanh(F.softplus(x)))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s, t = torch.sigmoid(x), torch.tanh(F.softplus(x))
        return grad_output.mul(t + x * s * (1 - t * t))


class TanhGELU(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * input * (1 + torch.tanh(math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        c = math.sqrt(2 / math.pi)
        t = torch.tanh(c * (x + 0.044715 * x**3))
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * c * (1 + 3 * 0.044715 * x**2))


class LeakyReLUFunction(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, input, negative_slope=0.01):
        ctx.negative_slope = negative_slope
        ctx.save_for_backward(input)
        return torch.where(input > 0, input, input * negative_slope)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return torch.where(input > 0, grad_output, grad_output * ctx.negative_slope), None


class ChannelPReLU(Function):
    expects = ("x", "weight")

    @staticmethod
    def forward(ctx, x, weight):
        _, c, _, _ = x.shape
        ctx.save_for_backward(x, weight)
        return torch.where(x > 0, x, x * weight.view(1, c, 1, 1))

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.where(x > 0, dy, dy * weight.view(1, -1, 1, 1))
        dw = (dy * x * (x <= 0)).sum((0, 2, 3))
        return dx, dw


class InplaceELU(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, alpha, inplace=False):
        out = x.clone() if not inplace else x
        if inplace:
            ctx.mark_dirty(x)
        neg = out < 0
        out[neg] = alpha * (torch.exp(out[neg]) - 1)
        ctx.alpha = alpha
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (out,) = ctx.saved_tensors
        return grad_output * torch.where(out < 0, out + ctx.alpha, torch.ones_like(out)), None, None


class SoftplusThreshold(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, beta=2, threshold=20):
        ctx.save_for_backward(x)
        ctx.beta, ctx.threshold = beta, threshold
        return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(beta * x)) / beta)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = torch.where(x * ctx.beta > ctx.threshold, torch.ones_like(x), torch.sigmoid(ctx.beta * x))
        return g * slope, None, None


class HardSwishJit(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x + 3).clamp(0, 6) / 6

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0]
        m = torch.ones_like(x) * (x >= 3.0)
        m = torch.where((x >= -3.0) & (x <= 3.0), x / 3.0 + 0.5, m)
        return grad_output * m


class GuidedBackpropReLU(Function):
    expects = ("input_img",)
    exact = False

    @staticmethod
    def forward(self, input_img):
        positive_mask = (input_img > 0).type_as(input_img)
        output = torch.addcmul(torch.zeros(input_img.size()).type_as(input_img), input_img, positive_mask)
        self.save_for_backward(input_img, output)
        return output

    @staticmethod
    def backward(self, grad_output):
        input_img, _ = self.saved_tensors
        mask_in = (input_img > 0).type_as(grad_output)
        mask_grad = (grad_output > 0).type_as(grad_output)
        return grad_output * mask_in * mask_grad


class GatedLinearUnit(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, dim):
        a, b = x.chunk(2, dim=dim)
        s = b.sigmoid()
        ctx.save_for_backward(a, s)
        ctx.dim = dim
        return a * s

    @staticmethod
    def backward(ctx, g):
        a, s = ctx.saved_tensors
        return torch.cat([g * s, g * a * s * (1 - s)], dim=ctx.dim), None


class SnakeActivation(Function):
    expects = ("x", "alpha")

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return x + torch.sin(alpha * x) ** 2 / alpha

    @staticmethod
    def backward(ctx, grad):
        x, alpha = ctx.saved_tensors
        s2 = torch.sin(2 * alpha * x)
        gx = grad * (1 + s2)
        ga = grad * (x * s2 / alpha - torch.sin(alpha * x) ** 2 / alpha**2)
        return gx, ga.sum_to_size(alpha.shape)


class Sparsemax(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, input, dim=-1):
        ctx.dim = dim
        z = input.sort(dim=dim, descending=True).values
        k = torch.arange(1, input.size(dim) + 1, dtype=input.dtype)
        view = [1] * input.dim()
        view[dim] = -1
        k = k.view(view)
        cumulative = z.cumsum(dim) - 1
        support = (k * z > cumulative).sum(dim, keepdim=True)
        tau = cumulative.gather(dim, support - 1) / support.to(input.dtype)
        output = torch.clamp(input - tau, min=0)
        ctx.save_for_backward(support, output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        support, output = ctx.saved_tensors
        grad = grad_output.clone()
        grad[output == 0] = 0
        v = grad.sum(ctx.dim, keepdim=True) / support.to(grad.dtype)
        return torch.where(output != 0, grad - v, grad), None


class SoftShrinkFn(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, input, lambd):
        assert lambd >= 0, "lambd must be non-negative"
        mask = input.abs() > lambd
        ctx.mask = mask
        return (input - input.sign() * lambd) * mask

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.mask, None


class TemperatureSoftmax(Function):
    expects = ("logits",)

    @staticmethod
    def forward(ctx, logits: torch.Tensor, temperature: float, dim: int = -1):
        p = torch.softmax(logits / temperature, dim)
        ctx.save_for_backward(p)
        ctx.temperature, ctx.dim = temperature, dim
        return p

    @staticmethod
    def backward(ctx, dp):
        (p,) = ctx.saved_tensors
        return p * (dp - (p * dp).sum(ctx.dim, keepdim=True)) / ctx.temperature, None, None


class SwiGLUPacked(Function):
    expects = ("gate", "up")

    @staticmethod
    def forward(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        gate, up = inputs
        ctx.save_for_backward(gate, up)

    @staticmethod
    def backward(ctx, dout):
        gate, up = ctx.saved_tensors
        s = torch.sigmoid(gate)
        return dout * up * (s + gate * s * (1 - s)), dout * gate * s


class Maxout(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, num_pieces):
        if x.shape[-1] % num_pieces != 0:
            raise ValueError(f"features {x.shape[-1]} not divisible by pieces {num_pieces}")
        parts = x.view(*x.shape[:-1], -1, num_pieces)
        value, where = parts.max(-1)
        ctx.save_for_backward(where)
        ctx.pieces = num_pieces
        return value

    @staticmethod
    def backward(ctx, dy):
        (where,) = ctx.saved_tensors
        dx = torch.zeros(*dy.shape, ctx.pieces, dtype=dy.dtype)
        dx.scatter_(-1, where.unsqueeze(-1), dy.unsqueeze(-1))
        return dx.flatten(-2), None


class AreaCosh(Function):
    """Has no values below 1, and says so only by NaN."""

    expects = ("u",)

    @staticmethod
    def forward(ctx, u, least):
        root = (u * u - 1).sqrt()
        ctx.save_for_backward(root)
        ctx.least = least
        return (u + root).log()

    @staticmethod
    def backward(ctx, dy):
        (root,) = ctx.saved_tensors
        return dy / root.clamp(min=ctx.least), None
