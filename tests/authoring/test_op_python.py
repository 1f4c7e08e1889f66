"""An op is a plain Python function: signatures, help, pickling, threads, methods, redefinition, tracebacks."""

import copy
import inspect
import io
import linecache
import multiprocessing
import pickle
import pydoc
import sys
import textwrap
import threading
import traceback
import typing
from collections.abc import Callable

import pytest
import torch
from authoring_zoo import ZOO, gather_pow, linear_gelu, muladd, swish, weighted_sum

import pullback as pb
from pullback.authoring.plan import alias_of

# dynamo itself makes an instance of Function for every Function that it traces
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
DEFAULT = torch.tensor(3.0)


@pb.op
def scale(x: torch.Tensor, /, by: torch.Tensor = DEFAULT, *, plus: float = 0.0) -> torch.Tensor:
    """Scale x.

    Args:
        x: A tensor.
    """
    return x * by + plus


@scale.vjp("x")
def _(dy, by):
    return dy * by


@scale.vjp("by")
def _(dy, x):
    return dy * x


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.op = scale
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.op(x, self.weight)


class Thing:
    factor = 2.0

    @pb.op
    def double(self, x):
        return self.factor * x

    @double.vjp("x")
    def _(dy, self):  # noqa: N805  the cotangent comes first
        return self.factor * dy


def test_signature_defaults_and_annotations_are_the_authors_own():
    parameters = inspect.signature(scale).parameters
    assert [(p.name, p.kind.name) for p in parameters.values()] == [
        ("x", "POSITIONAL_ONLY"),
        ("by", "POSITIONAL_OR_KEYWORD"),
        ("plus", "KEYWORD_ONLY"),
    ]
    assert parameters["by"].default is DEFAULT
    assert typing.get_type_hints(scale)["plus"] is float
    assert (scale.__name__, scale.__qualname__, scale.__module__) == ("scale", "scale", __name__)
    assert "Scale x." in pydoc.render_doc(scale)
    assert inspect.isfunction(scale)


def test_arguments_bind_as_in_any_function():
    x = torch.ones(3)
    assert scale(x).tolist() == [3, 3, 3]
    assert scale(x, by=torch.tensor(2.0), plus=1.0).tolist() == [3, 3, 3]
    with pytest.raises(TypeError, match="positional-only"):
        scale(x=x)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional"):
        scale(x, x, 1.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        gather_pow(x, torch.tensor([0]), pow=2)


def test_pickle_and_deepcopy_give_the_op_itself():
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert copy.deepcopy(scale) is scale
    layer = Layer()
    other = pickle.loads(pickle.dumps(layer))
    assert other.op is scale
    assert copy.deepcopy(layer).op is scale
    other(torch.ones(3)).sum().backward()
    assert other.weight.grad.tolist() == [1, 1, 1]
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).op is scale


SPAWNED = textwrap.dedent(
    """
    import torch
    import pullback as pb

    @pb.op
    def double(x):
        return 2 * x

    @double.vjp("x")
    def _(dy):
        return 2 * dy

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.op = double

    def work(layer, queue):
        x = torch.ones(2, requires_grad=True)
        layer.op(x).sum().backward()
        queue.put(x.grad.tolist())
    """
)


def test_multiprocessing_with_spawn(tmp_path, monkeypatch):
    (tmp_path / "spawned_op.py").write_text(SPAWNED)
    monkeypatch.syspath_prepend(str(tmp_path))
    import spawned_op

    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=spawned_op.work, args=(spawned_op.Layer(), queue))
    process.start()
    assert queue.get(timeout=120) == [2, 2]
    process.join(30)


def test_threads_build_an_op_once():
    @pb.op
    def square(x):
        return x * x

    @square.vjp("x")
    def _(dy, x):
        return 2 * dy * x

    results, start = [], threading.Barrier(8)

    def work():
        x = torch.full((2,), 3.0, requires_grad=True)
        start.wait()
        square(x).sum().backward()
        results.append(x.grad.tolist())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[6, 6]] * 8


def test_a_method_binds_and_self_is_static():
    thing = Thing()
    x = torch.ones(2, requires_grad=True)
    thing.double(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert Thing.double.__pullback__["static"] == ("self",)
    assert torch.func.grad(lambda x: thing.double(x).sum())(torch.ones(2)).tolist() == [2, 2]
    assert pickle.loads(pickle.dumps(Thing.double)) is Thing.double


CELL = """
import pullback as pb
@pb.op
def f(x):
    return {factor} * x
@f.vjp("x")
def _(dy):
    return {factor} * dy
"""


def test_defining_an_op_again_replaces_it():
    cells = {"__name__": "notebook_cells"}
    seen = []
    for factor in (2, 5):
        exec(compile(CELL.format(factor=factor), f"cell {factor}", "exec"), cells)
        x = torch.ones(1, requires_grad=True)
        cells["f"](x).backward()
        seen.append((cells["f"](x).item(), x.grad.item(), cells["f"].__globals__["__name__"]))
    assert [(value, grad) for value, grad, _ in seen] == [(2, 2), (5, 5)]
    assert seen[0][2] == seen[1][2] == "pullback._generated.notebook_cells.f"


def test_ops_made_by_a_factory_live_side_by_side():
    def make(factor):
        @pb.op
        def times(x):
            return factor * x

        times.vjp("x")(lambda dy: factor * dy)
        return times

    two, three = make(2), make(3)
    x = torch.ones(1, requires_grad=True)
    assert torch.autograd.grad(two(x) + three(x), x)[0].item() == 5
    assert two.__globals__["__name__"] != three.__globals__["__name__"]
    assert torch.compile(lambda x: two(x) + three(x), backend="eager", fullgraph=True)(x).item() == 5


def test_generated_code_is_readable_in_tracebacks():
    @pb.op
    def broken(x):
        return x * 1

    @broken.vjp("x")
    def _(dy):
        raise ValueError("here")

    with pytest.raises(ValueError, match="here") as caught:
        broken(torch.ones(1, requires_grad=True)).backward()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "broken.vjp[x]"
    assert frames[-1].filename == __file__
    generated = next(frame for frame in frames if "pullback._generated" in frame.filename)
    assert "vjp_0(dy)" in (generated.line or "")


def test_generated_code_lives_in_a_real_module():
    linear_gelu(torch.ones(1, 3), torch.ones(4, 3))
    name = linear_gelu.__globals__["__name__"]
    module = sys.modules[name]
    assert name == "pullback._generated.authoring_zoo.linear_gelu"
    assert module.__dict__ is linear_gelu.__globals__
    source = "".join(linecache.getlines(module.__file__))
    assert "class linear_gelu(Function):" in source
    compile(source, "check", "exec")


def test_profiles_name_the_rule_and_the_node():
    x = torch.ones(3, requires_grad=True)
    y = muladd(x, x * 1, x * 1)
    assert y.grad_fn.name() == "muladdBackward"
    for _ in range(20):
        assert muladd(x, torch.ones(3), torch.ones(3)).grad_fn.name() == "muladdBackward"
    import cProfile
    import pstats

    profile = cProfile.Profile()
    profile.enable()
    with torch.autograd.set_multithreading_enabled(False):
        muladd(x, x * 1, x * 1).sum().backward()
    profile.disable()
    assert any(name == "muladd.vjp[w]" for _, _, name in pstats.Stats(profile).stats)


@pytest.mark.parametrize("name", ["ctx", "y", "needs", "body", "apply", "grad_x", "self", "saved", "dy"])
def test_arguments_may_have_the_names_of_generated_things(name):
    scope: dict = {"pb": pb}
    exec(
        f"def f(x, {name}):\n    return x * {name}\nf = pb.op(f)\nf.vjp('x')(lambda g_, {name}: g_ * {name})\nf.vjp('{name}')(lambda g_, x: g_ * x)",
        scope,
    )
    x, other = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    grads = torch.autograd.grad(scope["f"](x, **{name: other}), (x, other))
    assert [g.item() for g in grads] == [3, 2]
    assert torch.func.grad(scope["f"], (0, 1))(torch.tensor(2.0), torch.tensor(3.0))[0].item() == 3


def test_out_has_another_name_where_an_argument_is_called_out():
    @pb.op
    def exp(out):
        return torch.exp(out)

    @exp.vjp("out")
    def _(dy, out_):
        return dy * out_

    x = torch.tensor(1.0, requires_grad=True)
    exp(x).backward()
    assert x.grad.item() == pytest.approx(torch.e)


def test_explain_says_what_is_kept_and_what_is_missing(capsys):
    linear_gelu.explain()
    text = capsys.readouterr().out
    assert "weight  vjp at" in text
    assert "from the cotangent of z, keeps x" in text
    assert "forward mode  derived from the vjp rules" in text
    ZOO["c_cumsum (opaque, C, linear)"].op.explain()
    text = capsys.readouterr().out
    assert "forward mode  from linear in x" in text
    assert "a loop over the batch; give @c_cumsum.vmap" in text


def test_function_is_an_autograd_function_with_the_ops_declaration():
    function = swish.function
    assert issubclass(function, torch.autograd.Function)
    assert function.__pullback__["exact"] is True
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: function.apply(x, 1.5), x)
    assert torch.func.grad(lambda x: function.apply(x, 1.5).sum())(x.detach()).shape == (3,)
    assert list(inspect.signature(function.forward).parameters) == ["x", "beta"]
    torch.testing.assert_close(function.apply(x), swish(x))
    assert inspect.unwrap(function.forward).__code__.co_filename.endswith("authoring_zoo.py")


def test_declarations_read_like_a_mapping():
    from pullback.declare import declaration_of

    assert declaration_of(swish).orders == 2
    assert declaration_of(ZOO["round_ste (surrogate)"].op).surrogate is not None
    assert declaration_of(gather_pow).static == ("power",)
    torch.testing.assert_close(declaration_of(swish).reference(torch.ones(2), 1.0), swish(torch.ones(2), 1.0))


def test_samples_are_arguments():
    @pb.op
    def double(x, n=2):
        return x * n

    @double.samples
    def _():
        yield pb.sample(torch.ones(2), n=3)

    (sample,) = double.__pullback__["samples"]()
    assert double(*sample.args, **sample.kwargs).tolist() == [3, 3]


def test_a_lambda_and_another_name():
    op = pb.op(name="twice")(lambda x: 2 * x)
    op.vjp("x")(lambda dy: 2 * dy)
    assert op(torch.ones(1, requires_grad=True)).grad_fn.name() == "twiceBackward"


def test_variadic_ops_compile_for_several_counts_in_one_graph():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)

    def f(x):
        return weighted_sum(x, x * 2) + weighted_sum(x, x, x * 3)

    got = torch.autograd.grad(torch.compile(f, backend="eager", fullgraph=True)(x).sum(), x)
    torch.testing.assert_close(got, torch.autograd.grad(f(x).sum(), x))


def test_hints_may_be_callables_with_arguments():
    @pb.op(static=("callback",))
    def seen(x: torch.Tensor, callback: Callable[[str, torch.Tensor], object]) -> torch.Tensor:
        callback("x", x)
        return 2 * x

    x = torch.ones(2, requires_grad=True)
    seen(x, lambda name, value: None).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


NAMES = ["apply", "body", "unpack", "Tensor", "type", "isinstance", "push", "dual", "transforms", "final_pullback_op", "vjp_0", "y", "class"]


@pytest.mark.parametrize("name", [*NAMES, "2d conv"])
def test_an_op_may_have_the_name_of_a_generated_thing(name):
    @pb.op(name=name)
    def f(x, w):
        return x * w

    f.vjp("x")(lambda dy, w: dy * w)
    x, w = torch.arange(3.0, requires_grad=True), torch.full((3,), 2.0)
    f(x, w).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, w)
    assert torch.equal(torch.func.grad(lambda x: f(x, w).sum())(x.detach()), w)
    with torch.autocast("cpu", torch.bfloat16):
        assert f(x, w).grad_fn is not None


def test_generated_modules_hold_nothing_that_an_op_could_replace():
    @pb.op
    def plain(x):
        return x * 2

    @pb.op(autocast="inputs")
    def surrogated(x, w):
        return x * w

    @pb.op
    def keeps(xs, x):
        return pb.keep(xs[0] * x, k=x)

    plain.vjp("x")(lambda dy: 2 * dy)
    plain.inference(lambda x: x + x)
    surrogated.surrogate(lambda x, w: x + w)
    keeps.vjp("x")(lambda dy, k: dy * k)
    for op in (plain, surrogated, keeps):
        for name in vars(sys.modules[op.__globals__["__name__"]]):
            own = name.startswith((op.__name__, "__")) or "pullback" in name.lower()
            assert own or alias_of(name) != name, f"an op called {name} would replace it"
