"""Every mistake raises where it is made, names the op, the rule, file and line, and says how to mend it."""

import re

import pytest
import torch

import pullback as pb

HERE = re.escape(__file__)


def muladd_op(**options):
    def muladd(w, x, b):
        return w * x + b

    return pb.op(**options)(muladd) if options else pb.op(muladd)


def kept_op():
    @pb.op
    def gelu(x, w):
        z = x * w
        return pb.keep(z.tanh(), z=z)

    return gelu


def ones(n=3):
    return torch.ones(n, requires_grad=True)


def fails(match):
    return pytest.raises(RuntimeError, match=match)


def test_unknown_residual_lists_what_there_is_and_suggests():
    with fails(rf"muladd.vjp\[w\] \({HERE}:\d+\): the rule names 'xx', which is not there.*'w', 'x', 'b'.*kept values none.*Did you mean 'x'\?"):

        @muladd_op().vjp("w")
        def _(dy, xx):
            return dy


def test_unknown_residual_lists_kept_values():
    with fails(r"gelu.vjp\[z\].*kept values 'z'"):

        @kept_op().vjp("z")
        def _(dy, y):
            return dy


def test_cotangent_named_like_an_argument():
    with fails(
        rf"muladd.vjp\[w\] \({HERE}:\d+\): the first parameter of a rule is the cotangent, but 'x' is also the name of an argument.*def _\(dy, x\)"
    ):

        @muladd_op().vjp("w")
        def _(x):
            return x


def test_cotangent_named_like_the_output():
    with fails("'out' is also the name of the output"):

        @muladd_op().vjp("w")
        def _(out, x):
            return x


def test_rule_without_a_parameter():
    with fails("takes the cotangent first"):

        @muladd_op().vjp("w")
        def _():
            return None


def test_kept_name_equal_to_an_argument():
    with fails(rf"gelu \({HERE}:\d+\): the kept value 'x' has the name of an argument"):

        @pb.op
        def gelu(x):
            return pb.keep(x.tanh(), x=x)


def test_kept_names_must_be_written_out():
    with fails(r"write the names of kept values out"):

        @pb.op
        def gelu(x):
            values = {"z": x}
            return pb.keep(x.tanh(), **values)


def test_rule_for_an_argument_that_is_not_there():
    with fails(r"muladd has no argument or kept value 'ww'.*arguments 'w', 'x', 'b'.*Did you mean 'w'\?"):
        muladd_op().vjp("ww")(lambda dy: dy)


def test_rule_for_a_static_argument():
    with fails(r"'b' is static, so it has no gradient"):
        muladd_op(static=("b",)).vjp("b")(lambda dy: dy)


def test_rule_without_a_target():
    with fails(r'name the argument whose gradient the rule returns, for example @muladd.vjp\("w"\)'):
        muladd_op().vjp()(lambda dy: dy)


def test_two_rules_for_one_argument_name_both_places():
    op = muladd_op()
    op.vjp("w")(lambda dy, x: dy * x)
    with fails(rf"muladd.vjp\[w\] \({HERE}:\d+\): 'w' already has a rule at {HERE}:\d+"):
        op.vjp("w")(lambda dy, x: dy * x)


def test_a_rule_after_the_first_call_names_both_places():
    op = muladd_op()
    op.vjp("w")(lambda dy, x: dy * x)
    op(*[torch.ones(3)] * 3)
    with fails(rf"muladd.vjp\[x\] \({HERE}:\d+\): muladd \({HERE}:\d+\) has been called already"):
        op.vjp("x")(lambda dy, w: dy * w)


def test_of_must_be_kept():
    with fails(r"of='y' must be a kept value; gelu keeps 'z'"):
        kept_op().vjp("x", of="y")(lambda dy: dy)


def test_rules_in_a_circle():
    @pb.op
    def circle(x):
        a = x * 2
        b = a * 2
        return pb.keep(b, a=a, b=b)

    circle.vjp("a", of="b")(lambda db: db)
    circle.vjp("b", of="a")(lambda da: da)
    circle.vjp("x", of="a")(lambda da: da)
    with fails(r"form a circle"):
        circle(ones())


def test_rule_naming_a_mutated_argument():
    @pb.op(mutates=("x",))
    def scale_(x, s):
        return x.mul_(s)

    with fails(r"'x' is changed in place by the forward, so its old value is gone. Name 'out'"):
        scale_.vjp("s")(lambda dy, x: (dy * x).sum())


@pytest.mark.parametrize("calls", [1, 3])
def test_gradient_of_a_wrong_shape_names_the_argument(calls):
    op = muladd_op()
    op.vjp("w")(lambda dy, x: (dy * x)[:2])
    op.vjp("x")(lambda dy, w: dy * w)
    op.vjp("b")(lambda dy: dy)
    for _ in range(calls):
        with fails(rf"muladd.vjp\[w\] \({HERE}:\d+\) returned a gradient of shape \[2\] for 'w', which has shape \[3\]"):
            op(ones(), ones(), ones()).sum().backward()
    with fails(r"shape \[2\] for 'w'"):
        torch.func.grad(lambda w: op(w, torch.ones(3), 1.0).sum())(torch.ones(3))


def test_gradient_of_a_wrong_shape_is_refused_after_probation_too():
    wrong = [False]

    @pb.op
    def double(x):
        return x * 2

    @double.vjp("x")
    def _(dy):
        return dy[:2] * 2 if wrong[0] else dy * 2

    for _ in range(20):
        double(ones()).sum().backward()
    wrong[0] = True
    with fails(r"double.*invalid gradient at index 0"):
        double(ones()).sum().backward()


def test_gradient_that_is_no_tensor():
    @pb.op
    def double(x):
        return x * 2

    double.vjp("x")(lambda dy: 2.0)
    with fails("returned a float for 'x'; a gradient is a tensor or None"):
        double(ones()).sum().backward()


def test_gradient_of_a_wrong_structure():
    @pb.op
    def affine(x, params):
        return x * params["a"] + params["b"]

    affine.vjp("x")(lambda dy, params: dy * params["a"])
    affine.vjp("params")(lambda dy, x: {"a": dy * x})
    with fails(r"affine.vjp\[params\].*must return the gradient of 'params' in its structure, a dict with keys 'a', 'b'; got a dict with keys 'a'"):
        affine(ones(), {"a": ones(), "b": ones()}).sum().backward()


def test_joint_rule_with_a_wrong_count():
    op = muladd_op()
    op.vjp("w", "x")(lambda dy, w, x: (dy * x, dy * w, dy))
    op.vjp("b")(lambda dy: dy)
    with fails(r"muladd.vjp\[w, x\] .* must return 2 gradients, for 'w', 'x'; got 3 values"):
        op(ones(), ones(), ones()).sum().backward()


def test_joint_rule_that_returns_one_tensor():
    op = muladd_op()
    op.vjp("w", "x")(lambda dy, w, x: dy * x)
    op.vjp("b")(lambda dy: dy)
    with fails(r"must return 2 gradients.*got one Tensor"):
        op(ones(), ones(), ones()).sum().backward()


def test_forward_changing_an_argument_it_does_not_list():
    @pb.op
    def normalise(x, y):
        return x * y.div_(2)

    normalise.vjp("x")(lambda dy, y: dy * y)
    with fails(rf"normalise \({HERE}:\d+\) changes its argument 'y' in place, but does not say so.*mutates=\(\"y\",\)"):
        normalise(ones(), torch.ones(3))


def test_mutating_op_that_returns_something_else():
    @pb.op(mutates=("x",))
    def scale_(x, s):
        x.mul_(s)
        return x.clone()

    scale_.vjp("x")(lambda dy, s: dy * s)
    scale_.vjp("s")(lambda dy, out: dy * out)
    with fails("changes 'x' in place, so it must return it"):
        scale_(torch.ones(3), ones())


def test_opaque_op_without_a_fake_under_compile():
    @pb.op(opaque=True)
    def kernel(x):
        return torch.from_numpy(x.numpy() * 2)

    kernel.vjp("x")(lambda dy: dy * 2)
    with pytest.raises(Exception, match=r"kernel .*is opaque and has no fake"):
        torch.compile(kernel, backend="eager", fullgraph=True)(torch.ones(3))


def test_opaque_op_refuses_an_object():
    @pb.op(opaque=True)
    def kernel(x, cfg):
        return x * 2

    with fails(r"its argument 'cfg' is a object: an opaque op takes tensors"):
        kernel(torch.ones(3), object())


def test_opaque_op_without_a_rule_refuses_a_gradient():
    @pb.op(opaque=True)
    def kernel(x):
        return x * 2

    with fails(r"kernel: the argument 'x' requires grad, but kernel .* has no rule for it"):
        kernel(ones()).sum().backward()


def test_argument_without_a_rule_refuses_a_gradient():
    op = muladd_op()
    op.vjp("w")(lambda dy, x: dy * x)
    with fails(r"muladd: the argument 'b' requires grad, but muladd .* has no rule for it.*static=\(\"b\",\)"):
        op(ones(), torch.ones(3), ones()).sum().backward()
    with fails(r"'b' requires grad"):
        torch.func.grad(lambda b: op(torch.ones(3), torch.ones(3), b).sum())(torch.ones(3))
    with fails(r"'b' has a tangent, but no rule"):
        torch.func.jvp(lambda b: op(torch.ones(3), torch.ones(3), b), (torch.ones(3),), (torch.ones(3),))


def test_kwargs_in_a_signature():
    with fails(rf"f \({HERE}:\d+\): \*\*options in an op's signature is refused"):

        @pb.op
        def f(x, **options):
            return x


def test_options_that_name_no_argument():
    with fails(r"static names 'dimm', but the arguments are 'x', 'dim'\. Did you mean 'dim'\?"):
        pb.op(static=("dimm",))(lambda_with_dim)
    with fails("mutates names 'y', which is no argument"):
        pb.op(mutates=("y",))(lambda_with_dim)
    with fails('remember must be "arguments" or "all"'):
        pb.op(remember="nothing")(lambda_with_dim)
    with fails('autocast must be None, a dtype or "inputs"'):
        pb.op(autocast="float32")(lambda_with_dim)


def lambda_with_dim(x, dim):
    return x.sum(dim)


def test_forward_that_keeps_on_one_path_only():
    @pb.op
    def gelu(x, on):
        if not on:
            return x * 1
        return pb.keep(x.tanh(), z=x.tanh())

    gelu.vjp("x")(lambda dy, z: dy * (1 - z * z))
    with fails(r"must return pb.keep\(out, z=...\) on every path"):
        gelu(ones(), False)


def test_keeps_must_name_what_the_rule_names():
    with fails(r"keeps says that 'w' needs 'b', but the rule does not name it"):
        muladd_op().vjp("w", "x", keeps={"w": ("b",)})(lambda dy, w, x: (dy, dy))
    with fails(r"keeps names 'q', which is not among"):
        muladd_op().vjp("w", "x", keeps={"q": ()})(lambda dy, w, x: (dy, dy))


def test_opaque_op_without_jvp_in_forward_mode():
    @pb.op(opaque=True)
    def kernel(x):
        return x * 2

    kernel.vjp("x")(lambda dy: dy * 2)
    with fails(r"is opaque, so forward mode cannot be derived.*@kernel.jvp"):
        torch.func.jvp(kernel, (torch.ones(3),), (torch.ones(3),))


def test_a_rules_kernel_takes_what_the_rule_takes():
    op = muladd_op()
    op.vjp("w")(lambda dy, x: dy * x)
    with fails(r"must take what the rule takes, \['x'\]; got \[\]"):
        op.vjp("w").kernel("cuda")(lambda dy: dy)
    with fails("write the rule itself first"):
        op.vjp("x").kernel("cuda")(lambda dy: dy)


def test_missing_argument_reads_like_a_function():
    with pytest.raises(TypeError, match=r"muladd\(\) missing 1 required positional argument: 'b'"):
        muladd_op()(torch.ones(1), torch.ones(1))


def test_what_is_not_a_function():
    with fails("pb.op decorates a plain function, got"):
        pb.op(torch.nn.Linear(1, 1))
