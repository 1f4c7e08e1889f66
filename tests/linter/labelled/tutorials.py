# ruff: noqa: RUF059
"""Functions as tutorials, forum answers and course exercises write them."""

import torch
from torch.autograd import Function, Variable

scale = torch.tensor(2.0, requires_grad=True)
w = torch.randn(3, 3)


class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


class OldReLU(torch.autograd.Function):
    def forward(self, input):  # expect: PB311
        self.save_for_backward(input)
        return input.clamp(min=0)

    def backward(self, grad_output):  # expect: PB311
        (input,) = self.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


def old(x):
    return OldReLU()(Variable(x))  # expect: PB211


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


class MulConstant(Function):
    @staticmethod
    def forward(tensor, constant):
        return tensor * constant

    @staticmethod
    def setup_context(ctx, inputs, output):
        tensor, constant = inputs
        ctx.set_materialize_grads(False)
        ctx.constant = constant

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


class Cube(Function):
    @staticmethod
    def forward(x):
        dx = 3 * x**2
        result = x**3
        return result, dx

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        result, dx = output
        ctx.save_for_backward(x, dx)

    @staticmethod
    def backward(ctx, grad_output, grad_dx):
        x, dx = ctx.saved_tensors
        return grad_output * dx + grad_dx * 6 * x


class Debug(Function):
    @staticmethod
    def forward(ctx, x, name):
        ctx.name_ = name
        ctx.save_for_backward(x)  # expect: PB203
        print(name, x.mean())
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        print(ctx.name_, grad_output.mean())
        return grad_output, None


class Linear(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x)
        return x @ w + b

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output @ w.t(), x.t() @ grad_output, grad_output.sum(0)  # expect: PB121 PB306


class Scaled(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)  # expect: PB203
        return x * scale  # expect: PB121

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * scale  # expect: PB121


class Memory(Function):
    @staticmethod
    def forward(ctx, x):
        buffer = x * 2
        ctx.save_for_backward(x, buffer)  # expect: PB203
        return buffer.sin()

    @staticmethod
    def backward(ctx, grad_output):
        x, buffer = ctx.saved_tensors
        return 2 * grad_output * buffer.cos()


class Split(Function):
    @staticmethod
    def forward(ctx, x, size, dim):
        ctx.dim = dim
        ctx.size = size  # expect: PB204
        return x.narrow(dim, 0, size), x.narrow(dim, size, x.shape[dim] - size)

    @staticmethod
    def backward(ctx, a, b):
        return torch.cat([a, b], ctx.dim), None, None


class Swish(Function):
    @staticmethod
    def forward(ctx, x, beta=1.0):
        ctx.beta = beta
        ctx.sigmoid = torch.sigmoid(beta * x)  # expect: PB201
        ctx.save_for_backward(x)
        return x * ctx.sigmoid

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = ctx.sigmoid
        return grad_output * (s + ctx.beta * x * s * (1 - s))  # expect: PB110


def swish(x):
    return Swish.apply(x, 2.0)


class GuidedReLU(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.clamp(min=0) * (x > 0)  # expect: PB301


class Noise(Function):
    @staticmethod
    def forward(ctx, x):
        noise = torch.randn_like(x)
        ctx.noise = noise  # expect: PB201 PB204
        ctx.state = torch.get_rng_state()  # expect: PB204
        return x + noise

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        n = x.norm()
        ctx.save_for_backward(x)
        ctx.n = n  # expect: PB202
        return n

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x / ctx.n


class Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        y = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        y *= 1 - y  # expect: PB104
        return g * y


class Power(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            gx = g * ctx.n * x ** (ctx.n - 1)
        return gx, None  # expect: PB114


class Stack(Function):
    @staticmethod
    def forward(ctx, a, b):
        return {"sum": a + b, "difference": a - b}  # expect: PB208

    @staticmethod
    def backward(ctx, g, h):
        return g + h, g - h


class Max(Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.max(-1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.n = x.shape[-1]
        return values, index

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        return torch.nn.functional.one_hot(index, ctx.n) * g[..., None]


class InputTwice(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x.view_as(x)

    @staticmethod
    def backward(ctx, g, gx):  # expect: PB117
        x, y = ctx.saved_tensors
        return g * y, g * x


class DoubleBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return SinBackward.apply(g, x)


class SinBackward(Function):
    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        return g * x.cos()

    @staticmethod
    def backward(ctx, gg):
        g, x = ctx.saved_tensors
        return gg * x.cos(), -gg * g * x.sin()


class ListOfGradients(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return [g, g]  # expect: PB109


class ForgetsDefaults(Function):
    @staticmethod
    def forward(x, a=1.0, b=0.0):
        return a * x + b

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, a, b = inputs
        ctx.a = a

    @staticmethod
    def backward(ctx, g):
        return g * ctx.a  # expect: PB109


class SavesInHelper(Function):
    @staticmethod
    def remember(ctx, x):
        ctx.save_for_backward(x)
        ctx.kind = "sin"

    @staticmethod
    def forward(ctx, x):
        SavesInHelper.remember(ctx, x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() if ctx.kind == "sin" else g


class AllOrNothing(Function):
    @staticmethod
    def forward(ctx, x, y):
        if not any(ctx.needs_input_grad):
            return x * y
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        gx = g * y if x.requires_grad else None  # expect: PB207
        gy = g * x if y.requires_grad else None  # expect: PB207
        return gx, gy
