"""Right code in the style of torch's documentation, and the tutorial files, give no finding at all."""

from pathlib import Path

import pytest

from pullback.linter.engine import lint

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tutorial"

LINEAR = """
class LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(input, weight, bias):
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight, bias)

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
"""
RELU = """
class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = dy.clone()
        dx[x < 0] = 0
        return dx
"""
CUBE = """
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        slope = 3 * x**2
        return x**3, slope

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        _, slope = output
        ctx.save_for_backward(x, slope)

    @staticmethod
    def backward(ctx, dy, d_slope):
        x, slope = ctx.saved_tensors
        return dy * slope + d_slope * 6 * x
"""
SORT = """
class Sort(torch.autograd.Function):
    generate_vmap_rule = False

    @staticmethod
    def forward(x, dim):
        index = torch.argsort(x, dim=dim)
        inverse = torch.argsort(index, dim=dim)
        return torch.gather(x, dim, index), index, inverse

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, dim = inputs
        _, index, inverse = output
        ctx.mark_non_differentiable(index, inverse)
        ctx.save_for_backward(index, inverse)
        ctx.dim = dim

    @staticmethod
    def backward(ctx, dy, _0, _1):
        index, inverse = ctx.saved_tensors
        return Take.apply(dy, inverse, index, ctx.dim), None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        x_bdim, _ = in_dims
        x = x.movedim(x_bdim, 0)
        return Sort.apply(x, dim + 1), (0, 0, 0)


class Take(torch.autograd.Function):
    @staticmethod
    def forward(x, index, inverse, dim):
        return torch.gather(x, dim, index)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, index, inverse, dim = inputs
        ctx.save_for_backward(index, inverse)
        ctx.dim = dim

    @staticmethod
    def backward(ctx, dy):
        index, inverse = ctx.saved_tensors
        return Take.apply(dy, inverse, index, ctx.dim), None, None, None
"""
FORWARD_MODE = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y

    @staticmethod
    def jvp(ctx, dx):
        (y,) = ctx.saved_tensors
        return dx * y
"""
MUTATING = """
class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy, dy
"""
PAIRED = """
class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *tensors):
        ctx.run = run
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return run(*tensors)

    @staticmethod
    def backward(ctx, dy):
        inputs = [t.detach().requires_grad_(need) for t, need in zip(ctx.saved_tensors, ctx.needs_input_grad[1:])]
        with torch.enable_grad():
            y = ctx.run(*inputs)
        wanted = [t for t in inputs if t.requires_grad]
        found = iter(torch.autograd.grad(y, wanted, dy))
        return None, *[next(found) if t.requires_grad else None for t in inputs]
"""
CONSTANT = """
class MulConstant(torch.autograd.Function):
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
"""
BATCH_NORM = """
class Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, running_mean, momentum):
        mean = x.mean(0)
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        return x - mean

    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(0), None, None
"""
CACHED = """
tables = {}


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        key = (x.device, x.dtype)
        if key not in tables:
            tables[key] = torch.linspace(0, 1, 256, device=x.device, dtype=x.dtype)
        ctx.save_for_backward(x)
        return tables[key][x.long()]

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x < 255)
"""
CHECKED = """
class Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if not x.is_contiguous() or x.dtype == torch.float64:
            raise ValueError("x must be contiguous float32")
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        kernel[(x.shape[0],)](dy, w, dx)
        return dx, (dy * x).sum(0)
"""
VARIADIC = """
class Concat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim = dim
        ctx.sizes = [t.shape[dim] for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, dy):
        return (None, *dy.split(ctx.sizes, ctx.dim))
"""
NUMBER_OR_TENSOR = """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        is_tensor = isinstance(a, torch.Tensor)
        ctx.is_tensor = is_tensor
        if is_tensor:
            ctx.save_for_backward(a, b)
        else:
            ctx.a = a
            ctx.save_for_backward(b)
        return a * b

    @staticmethod
    def backward(ctx, dy):
        if not ctx.is_tensor:
            return None, dy * ctx.a
        a, b = ctx.saved_tensors
        return dy * b, dy * a
"""
NAN_GUARDS = """
class DropsNan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.log()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = dy / x
        return torch.where(dx != dx, 0, dx)


class DropsNanByName(DropsNan):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.nan_to_num(dy) / x
        return dx.masked_fill(torch.isnan(dx), 0.0)
"""
FLAGS = """
def shifted(x, by, inplace=False):
    if inplace:
        return x.add_(by)
    else:
        return x + by


class Ratio(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x + 1
        ctx.save_for_backward(x, y)
        return y.log()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return 2 * x * dy / shifted(y, 0.0) * shifted(y, 0.0, inplace=False) / y
"""
RECOMPUTING = """
class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run(*args)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        args = [a.detach().requires_grad_() for a in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.run(*args)
        return (None,) + torch.autograd.grad(y, args, dy)
"""
QUANTISED = """
class Dequantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.scheme.is_floating_point:
            return x.values.to(x.scale.dtype) * x.scale
        return x.values * x.scale

    @staticmethod
    def backward(ctx, dy):
        return dy
"""
REFUSING = """
class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, where, values):
        assert where.requires_grad == False
        ctx.save_for_backward(where)
        ctx.rows = values.shape[0]
        return values[where]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (where,) = ctx.saved_tensors
        return None, dy.new_zeros(ctx.rows, *dy.shape[1:]).index_add_(0, where, dy)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        assert weight.requires_grad, "a frozen weight needs no Function"
        if not x.requires_grad:
            raise ValueError("x must require grad")
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy * weight, dy * x
"""
RIGHT = {name.lower(): text for name, text in list(globals().items()) if name.isupper() and isinstance(text, str)}


@pytest.mark.parametrize("text", RIGHT.values(), ids=list(RIGHT))
def test_documented_styles_have_no_finding(run, text: str):
    assert run(text) == []


@pytest.mark.parametrize("name", ["mended.py", "authored.py"])
def test_tutorial_files_have_no_finding(name: str):
    path = EXAMPLES / name
    if not path.is_file():
        pytest.skip(f"examples/tutorial/{name} is not there")
    report = lint([path])
    assert [f"{f.location} {f.code} {f.message}" for f in report.findings] == []
