"""The examples from which people learn autograd.Function, with the mistakes that usually come with them.

`pullback check examples/tutorial/as_published.py` names those mistakes; `mended.py` holds the same examples, right.
"""

import torch
import torch.nn.functional as F
from torch.autograd import Function

import pullback as pb


class Split(Function):
    """Cut a tensor in two along a dimension: two outputs, so two cotangents come in."""

    @staticmethod
    def forward(ctx, input, split_size, dim):
        ctx.save_for_backward(input)
        ctx.split_size, ctx.dim = split_size, dim
        rest = input.shape[dim] - split_size
        return input.narrow(dim, 0, split_size), input.narrow(dim, split_size, rest)

    @staticmethod
    def backward(ctx, grad_head, grad_tail):
        (input,) = ctx.saved_tensors
        grad_input = torch.zeros_like(input)
        grad_input.narrow(ctx.dim, 0, ctx.split_size).copy_(grad_head)
        grad_input.narrow(ctx.dim, ctx.split_size, grad_tail.shape[ctx.dim]).copy_(grad_tail)
        return grad_input, None, None


class RandomOp(Function):
    """Add noise."""

    @staticmethod
    def forward(ctx, x):
        ctx.rng_state = torch.get_rng_state()
        noise = torch.randn_like(x)
        ctx.save_for_backward(noise)
        return x + noise

    @staticmethod
    def backward(ctx, grad_output):
        (noise,) = ctx.saved_tensors
        return grad_output


class MyReLU(Function):
    """max(x, 0)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_x = grad_output.clone()
        grad_x[x < 0] = 0
        return grad_x


class Dropout(Function):
    """Zero each element with probability p, scale the others by 1 / (1 - p)."""

    @staticmethod
    def forward(ctx, x, p=0.5):
        mask = (torch.rand_like(x) >= p).float()
        ctx.save_for_backward(mask)
        ctx.p = p
        return x * mask / (1 - p)

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        # A tensor divided by the number 0 is inf or NaN, not an error.
        return grad_output * mask / (1 - ctx.p), None


def gelu_slope(u):
    """The derivative of tanh-GELU, u/2 · (1 + tanh(a (u + b u³)))."""
    a, b = (2 / torch.pi) ** 0.5, 0.044715
    t = torch.tanh(a * (u + b * u**3))
    return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * a * (1 + 3 * b * u**2)


class FusedLinearGELU(Function):
    """GELU(x Wᵀ + b) in one node; x has any number of leading dimensions, bias may be None."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        return F.gelu(F.linear(x, weight, bias), approximate="tanh")

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, bias = ctx.saved_tensors
        grad_linear = grad_output * gelu_slope(F.linear(x, weight, bias))
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_linear @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = torch.einsum("...o,...i->oi", grad_linear, x)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = torch.einsum("...o->o", grad_linear)
        return grad_x, grad_weight, grad_bias


class MemoryEfficientOp(Function):
    """tanh(x)², with a buffer from which the gradient can be had."""

    @staticmethod
    def forward(ctx, x):
        buffer = torch.tanh(x)
        ctx.save_for_backward(x, buffer)
        return buffer * buffer

    @staticmethod
    def backward(ctx, grad_output):
        x, buffer = ctx.saved_tensors
        return grad_output * 2 * buffer * (1 - buffer * buffer)


class ScalarOp(Function):
    """x times a Python number."""

    @staticmethod
    def forward(ctx, x, scalar):
        ctx.scalar = scalar
        return x * scalar

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.scalar, None


class BuggyFunction(Function):
    """2x. Often shown as wrong because it saves nothing; it needs nothing."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


class DebugFunction(Function):
    """3x, printing what passes through."""

    @staticmethod
    def forward(ctx, x):
        print("forward:", tuple(x.shape), x.dtype)
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, grad_output):
        print("backward:", tuple(grad_output.shape), grad_output.dtype)
        return grad_output * 3


class Swish(Function):
    """x · sigmoid(beta x)."""

    @staticmethod
    def forward(ctx, x, beta=1.0):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return grad_output * (s + ctx.beta * x * s * (1 - s)), None


class CustomReLU(Function):
    """max(x, 0), whose gradient on the negative side is not 0 but coeff."""

    @staticmethod
    def forward(ctx, input, coeff):
        ctx.save_for_backward(input, coeff)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        input, coeff = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] *= coeff
        return grad_input, None


class ScaledSigmoid(Function):
    """sigmoid(x), whose gradient is scaled."""

    @staticmethod
    def forward(ctx, x, scale):
        y = torch.sigmoid(x)
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * ctx.scale * y * (1 - y), None


x = torch.tensor([0.5, -1.25, 2.0, 0.75], dtype=torch.float64, requires_grad=True)


class Mul(Function):
    """w x + b, or w x where biased is false."""

    @staticmethod
    def forward(ctx, w, x, b, biased=True):
        ctx.save_for_backward(w, b)
        ctx.biased = biased
        return w * x + b if biased else w * x

    @staticmethod
    def backward(ctx, grad_output):
        w, b = ctx.saved_tensors
        return grad_output * x, grad_output * w, grad_output if ctx.biased else None, None


class Exp(Function):
    """exp(x); its output is its derivative, so that is what it keeps."""

    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


class GuidedReLU(Function):
    """max(x, 0), which lets only positive gradients pass back."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.clamp(min=0) * (x > 0)


class Sigmoid(Function):
    """1 / (1 + exp(-x)), keeping the output."""

    @staticmethod
    def forward(ctx, x):
        y = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y * (1 - y)


slope = torch.nn.Parameter(torch.tensor(0.25))


class ParameterInside(Function):
    """slope · x, where slope is a parameter that lives outside and so never gets a gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * slope

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * slope


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def pullback_cases():
    yield pb.case(Split, normal(3, 5), 2, 1)
    yield pb.case(RandomOp, normal(3, 4))
    yield pb.case(MyReLU, normal(3, 4))
    yield pb.case(Dropout, normal(6, 8), 0.25)
    yield pb.case(FusedLinearGELU, normal(2, 3, 5), normal(4, 5), normal(4))
    yield pb.case(FusedLinearGELU, normal(3, 5), normal(4, 5))
    yield pb.case(MemoryEfficientOp, normal(3, 4))
    yield pb.case(ScalarOp, normal(3, 4), 2.5)
    yield pb.case(BuggyFunction, normal(3, 4))
    yield pb.case(DebugFunction, normal(3, 4))
    yield pb.case(Swish, normal(3, 4))
    yield pb.case(Swish, normal(3, 4), torch.tensor(1.5, dtype=torch.float64, requires_grad=True))
    yield pb.case(CustomReLU, normal(3, 4), torch.tensor(0.1, dtype=torch.float64))
    yield pb.case(ScaledSigmoid, normal(3, 4), 2.0)
    yield pb.case(Mul, normal(4), x, normal(4))
    yield pb.case(Exp, normal(3, 4))
    yield pb.case(GuidedReLU, normal(3, 4))
    yield pb.case(Sigmoid, normal(3, 4))
    yield pb.case(ParameterInside, normal(3, 4))
