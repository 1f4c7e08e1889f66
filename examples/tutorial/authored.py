"""The examples of as_published.py with `pb.op`: right, at most eight lines each. What a rule names is what is kept."""

import torch
import torch.nn.functional as F

import pullback as pb


@pb.op(static=("split_size", "dim"))
def split(input, split_size: int, dim: int):
    """Cut a tensor in two along a dimension."""
    return tuple(part.clone() for part in input.split((split_size, input.shape[dim] - split_size), dim))


@split.vjp("input")
def _(dys, dim):
    return torch.cat(dys, dim)


@pb.op
def random_op(x):
    """Add noise. The derivative is 1 whatever was drawn."""
    return x + torch.randn_like(x)


@random_op.vjp("x")
def _(dy):
    return dy


@pb.op
def my_relu(x):
    """max(x, 0), keeping one byte an element."""
    return pb.keep(x.relu(), positive=x > 0)


@my_relu.vjp("x")
def _(dy, positive):
    return dy * positive


@pb.op(static=("p",))
def dropout(x, p: float = 0.5):
    """Zero each element with probability p, scale the others by 1 / (1 - p); p = 1 zeroes all."""
    mask = torch.rand(x.shape, device=x.device) >= p
    return pb.keep(x * mask * (scale := 1 / (1 - p) if p < 1 else 0.0), mask=mask, scale=scale)


@dropout.vjp("x")
def _(dy, mask, scale):
    return dy * mask * scale


@pb.op
def fused_linear_gelu(x, weight, bias=None):
    """GELU(x Wᵀ + b) in one node, keeping x Wᵀ + b so that backward need not compute it again."""
    z = F.linear(x, weight, bias)
    return pb.keep(F.gelu(z, approximate="tanh"), z=z)


fused_linear_gelu.vjp("z")(lambda dy, z: torch.ops.aten.gelu_backward(dy, z, approximate="tanh"))
fused_linear_gelu.vjp("x", of="z")(lambda dz, weight: dz.to(weight.dtype) @ weight)
fused_linear_gelu.vjp("weight", of="z")(lambda dz, x: torch.einsum("...o,...i->oi", dz.to(x.dtype), x))
fused_linear_gelu.vjp("bias", of="z")(lambda dz: torch.einsum("...o->o", dz))


@pb.op
def memory_efficient_op(x):
    """tanh(x)², keeping tanh(x) alone; its own rule makes second derivatives right."""
    return pb.keep((tanh := torch.tanh(x)) * tanh, tanh=tanh)


memory_efficient_op.vjp("tanh")(lambda dy, tanh: 2 * tanh * dy)
memory_efficient_op.vjp("x", of="tanh")(lambda dtanh, tanh: dtanh * (1 - tanh * tanh))


@pb.op(static=("scalar",))
def scalar_op(x, scalar: float):
    """x times a Python number."""
    return x * scalar


@scalar_op.vjp("x")
def _(dy, scalar):
    return dy * scalar


@pb.op
def buggy_function(x):
    """2x; its derivative needs nothing of the forward."""
    return x * 2


@buggy_function.vjp("x")
def _(dy):
    return dy * 2


@pb.op
def debug_function(x):
    """3x, printing what passes through and keeping nothing."""
    print("forward:", tuple(x.shape), x.dtype)
    return x * 3


@debug_function.vjp("x")
def _(dy):
    print("backward:", tuple(dy.shape), dy.dtype)
    return dy * 3


@pb.op
def swish(x, beta=1.0):
    """x · sigmoid(beta x); beta is a number or a tensor, which then gets its gradient."""
    return x * torch.sigmoid(beta * x)


swish.vjp("x")(lambda dy, x, beta: dy * (s := torch.sigmoid(beta * x)) * (1 + beta * x * (1 - s)))
swish.vjp("beta")(lambda dy, x, beta: dy * x * x * (s := torch.sigmoid(beta * x)) * (1 - s))


@pb.op(static=("coeff",))
def custom_relu(input, coeff):
    """max(x, 0) with the gradient of a leaky ReLU: units that are off keep learning."""
    return input.clamp(min=0)


@custom_relu.surrogate
def _(input, coeff):
    return torch.where(input < 0, coeff * input, input)


@pb.op(static=("scale",))
def scaled_sigmoid(x, scale: float):
    """sigmoid(x) with the gradient of scale · sigmoid(x): a learning rate of its own for this layer."""
    return torch.sigmoid(x)


@scaled_sigmoid.surrogate
def _(x, scale):
    return scale * torch.sigmoid(x)


@pb.op(static=("biased",))
def mul(w, x, b, biased: bool = True):
    """w x + b, or w x where biased is false. Each factor's gradient needs the other; b is needed by none."""
    return w * x + b if biased else w * x


mul.vjp("w")(lambda dy, x: dy * x)
mul.vjp("x")(lambda dy, w: dy * w)
mul.vjp("b")(lambda dy, biased: dy if biased else None)


@pb.op
def exp(x):
    """exp(x); its output is its derivative, so that is what it keeps."""
    return torch.exp(x)


@exp.vjp("x")
def _(dy, out):
    return dy * out


@pb.op
def guided_relu(x):
    """max(x, 0), which lets only positive gradients pass back: guided backpropagation."""
    return pb.keep(x.relu(), positive=x > 0)


@guided_relu.vjp("x", exact=False, linear=False, reason="guided backpropagation")
def _(dy, positive):
    return dy.clamp(min=0) * positive


@pb.op
def sigmoid(x):
    """1 / (1 + exp(-x)), keeping the output."""
    return 1 / (1 + torch.exp(-x))


@sigmoid.vjp("x")
def _(dy, out):
    return dy * out * (1 - out)


@pb.op
def parameter_inside(x, slope):
    """slope · x; the parameter comes in as an argument, so it gets its gradient."""
    return x * slope


parameter_inside.vjp("x")(lambda dy, slope: dy * slope)
parameter_inside.vjp("slope")(lambda dy, x: dy * x)


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def pullback_cases():
    yield pb.case(split, normal(3, 5), 2, 1)
    yield pb.case(random_op, normal(3, 4))
    yield pb.case(my_relu, normal(3, 4))
    yield pb.case(dropout, normal(6, 8), 0.25)
    yield pb.case(fused_linear_gelu, normal(2, 3, 5), normal(4, 5), normal(4))
    yield pb.case(fused_linear_gelu, normal(3, 5), normal(4, 5))
    yield pb.case(memory_efficient_op, normal(3, 4))
    yield pb.case(scalar_op, normal(3, 4), 2.5)
    yield pb.case(buggy_function, normal(3, 4))
    yield pb.case(debug_function, normal(3, 4))
    yield pb.case(swish, normal(3, 4))
    yield pb.case(swish, normal(3, 4), torch.tensor(1.5, dtype=torch.float64, requires_grad=True))
    yield pb.case(custom_relu, normal(3, 4), torch.tensor(0.1, dtype=torch.float64))
    yield pb.case(scaled_sigmoid, normal(3, 4), 2.0)
    yield pb.case(mul, normal(4), normal(4), normal(4))
    yield pb.case(exp, normal(3, 4))
    yield pb.case(guided_relu, normal(3, 4))
    yield pb.case(sigmoid, normal(3, 4))
    yield pb.case(parameter_inside, normal(3, 4), torch.tensor(0.25, dtype=torch.float64, requires_grad=True))
