"""Mistakes with autograd, each with what is to be said about it: words of the first line, where it shows, what else is shown, and words of the fix.

A place is named by the marker at the end of its line.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


class Mistake(NamedTuple):
    run: Callable[[], Any]
    error: type[Exception]
    headline: str
    at: str
    fix: str
    shown: dict[str, str]


MISTAKES: list[Mistake] = []


def mistake(error, headline, at, fix, **shown):
    def register(run):
        MISTAKES.append(Mistake(run, error, headline, at, fix, {word.replace("_", " "): marker for word, marker in shown.items()}))
        return run

    return register


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


class Square(Function):
    @staticmethod
    def forward(ctx, x):  # at Square.forward
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):  # at Square.backward
        (x,) = ctx.saved_tensors
        return 2 * x * dy


class Product(Function):
    @staticmethod
    def forward(ctx, x, w):  # at Product.forward
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy  # at Product.backward line


@mistake(RuntimeError, "second time: what ExpBackward0 saved was freed", "native again", "on the sum of the losses", freed_by="native once")
def second_backward():
    y = leaf(3).exp().sum()
    y.backward()  # at native once
    y.backward()  # at native again


@mistake(RuntimeError, "second time: what Square saved was freed", "again", "retain_graph=True", freed_by="once", reads_it="Square.backward")
def second_backward_of_a_function():
    y = Square.apply(leaf(3)).sum()
    y.backward()  # at once
    y.backward()  # at again


@mistake(RuntimeError, "second time: what TanhBackward0 saved", "recurrent", "h = h.detach()", freed_by="recurrent")
def hidden_state_of_the_step_before():
    cell, h = nn.RNNCell(3, 3), torch.zeros(1, 3)
    for _ in range(2):
        h = cell(torch.ones(1, 3), h)
        h.sum().backward()  # at recurrent


@mistake(RuntimeError, "second time: what ExpBackward0 saved", "grad again", "retain_graph=True", freed_by="grad once")
def second_autograd_grad():
    x = leaf(3)
    y = x.exp().sum()
    torch.autograd.grad(y, x)  # at grad once
    torch.autograd.grad(y, x)  # at grad again


@mistake(RuntimeError, "saved tensors are read after backward has freed them", "read late", "before backward", freed_by="freed early")
def saved_tensors_after_backward():
    y = Square.apply(leaf(3))
    node = y.grad_fn
    y.sum().backward()  # at freed early
    return node.saved_tensors  # at read late


@mistake(
    RuntimeError,
    "y, which ExpBackward0 saved for backward, was modified by an inplace operation (add_)",
    "writes y",
    "x = x + 1",
    backward="backward y",
)
def saved_output_written():
    x = leaf(3)
    y = x.exp()
    z = 2 * y
    y.add_(1)  # at writes y
    z.sum().backward()  # at backward y


@mistake(
    RuntimeError,
    "x, which Square saved for backward, was modified by an inplace operation (+=)",
    "writes x",
    "clone()",
    needed_by="Square.backward",
    backward="backward x",
)
def saved_input_of_a_function_written():
    x = 1 * leaf(3)
    y = Square.apply(x)
    x += 1  # at writes x
    y.sum().backward()  # at backward x


@mistake(RuntimeError, "(item assignment)", "writes item", "clone()")
def saved_tensor_assigned_to():
    x = 1 * leaf(3)
    y = x * x
    x[0] = 5  # at writes item
    y.sum().backward()


@mistake(RuntimeError, "saved for backward, was modified by an inplace operation (relu_)", "inplace module", "clone()")
def inplace_module():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(inplace=True))
    y = model(torch.ones(2, 3))  # at inplace module
    y.sum().backward()


class AddsOne(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)  # at AddsOne writes
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(RuntimeError, "x, which MulBackward0 saved for backward, was modified", "AddsOne writes", "ctx.mark_dirty(it)")
def mark_dirty_missing():
    x = 1 * leaf(3)
    z = x * x
    y = AddsOne.apply(x)
    (y + z).sum().backward()


@mistake(
    RuntimeError,
    "model.1.weight, which AddmmBackward0 saved, was modified by an inplace operation: by optimizer.step()",
    "late backward",
    "both backwards",
    written="early step",
)
def modified_by_the_optimizer():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    y = model(torch.ones(2, 3)).sum()
    y.backward(retain_graph=True)
    optimizer.step()  # at early step
    y.backward()  # at late backward


@mistake(RuntimeError, "x is a leaf that requires grad, and is modified by an in-place operation", "leaf written", "torch.no_grad()")
def leaf_in_place():
    x = leaf(3)
    x.add_(1)  # at leaf written


@mistake(RuntimeError, "x is a leaf that requires grad", "leaf item", "x = x.clone()")
def leaf_assigned_to():
    x = leaf(3)
    x[0] = 1  # at leaf item


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):  # at Dirty.forward
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(RuntimeError, "Dirty writes in place into an argument that is a leaf", "dirty leaf", "x.clone()", forward="Dirty.forward")
def dirty_leaf():
    Dirty.apply(leaf(3))  # at dirty leaf


class DirtyLost(Function):
    @staticmethod
    def forward(ctx, x):  # at DirtyLost.forward
        ctx.mark_dirty(x)
        return 2 * x.add_(1)

    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(
    RuntimeError,
    "DirtyLost marks a tensor as dirty that its forward does not return",
    "dirty lost",
    "return the very tensor",
    forward="DirtyLost.forward",
)
def dirty_not_returned():
    DirtyLost.apply(1 * leaf(3))  # at dirty lost


@mistake(RuntimeError, "a is output 0 of Split, which returns several views", "view written", "a = a.clone()")
def view_of_several_in_place():
    a, _ = (1 * leaf(4)).split(2)
    a.add_(1)  # at view written


class Halves(Function):
    @staticmethod
    def forward(ctx, x):  # at Halves.forward
        return x[:2], x[2:]

    @staticmethod
    def backward(ctx, da, db):
        return torch.cat([da, db])


@mistake(RuntimeError, "a is output 0 of Halves, which returns several views", "half written", "copies from Halves.forward", forward="Halves.forward")
def view_of_a_function_in_place():
    a, _ = Halves.apply(1 * leaf(4))
    a.mul_(2)  # at half written


class Flat(Function):
    @staticmethod
    def forward(ctx, x):  # at Flat.forward
        return x.view(-1)

    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(RuntimeError, "y is a view that Flat returns, and is modified inplace", "flat written", "y.clone()", forward="Flat.forward")
def only_view_of_a_function_in_place():
    y = Flat.apply(1 * leaf(4))
    y += 1  # at flat written


@mistake(RuntimeError, "v is a view that was made under no_grad", "quiet view written", "both outside", block="quiet view")
def view_made_under_no_grad():
    x = 1 * leaf(4)
    with torch.no_grad():  # at quiet view
        v = x[:2]
    v.add_(1)  # at quiet view written


class OneGradient(Function):
    @staticmethod
    def forward(ctx, x, w):  # at OneGradient.forward
        return x * w

    @staticmethod
    def backward(ctx, dy):  # at OneGradient.backward
        return dy


@mistake(
    RuntimeError,
    "OneGradient.backward returned an incorrect number of gradients: 1, where forward takes 2 arguments",
    "OneGradient.backward",
    "return grad_x, grad_w",
    forward="OneGradient.forward",
    backward="one gradient",
)
def wrong_number_of_gradients():
    OneGradient.apply(leaf(3), leaf(3)).sum().backward()  # at one gradient


class WrongShape(Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * w

    @staticmethod
    def backward(ctx, dy):  # at WrongShape.backward
        return dy, dy[:2]


@mistake(
    RuntimeError,
    "WrongShape.backward returned an invalid gradient for w: got [2] but expected",
    "WrongShape.backward",
    "shape of w",
    backward="wrong shape",
)
def wrong_shape():
    WrongShape.apply(leaf(3), leaf(3)).sum().backward()  # at wrong shape


class WrongDevice(Function):
    @staticmethod
    def forward(ctx, x):
        return 1 * x

    @staticmethod
    def backward(ctx, dy):  # at WrongDevice.backward
        return dy.to("meta")


@mistake(
    RuntimeError,
    "WrongDevice.backward returned an invalid gradient for x: expected device cpu but got meta",
    "WrongDevice.backward",
    "grad_x.to(x.device)",
)
def wrong_device():
    WrongDevice.apply(leaf(3)).sum().backward()


class WrongDtype(Function):
    @staticmethod
    def forward(ctx, x):
        return 1 * x

    @staticmethod
    def backward(ctx, dy):  # at WrongDtype.backward
        return dy + 0j


@mistake(RuntimeError, "WrongDtype.backward returned a complex gradient for a real argument", "WrongDtype.backward", "grad.real")
def wrong_dtype():
    WrongDtype.apply(leaf(3)).sum().backward()


class NoTensor(Function):
    @staticmethod
    def forward(ctx, x):
        return 1 * x

    @staticmethod
    def backward(ctx, dy):  # at NoTensor.backward
        return 3.0


@mistake(RuntimeError, "NoTensor.backward returned a float where a gradient must be", "NoTensor.backward", "torch.full_like")
def gradient_that_is_no_tensor():
    NoTensor.apply(leaf(3)).sum().backward()


class NoScale(Function):
    @staticmethod
    def forward(ctx, x):  # at NoScale.forward
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.scale  # at NoScale reads


@mistake(
    AttributeError,
    "NoScale.backward reads ctx.scale, which forward did not set",
    "NoScale reads",
    "set ctx.scale",
    forward="NoScale.forward",
    called_at="no scale",
)
def ctx_attribute_missing():
    NoScale.apply(leaf(3)).sum().backward()  # at no scale


class SavesNumber(Function):
    @staticmethod
    def forward(ctx, x):  # at SavesNumber.forward
        ctx.save_for_backward(x, 3)
        return x * 3

    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(
    TypeError,
    "SavesNumber gives ctx.save_for_backward an argument of type int (number 2)",
    "SavesNumber.forward",
    "ctx.scale = scale",
    apply="saves number",
)
def save_for_backward_of_a_number():
    SavesNumber.apply(leaf(3))  # at saves number


class UnpacksTwo(Function):
    @staticmethod
    def forward(ctx, x):  # at UnpacksTwo.forward
        ctx.save_for_backward(x)
        return 1 * x

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors  # at UnpacksTwo reads
        return dy * x * y


@mistake(
    ValueError,
    "UnpacksTwo.backward unpacks another number of tensors from ctx.saved_tensors",
    "UnpacksTwo reads",
    "same order",
    forward="UnpacksTwo.forward",
)
def saved_tensors_unpacked_wrongly():
    UnpacksTwo.apply(leaf(3)).sum().backward()


class Unmaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 1 * x, 2 * x

    @staticmethod
    def backward(ctx, da, db):
        return da + db  # at Unmaterialized adds


@mistake(
    TypeError, "Unmaterialized.backward computes with db, which is None here", "Unmaterialized adds", "treat it as zero", called_at="unmaterialized"
)
def undefined_gradient():
    Unmaterialized.apply(leaf(3))[0].sum().backward()  # at unmaterialized


class AsksAutograd(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.autograd.grad((x * x).sum(), x)[0] * dy  # at AsksAutograd asks


@mistake(
    RuntimeError,
    "AsksAutograd.backward asks autograd for a gradient, but grad mode is off",
    "AsksAutograd asks",
    "torch.enable_grad()",
    called_at="asks",
)
def autograd_inside_of_backward():
    AsksAutograd.apply(leaf(3)).sum().backward()  # at asks


class TakesOne(Function):
    @staticmethod
    def forward(ctx, x):  # at TakesOne.forward
        return 1 * x, 2 * x

    @staticmethod
    def backward(ctx, dy):  # at TakesOne.backward
        return dy


@mistake(
    TypeError,
    "TakesOne.backward must take ctx and one gradient for each of the 2 outputs",
    "TakesOne.backward",
    "def backward(ctx, grad_output1, grad_output2)",
    forward="TakesOne.forward",
)
def backward_takes_too_few():
    TakesOne.apply(leaf(3))[0].sum().backward()


class NoBackward(Function):
    @staticmethod
    def forward(ctx, x):  # at NoBackward.forward
        return 1 * x


@mistake(NotImplementedError, "NoBackward has no backward", "NoBackward.forward", "def backward(ctx, grad_output)", backward="no backward")
def no_backward():
    NoBackward.apply(leaf(3)).sum().backward()  # at no backward


class NoForward(Function):
    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(NotImplementedError, "NoForward has no forward", "no forward", "def forward(ctx, x)")
def no_forward():
    NoForward.apply(leaf(3))  # at no forward


@mistake(TypeError, "Square.forward is called directly", "direct", "Square.apply(x)", forward="Square.forward")
def direct_forward():
    Square.forward(leaf(3))  # at direct


@mistake(AttributeError, "Square.forward is called directly", "direct none", "Square.apply(x)", forward="Square.forward")
def direct_forward_without_ctx():
    Square.forward(None, leaf(3))  # at direct none


@mistake(RuntimeError, "Square is made an instance and called", "instance", "Square.apply(…)")
def instance():
    function: Any = Square.__new__(Square)
    function(leaf(3))  # at instance


@mistake(
    TypeError,
    "Square.apply got the keyword argument k, which its forward does not have",
    "unknown keyword",
    "Square.apply(x)",
    forward="Square.forward",
)
def unknown_keyword():
    Square.apply(leaf(3), k=2)  # at unknown keyword


class KeywordOnly(Function):
    @staticmethod
    def forward(ctx, x, *, k):  # at KeywordOnly.forward
        return x * k

    @staticmethod
    def backward(ctx, dy):
        return dy, None


@mistake(TypeError, "KeywordOnly.apply got the keyword argument k", "keyword only", "leave out the *", forward="KeywordOnly.forward")
def keyword_only():
    KeywordOnly.apply(leaf(3), k=2)  # at keyword only


@mistake(TypeError, "Square.apply does not get the arguments of forward", "no argument", "Square.apply(x)")
def argument_missing():
    Square.apply()  # at no argument


class NotStatic(Function):
    def forward(self, ctx, x):  # at NotStatic.forward
        return 1 * x

    def backward(self, ctx, dy):
        return dy


@mistake(TypeError, "NotStatic.forward is not a static method", "NotStatic.forward", "@staticmethod above it", called_at="not static")
def not_static():
    NotStatic.apply(leaf(3))  # at not static


@mistake(RuntimeError, "backward of y, which is float32 [3]", "not scalar", "y.sum().backward()")
def backward_of_a_vector():
    y = 2 * leaf(3)
    y.backward()  # at not scalar


@mistake(RuntimeError, "only for real scalar outputs", "complex", "y.abs().sum()")
def backward_of_a_complex_scalar():
    y = (leaf(3) * (1 + 1j)).sum()
    y.backward()  # at complex


@mistake(RuntimeError, "Mismatch in shape", "other shape", "torch.ones_like(y)")
def gradient_of_another_shape():
    y = 2 * leaf(3)
    y.backward(torch.ones(2))  # at other shape


@mistake(RuntimeError, "y does not require grad and does not have a grad_fn: nothing that it is computed from", "no graph", "requires_grad_()")
def nothing_requires_grad():
    y = torch.ones(3).sum()
    y.backward()  # at no graph


@mistake(
    RuntimeError,
    "loss does not require grad and does not have a grad_fn: its graph is cut",
    "detached backward",
    "where the gradient must pass",
    cut_by="detached",
)
def detached_on_the_way():
    h = 2 * leaf(3)
    print_only = h.detach().sum()
    h = h.detach()  # at detached
    loss = (h - print_only).square().sum()
    loss.backward()  # at detached backward


def helper(h):
    return h.long()  # at helper casts


@mistake(RuntimeError, "its graph is cut", "cast backward", "not floating has no gradient", cut_by="helper casts")
def cast_to_integers():
    h = helper(2 * leaf(3))
    loss = h.float().sum()
    loss.backward()  # at cast backward


@mistake(RuntimeError, "its graph is cut", "numpy backward", "compute with tensors", cut_by="through numpy")
def through_numbers():
    h = 2 * leaf(3)
    loss = torch.tensor(h.sum().item())  # at through numpy
    loss.backward()  # at numpy backward


@mistake(RuntimeError, "its graph is cut", "data backward", ".data leaves the graph", cut_by="data")
def through_data():
    h = 2 * leaf(3)
    h = h.data * 2  # at data
    h.sum().backward()  # at data backward


@mistake(RuntimeError, "its graph is cut", "quiet backward", "move the forward out", cut_by="quiet forward")
def forward_under_no_grad():
    x = leaf(3)
    with torch.no_grad():  # at quiet forward
        y = 2 * x
        loss = y.sum()
    loss.backward()  # at quiet backward


@mistake(RuntimeError, "every parameter of model has requires_grad=False", "frozen", "model.requires_grad_(True)")
def frozen_model():
    model = nn.Linear(3, 3).requires_grad_(False)
    model(torch.ones(2, 3)).sum().backward()  # at frozen


class ReturnsList(Function):
    @staticmethod
    def forward(ctx, x):  # at ReturnsList.forward
        return [1 * x]

    @staticmethod
    def backward(ctx, dy):
        return dy


@mistake(RuntimeError, "ReturnsList.forward returns a list", "list backward", "return a tuple", forward="ReturnsList.forward")
def forward_returns_a_list():
    (y,) = ReturnsList.apply(leaf(3))
    y.sum().backward()  # at list backward


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


@mistake(RuntimeError, "Once.backward is marked once_differentiable", "twice", "no second derivative", first="first derivative")
def differentiated_twice():
    x = leaf(3)
    (g,) = torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)  # at first derivative
    g.sum().backward()  # at twice


@mistake(RuntimeError, "w, a differentiated Tensor, appears to not have been used in the graph", "unused", "from w itself")
def unused_input():
    x, w = leaf(3), leaf(3)
    torch.autograd.grad((2 * x).sum(), w)  # at unused


@mistake(RuntimeError, "w, one of the differentiated Tensors, does not require grad", "no need", "w.requires_grad_()")
def input_without_grad():
    x, w = leaf(3), torch.ones(3)
    torch.autograd.grad((2 * x).sum(), w)  # at no need


@mistake(TypeError, "w.grad is None: no backward has run yet", "too early", "loss.backward()")
def gradient_read_before_backward():
    w = leaf(3)
    with torch.no_grad():
        w -= 0.1 * w.grad  # at too early


@mistake(
    AttributeError,
    "x.grad is None after backward: its graph is cut",
    "none read",
    "where the gradient must pass",
    cut_by="none cut",
    backward="none backward",
)
def gradient_none_after_detach():
    x = leaf(3)
    y = x.detach().requires_grad_()  # at none cut
    y.sum().backward()  # at none backward
    x.grad.zero_()  # at none read


@mistake(AttributeError, "w.grad is None: w is not a leaf but computed (by Mul)", "computed read", "w.retain_grad()")
def gradient_of_a_computed_tensor():
    w = 0.1 * leaf(3)
    w.sum().backward()
    w.grad.zero_()  # at computed read


@mistake(TypeError, "x.grad is None: x does not require grad", "plain read", "x.requires_grad_()")
def gradient_of_a_plain_tensor():
    x = torch.ones(3)
    return 2 * x.grad  # at plain read


@mistake(
    RuntimeError,
    "Product.backward: expected m1 and m2 to have the same dtype",
    "Product.backward line",
    "custom_bwd",
    forward="Product.forward",
    called_at="autocast backward",
)
def autocast_without_custom_fwd():
    layer = nn.Linear(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = Product.apply(layer(torch.ones(2, 3)), leaf(3, 3))
    y.sum().backward()  # at autocast backward


@mistake(RuntimeError, "an integer or boolean tensor cannot require grad", "integer", "x.float()")
def requires_grad_on_integers():
    torch.ones(3, dtype=torch.long, requires_grad=True)  # at integer


@mistake(RuntimeError, "an integer or boolean tensor cannot require grad", "integer parameter", "a buffer")
def integer_parameter():
    nn.Parameter(torch.arange(3))  # at integer parameter


@mistake(RuntimeError, "numpy() on a Tensor that requires grad", "numpy", "x.detach().numpy()")
def numpy_of_a_tensor_with_grad():
    leaf(3).numpy()  # at numpy


@mistake(RuntimeError, "made under torch.inference_mode()", "inference used", "torch.no_grad()", block="inference")
def inference_tensor():
    with torch.inference_mode():  # at inference
        x = torch.ones(3)
    return x * leaf(3)  # at inference used


@mistake(RuntimeError, "attempting to assign a gradient of size '[2]'", "assigned", "tensor's own shape")
def gradient_assigned():
    x = leaf(3)
    x.grad = torch.ones(2)  # at assigned


@mistake(RuntimeError, "requires_grad of a computed tensor is changed", "flag", "x = x.detach()")
def flag_of_a_computed_tensor():
    (2 * leaf(3)).requires_grad_(False)  # at flag


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = 2 * leaf(3)


@mistake(RuntimeError, "meets a computed tensor", "copied", "x.detach()")
def deepcopy_of_a_computed_tensor():
    copy.deepcopy(Keeps())  # at copied


@mistake(ValueError, "can't optimize a non-leaf Tensor", "optimized", "make the leaf last")
def optimizer_of_a_computed_tensor():
    torch.optim.SGD([2 * leaf(3)], 0.1)  # at optimized


@mistake(ValueError, "optimizer got an empty parameter list", "empty list", "nn.ModuleList")
def optimizer_of_nothing():
    torch.optim.SGD([], 0.1)  # at empty list


CALLS: list[int] = []


def changes(x):  # at changes
    CALLS.append(1)
    return (x.exp().sin() if len(CALLS) % 2 else x.exp()).sum()


@mistake(
    torch.utils.checkpoint.CheckpointError,
    "checkpoint: when changes is computed again in backward, it saves another number",
    "changes",
    "no global state",
    backward="checkpointed",
)
def checkpoint_mismatch():
    CALLS.clear()
    checkpoint(changes, leaf(3), use_reentrant=False).backward()  # at checkpointed


class NoVmap(Function):
    @staticmethod
    def forward(x):  # at NoVmap.forward
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


@mistake(RuntimeError, "vmap over NoVmap, which does not have vmap support", "NoVmap.forward", "generate_vmap_rule = True", vmap_at="vmapped")
def vmap_without_rule():
    torch.vmap(NoVmap.apply)(torch.ones(2, 3))  # at vmapped


@mistake(RuntimeError, "Square is used under torch.func, and its forward takes ctx", "Square.forward", "setup_context", apply="func")
def func_over_ctx_style():
    torch.func.grad(lambda x: Square.apply(x).sum())(torch.ones(3))  # at func


@mistake(NotImplementedError, "Square has no jvp", "Square.forward", "torch.func.vjp", apply="forward mode")
def forward_mode_without_jvp():
    with torch.autograd.forward_ad.dual_level():
        Square.apply(torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3)))  # at forward mode


@mistake(RuntimeError, "vmap over a line that calls .item()", "item", "torch.where")
def vmap_over_item():
    def f(x):
        return x * x.sum().item()  # at item

    torch.vmap(f)(torch.ones(2, 3))


@mistake(RuntimeError, "does not return a scalar Tensor", "func of a vector", "jacrev")
def func_grad_of_a_vector():
    torch.func.grad(lambda x: 2 * x)(torch.ones(3))  # at func of a vector


@torch.library.custom_op("pullback_mistakes::bare", mutates_args=())  # at bare
def bare(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@mistake(
    RuntimeError,
    "backward through the op pullback_mistakes::bare, for which no autograd formula was registered",
    "bare",
    "bare.register_autograd",
    backward="bare backward",
)
def op_without_formula():
    bare(leaf(3)).sum().backward()  # at bare backward


@torch.library.custom_op("pullback_mistakes::same", mutates_args=())  # at same
def same(x: torch.Tensor) -> torch.Tensor:
    return x


@mistake(RuntimeError, "the op pullback_mistakes::same returns one of its inputs", "same", "x.clone()", called_at="same called")
def op_that_returns_its_input():
    same(torch.ones(3))  # at same called


class Prints(Function):
    @staticmethod
    def forward(ctx, x):  # at Prints.forward
        print("forward")  # at prints
        return 1 * x

    @staticmethod
    def backward(ctx, dy):
        return dy


def compile_breaks():
    torch.compile(Prints.apply, backend="eager", fullgraph=True)(leaf(3))


def compiled_op_without_fake():
    torch.compile(bare, backend="eager", fullgraph=True)(torch.ones(3))  # at bare compiled


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)


@mistake(RuntimeError, "DistributedDataParallel: unused.weight, unused.bias got no gradient", "distributed", "find_unused_parameters=True")
def unused_parameters_in_ddp():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Branches())
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()  # at distributed
    finally:
        torch.distributed.destroy_process_group()
