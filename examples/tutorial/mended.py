"""The examples of as_published.py, right. Where a gradient deliberately differs from the derivative, `__pullback__` says so."""

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import pullback as pb


class Split(Function):
    """Cut a tensor in two along a dimension; the outputs are copies, and nothing is kept."""

    @staticmethod
    def forward(ctx, input, split_size, dim):
        ctx.dim = dim
        rest = input.shape[dim] - split_size
        return input.narrow(dim, 0, split_size).clone(), input.narrow(dim, split_size, rest).clone()

    @staticmethod
    def backward(ctx, grad_head, grad_tail):
        return torch.cat((grad_head, grad_tail), ctx.dim), None, None


class RandomOp(Function):
    """Add noise. The derivative is 1 whatever was drawn."""

    @staticmethod
    def forward(ctx, x):
        return x + torch.randn_like(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class MyReLU(Function):
    """max(x, 0), keeping one byte an element instead of the whole input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x > 0)
        return x.relu()

    @staticmethod
    def backward(ctx, grad_output):
        (positive,) = ctx.saved_tensors
        return grad_output * positive


class Dropout(Function):
    """Zero each element with probability p, scale the others by 1 / (1 - p); p = 1 zeroes all."""

    @staticmethod
    def forward(ctx, x, p=0.5):
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is a probability, got {p}")
        mask = torch.rand(x.shape, device=x.device) >= p
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - p) if p < 1 else 0.0
        return x * mask * ctx.scale

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask * ctx.scale, None


def gelu_slope(u):
    """The derivative of tanh-GELU, u/2 · (1 + tanh(a (u + b u³)))."""
    a, b = (2 / torch.pi) ** 0.5, 0.044715
    t = torch.tanh(a * (u + b * u**3))
    return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * a * (1 + 3 * b * u**2)


class FusedLinearGELU(Function):
    """GELU(x Wᵀ + b) in one node, keeping x Wᵀ + b so that backward need not compute it again."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        linear = F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, linear)
        return F.gelu(linear, approximate="tanh")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, linear = ctx.saved_tensors
        # Under autocast `linear` has less precision than x and weight.
        grad_linear = (grad_output * gelu_slope(linear)).to(weight.dtype)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_linear @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = torch.einsum("...o,...i->oi", grad_linear, x)
        if any(ctx.needs_input_grad[2:]):  # empty where the call leaves bias out
            grad_bias = torch.einsum("...o->o", grad_linear)
        return grad_x, grad_weight, grad_bias


class MemoryEfficientOp(Function):
    """tanh(x)², keeping tanh(x) alone. It is an intermediate, so second derivatives are refused instead of wrong."""

    @staticmethod
    def forward(ctx, x):
        tanh = torch.tanh(x)
        ctx.save_for_backward(tanh)
        return tanh * tanh

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (tanh,) = ctx.saved_tensors
        return grad_output * 2 * tanh * (1 - tanh * tanh)


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
    """2x; its derivative needs nothing of the forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


class DebugFunction(Function):
    """3x, printing what passes through and keeping nothing."""

    @staticmethod
    def forward(ctx, x):
        print("forward:", tuple(x.shape), x.dtype)
        return x * 3

    @staticmethod
    def backward(ctx, grad_output):
        print("backward:", tuple(grad_output.shape), grad_output.dtype)
        return grad_output * 3


class Swish(Function):
    """x · sigmoid(beta x); beta is a number or a tensor, which then gets its gradient. Works under torch.func and vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, beta=1.0):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, beta = inputs
        if isinstance(beta, torch.Tensor):
            ctx.save_for_backward(x, beta)
        else:
            ctx.save_for_backward(x)
            ctx.beta = beta

    @staticmethod
    def backward(ctx, grad_output):
        x, *tensors = ctx.saved_tensors
        beta = tensors[0] if tensors else ctx.beta
        s = torch.sigmoid(beta * x)
        y = x * s
        grad_beta = (grad_output * y * (x - y)).sum_to_size(beta.shape) if ctx.needs_input_grad[1] else None
        return grad_output * (s + beta * y * (1 - s)), grad_beta


def leaky_relu(input, coeff):
    return torch.where(input < 0, coeff * input, input)


class CustomReLU(Function):
    """max(x, 0) with the gradient of a leaky ReLU."""

    __pullback__ = {"surrogate": leaky_relu, "static": ("coeff",), "reason": "units that are off keep learning"}

    @staticmethod
    def forward(ctx, input, coeff):
        ctx.save_for_backward(input < 0, coeff)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        negative, coeff = ctx.saved_tensors
        return torch.where(negative, grad_output * coeff, grad_output), None


class ScaledSigmoid(Function):
    """sigmoid(x) with the gradient of scale · sigmoid(x)."""

    __pullback__ = {"surrogate": lambda x, scale: scale * torch.sigmoid(x), "reason": "a learning rate of its own for this layer"}

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


class Mul(Function):
    """w x + b, or w x where biased is false. Each factor's gradient needs the other; b is needed by none."""

    @staticmethod
    def forward(ctx, w, x, b, biased=True):
        ctx.save_for_backward(w, x)
        ctx.biased = biased
        return w * x + b if biased else w * x

    @staticmethod
    def backward(ctx, grad_output):
        w, x = ctx.saved_tensors
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

    __pullback__ = {"exact": False, "linear": False, "reason": "guided backpropagation"}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x > 0)
        return x.relu()

    @staticmethod
    def backward(ctx, grad_output):
        (positive,) = ctx.saved_tensors
        return grad_output.clamp(min=0) * positive


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


class ParameterInside(Function):
    """slope · x; the parameter comes in as an argument, so it gets its gradient."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return x * slope

    @staticmethod
    def backward(ctx, grad_output):
        x, slope = ctx.saved_tensors
        return grad_output * slope, (grad_output * x).sum_to_size(slope.shape)


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
    yield pb.case(Mul, normal(4), normal(4), normal(4))
    yield pb.case(Exp, normal(3, 4))
    yield pb.case(GuidedReLU, normal(3, 4))
    yield pb.case(Sigmoid, normal(3, 4))
    yield pb.case(ParameterInside, normal(3, 4), torch.tensor(0.25, dtype=torch.float64, requires_grad=True))
