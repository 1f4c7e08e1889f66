"""What is said about ops that are written in a way that Python and torch would let pass, or tell in their own words."""

import functools
from typing import Any

import pytest
import torch

import pullback as pb
from pullback import keep as retain
from pullback.authoring.making import returns_nothing
from pullback.authoring.op import OpError

HERE = r"\(.*test_op_mistakes\.py:\d+\)"


def product() -> Any:
    @pb.op
    def f(x, y):
        return x * y

    return f


def leaf(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).requires_grad_()


def gradient(op: Any, *args: Any) -> Any:
    x = leaf(3)
    op(x, *args).sum().backward()
    return x.grad


@pytest.mark.parametrize("option", ["static", "mutates", "linear"])
def test_a_string_is_no_sequence_of_names(option):
    with pytest.raises(OpError, match=rf"f {HERE}: {option} is a sequence of names: write {option}=\(\"dim\",\), got {option}='dim'"):

        @pb.op(**{option: "dim"})
        def f(x, dim):
            return x.sum(dim)


def test_options_of_a_wrong_kind():
    def f(x, y):
        return x + y

    with pytest.raises(OpError, match=rf"f {HERE}: linear is a sequence of argument names, got True"):
        pb.op(linear=True)(f)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OpError, match=rf"f {HERE}: elementwise must be True or False, got 'x'"):
        pb.op(elementwise="x")(f)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OpError, match=rf"f {HERE}: linear names 'x', which is static, so that it has no derivative"):
        pb.op(linear=("x",), static=("x",))(f)


def test_a_coroutine_and_a_generator_are_no_op():
    async def f(x):
        return x

    def g(x):
        yield x

    for function in (f, g):
        with pytest.raises(OpError, match=rf"{function.__name__} {HERE}: pb.op decorates a plain function that returns its output"):
            pb.op(function)


def test_vjp_without_its_parentheses_does_not_swallow_the_rule():
    f = product()
    with pytest.raises(OpError, match=rf'f\.vjp {HERE}: name the argument whose gradient the rule returns: @f\.vjp\("x"\)'):

        @f.vjp
        def _(dy, y):
            return dy * y


def test_kernel_without_its_parentheses_does_not_swallow_the_kernel():
    f = product()
    with pytest.raises(OpError, match=r'f\.kernel takes a device type: write @f\.kernel\("cuda"\)'):

        @f.kernel
        def _(x, y):
            return x * y


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("gpu", r"f\.kernel\('gpu'\): torch has no device type 'gpu'. Write for example @f\.kernel\(\"cuda\"\)"),
        ("cuda:0", r"f\.kernel\('cuda:0'\): a version is for a device type, not for one device of it. Write @f\.kernel\(\"cuda\"\)"),
    ],
)
def test_a_device_that_no_tensor_is_ever_on(device, said):
    with pytest.raises(OpError, match=said):
        product().kernel(device)


def test_a_rules_kernel_for_a_device_that_there_is_not():
    f = product()

    @f.vjp("x")
    def _(dy, y):
        return dy * y

    with pytest.raises(OpError, match=r"f\.vjp\(\"x\"\)\.kernel\('gpu'\): torch has no device type 'gpu'"):

        @f.vjp("x").kernel("gpu")
        def _(dy, y):
            return dy * y


def test_an_unknown_option_of_a_rule():
    with pytest.raises(TypeError, match="unexpected keyword argument 'exakt'"):
        product().vjp("x", exakt=False)


def test_one_argument_twice_in_a_rule():
    with pytest.raises(OpError, match=rf"f\.vjp\[x, x\] {HERE}: a rule names each argument once"):
        product().vjp("x", "x")(lambda dy: (dy, dy))


def test_a_rule_with_keyword_only_parameters():
    def rule(dy, *, y):
        return dy * y

    with pytest.raises(OpError, match=rf"f\.vjp\[x\] {HERE}: a rule is called by position, but 'y' can only be given by keyword"):
        product().vjp("x")(rule)


@pytest.mark.parametrize("rule", [3, torch.neg])
def test_a_rule_that_has_no_parameter_names(rule):
    with pytest.raises(OpError, match=r"f\.vjp\[x\] \(no Python source\): a rule is a Python function"):
        product().vjp("x")(rule)


def test_a_rule_may_be_any_callable_of_python():
    class Rule:
        def __call__(self, dy, y):
            return dy * y

    def scaled(k, dy, y):
        return k * dy * y

    for rule, expected in ((Rule(), 2.0), (functools.partial(scaled, 3.0), 6.0)):
        f = product()
        f.vjp("x")(rule)
        assert gradient(f, torch.full((3,), 2.0)).tolist() == [expected] * 3


def test_a_place_is_named_for_any_callable_of_python():
    class Rule:
        def __call__(self, dy, nothing):
            return dy * nothing

    with pytest.raises(OpError, match=rf"f\.vjp\[x\] {HERE}: the rule names 'nothing'"):
        product().vjp("x")(Rule())


def test_a_rule_that_returns_nothing():
    with pytest.raises(OpError, match=rf"f\.vjp\[x\] {HERE}: the rule returns nothing, so 'x' would get no gradient"):

        @product().vjp("x")
        def _(dy, y):
            dy * y


def test_what_returns_nothing():
    def falls_off(dy):
        dy.sum()

    def refuses(dy):
        raise NotImplementedError

    def sometimes(dy, wanted):
        return dy if wanted else None

    def under(dy):
        with torch.no_grad():
            return dy

    def early(dy):
        if dy is None:
            return None
        return dy

    assert returns_nothing(falls_off)
    assert not any(map(returns_nothing, (refuses, sometimes, under, early, torch.neg, lambda dy: dy, lambda dy, x: None if x is None else dy)))


def test_a_body_without_return_is_refused_at_every_call():
    @pb.op
    def f(x):
        x * 2

    @f.vjp("x")
    def _(dy):
        return 2 * dy

    for x in (leaf(3), torch.ones(3), leaf(2)):
        with pytest.raises(OpError, match=rf"f {HERE} returned None; an op returns tensors\. Is a `return` missing\?"):
            f(x)


def helper(x):
    return pb.keep(2 * x, z=x)


def test_what_another_function_keeps_does_not_leak():
    @pb.op
    def f(x):
        return helper(x)

    @f.vjp("x")
    def _(dy):
        return 2 * dy

    for x in (leaf(3), torch.ones(3)):
        with pytest.raises(OpError, match=rf"f {HERE} returned what pb\.keep made in another function.*`return pb\.keep\(out, z=z\)`"):
            f(x)


def test_naming_what_another_function_keeps():
    @pb.op
    def f(x):
        return helper(x)

    with pytest.raises(OpError, match=r"the rule names 'z', which is not there.*read from the op's own body"):
        f.vjp("x")(lambda dy, z: dy * z)


def test_keeping_nothing_is_returning():
    @pb.op
    def f(x):
        return pb.keep(2 * x)

    f.vjp("x")(lambda dy: 2 * dy)
    assert gradient(f).tolist() == [2.0] * 3


def test_keep_under_another_name():
    hidden = retain

    @pb.op
    def f(x):
        return hidden(x * x, z=x)

    @pb.op
    def g(x):
        return retain(x * x, z=x)

    for op in (f, g):
        op.vjp("x")(lambda dy, z: 2 * z * dy)
        assert gradient(op).tolist() == [2.0, 4.0, 6.0]


def test_a_complex_gradient_of_a_real_argument():
    f = product()
    f.vjp("x")(lambda dy, y: dy * y * (1 + 1j))
    with pytest.raises(OpError, match=rf"f\.vjp\[x\] {HERE} returned a complex gradient for 'x', which is real\. Return its real part"):
        gradient(f, torch.ones(3))


def test_messages_use_the_authors_names():
    f = product()  # y is a name that generated code has a use for itself
    f.vjp("x", "y")(lambda dy, x, y: (dy * y, dy * x, None))
    with pytest.raises(OpError, match=rf"f\.vjp\[x, y\] {HERE} must return 2 gradients, for 'x', 'y'; got 3 values"):
        gradient(f, torch.ones(3))

    @pb.op
    def g(arg_y, y):
        return arg_y * y

    g.vjp("y")(lambda dy, arg_y: dy * arg_y)
    assert gradient(lambda x: g(torch.full((3,), 2.0), x)).tolist() == [2.0] * 3
    with pytest.raises(
        OpError, match=rf'g: the argument \'arg_y\' requires grad, but g {HERE} has no rule for it\. Write one with @g\.vjp\("arg_y"\)'
    ):
        gradient(g, leaf(3))


def test_messages_write_what_is_in_a_container_as_python_does():
    @pb.op
    def f(params):
        params["k"].mul_(2)
        return params["k"] + 1

    f.vjp("params")(lambda dy: {"k": 2 * dy})
    with pytest.raises(OpError, match=rf"f {HERE} changes its argument \"params\['k'\]\" in place.*@pb\.op\(mutates=\(\"params\",\)\)"):
        f({"k": leaf(3) * 1})

    @pb.op
    def g(xs, scale):
        return xs[0] * scale

    g.vjp("scale")(lambda dy, xs: dy * xs[0])
    with pytest.raises(
        OpError, match=rf"g: the argument 'xs\[0\]' requires grad, but g {HERE} has no rule for it\. Write one with @g\.vjp\(\"xs\"\)"
    ):
        g([leaf(3)], leaf(3)).sum().backward()

    @pb.op
    def h(xs):
        return xs[0] * 2

    h.vjp("xs")(lambda dy: [dy.sum()])
    with pytest.raises(OpError, match=rf"h\.vjp\[xs\] {HERE}.*returned a gradient of shape \[\] for 'xs\[0\]', which has shape \[3\]|shape \[\]"):
        h([leaf(3)]).sum().backward()


@pytest.mark.parametrize("what", ["surrogate", "kernel", "inference", "fake"])
def test_another_forward_takes_what_the_op_takes(what):
    f = product()
    decorate = f.kernel("cpu") if what == "kernel" else getattr(f, what)
    with pytest.raises(OpError, match=rf"f\.{what} {HERE} must take what the op takes, 'x', 'y'; it takes 'z'"):
        decorate(lambda z: z)


def test_a_vmap_rule_takes_its_two_values_first():
    with pytest.raises(OpError, match=rf"f\.vmap {HERE} must take what the op takes, 'info', 'in_dims', 'x', 'y'; it takes 'x', 'y'"):
        product().vmap(lambda x, y: (x * y, 0))


def test_a_vmap_rule_that_returns_no_dimension():
    f = product()
    f.vmap(lambda info, in_dims, x, y: x * y)
    f.vjp("x")(lambda dy, y: dy * y)
    with pytest.raises(OpError, match=rf"f\.vmap {HERE} must return \(out, out_dims\).*got a Tensor"):
        torch.func.vmap(f)(torch.ones(2, 3), torch.ones(2, 3))


def test_a_surrogate_of_another_shape():
    @pb.op
    def f(x):
        return 2 * x

    f.surrogate(lambda x: x.sum())
    with pytest.raises(OpError, match=rf"f\.surrogate {HERE} must return the shapes that f returns, \[3\]; it returned \[\]"):
        gradient(f)


def test_a_jvp_that_names_what_is_not_there():
    with pytest.raises(OpError, match=rf"f\.jvp {HERE}: the rule names 'xx', which is not there\. It may name .* and 'out'\. Did you mean 'x'\?"):
        product().jvp(lambda tangents, xx: tangents.x * xx)


def test_a_jvp_that_asks_for_what_is_no_argument():
    f = product()
    f.vjp("x", "y")(lambda dy, x, y: (dy * y, dy * x))
    f.jvp(lambda tangents, y: tangents.z * y)
    with pytest.raises(OpError, match=rf"f\.jvp {HERE} asks for the tangent of 'z'; the arguments are 'x', 'y'"):
        torch.func.jvp(f, (torch.ones(3), torch.ones(3)), (torch.ones(3), torch.ones(3)))


def test_a_jvp_of_a_wrong_shape():
    f = product()
    f.vjp("x")(lambda dy, y: dy * y)
    f.jvp(lambda tangents, y: (tangents.x * y).sum())
    with pytest.raises(OpError, match=rf"f\.jvp {HERE} returned a tangent of shape \[\] for an output of shape \[3\]"):
        torch.func.jvp(lambda x: f(x, torch.ones(3)), (torch.ones(3),), (torch.ones(3),))


def test_explain_says_that_a_jvp_without_vjp_rules_is_not_used(capsys):
    f = product()
    f.jvp(lambda tangents, y: tangents.x * y)
    f.explain()
    assert "forward mode  autograd of the body, not @jvp: without vjp rules the body is differentiated" in capsys.readouterr().out


def test_a_captured_tensor_that_would_get_no_gradient():
    weight = leaf(3)

    @pb.op
    def f(x):
        return (2 * weight) * x

    with pytest.raises(OpError, match=rf"f {HERE} reads a tensor of shape \[3\] that requires grad and is no argument"):
        gradient(f)


def test_a_method_that_reads_its_modules_weight():
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        @pb.op
        def forward(self, x):
            return self.weight * x

    with pytest.raises(OpError, match=rf"forward {HERE} reads a tensor of shape \[3\] that requires grad and is no argument"):
        gradient(Scale())


def test_captured_tensors_that_are_declared_or_constant():
    linear = torch.nn.Linear(3, 3)
    constant, other = torch.full((3,), 2.0), leaf(3)

    @pb.op(static=("module",))
    def f(x, module):
        return module(x)

    @pb.op
    def g(x, y):
        return constant * x * y * other.detach()

    assert torch.equal(gradient(f, linear), linear.weight.sum(0).detach())
    x, y = leaf(3) * 1, leaf(3) * 1  # only x's gradient is asked for, though y requires grad too
    (grad,) = torch.autograd.grad(g(x, y).sum(), x, create_graph=True)
    assert torch.equal(grad, constant * y * other)
    grad.sum().backward()


def test_samples_of_a_wrong_kind():
    f = product()
    f.samples(lambda: [torch.ones(3)])
    with pytest.raises(ValueError, match=r"the samples of f yielded a Tensor; they must yield pb\.sample"):
        pb.check(f)


def opaque_twice(fake: Any) -> Any:
    @pb.op(opaque=True)
    def f(x):
        return torch.from_numpy(2 * x.detach().numpy())

    f.fake(fake)
    f.vjp("x")(lambda dy: 2 * dy)
    return f


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        (lambda x: x.new_empty(7), rf"f\.fake {HERE} says that the body returns float32\[7\], but it returned float32\[3\]"),
        (lambda x: torch.empty_like(x, dtype=torch.float64), r"returns float64\[3\], but it returned float32\[3\]"),
        (lambda x: (x, x), rf"f {HERE} returned one value, where f\.fake returned a tuple of 2"),
    ],
)
def test_a_fake_that_says_something_else_than_the_body(fake, said):
    with pytest.raises(OpError, match=said):
        opaque_twice(fake)(leaf(3))


def test_a_fake_that_is_right_for_every_shape():
    f = opaque_twice(torch.empty_like)
    assert gradient(f).tolist() == [2.0] * 3
    assert f(torch.ones(2, 5)).shape == (2, 5)
    with pytest.warns(UserWarning, match="has no vmap rule"):
        assert torch.func.vmap(opaque_twice(torch.empty_like))(torch.ones(2, 5)).shape == (2, 5)


def test_a_surrogate_may_be_a_function_of_torch():
    @pb.op
    def f(x):
        return torch.sign(x)

    f.surrogate(torch.tanh)
    assert torch.allclose(gradient(f), 1 - torch.tanh(leaf(3).detach()) ** 2)
    with pytest.raises(OpError, match=r"f\.fake \(no Python source\): fake decorates a function; got 3"):
        f.fake(3)


def test_an_op_that_writes_and_has_no_rules_is_differentiated_as_it_ran():
    @pb.op(mutates=("x",))
    def f(x):
        return x.mul_(x.clone())

    x = leaf(3)
    f(x * 1).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * x)
    assert torch.equal(torch.func.grad(lambda x: f(x * 1).sum())(x.detach()), 2 * x)
