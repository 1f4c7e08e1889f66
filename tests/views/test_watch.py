"""A watch finds the first NaN or Inf at its operation and line, changes nothing, and leaves nothing behind."""

import copy
import io
import json
import math
import random
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import pullback as pb
from pullback.views.watch_faults import shown


def line_of(marker):
    with open(__file__, encoding="utf-8") as source:
        return next(number for number, text in enumerate(source, 1) if f"# at {marker}\n" in text)


class DividesByZero(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * dy / (x - x)  # at function backward


class NaNForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x - 1e9).sqrt()  # at function forward

    @staticmethod
    def backward(ctx, dy):
        return dy


class Inner(nn.Module):
    def forward(self, x):
        return (x.abs() - 1e9).log()  # at inner


class Net(nn.Module):
    """A small network that goes wrong in a chosen way."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.inner, self.last = nn.Linear(8, 8), nn.Dropout(0.5), Inner(), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8)
        self.way = ""

    def forward(self, x):
        h = self.norm(self.first(x))
        h = self.ways().get(self.way, lambda h: h)(h)  # at function call
        return self.last(self.drop(h))

    def ways(self):
        return {
            "log": lambda h: (h - 1e9).log(),  # at log
            "sqrt": lambda h: (h * 0).sqrt(),  # at sqrt
            "function": DividesByZero.apply,
            "function forward": NaNForward.apply,
            "overflow": self.overflow,
            "mask": lambda h: h.masked_fill(h == h, -math.inf).softmax(1),  # at mask
            "inner": self.inner,
            "inplace": lambda h: h.clone().sub_(1e9).log_(),  # at inplace
        }

    def overflow(self, h):
        e = torch.exp(1000 * h)  # at exp
        return e / e.sum(1, keepdim=True)  # at division


def program(model, steps=6, bad=4, way="", optimizer=True):
    """Train; return outputs, gradients, buffers and random state of every step."""
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    step = torch.optim.SGD(model.parameters(), 0.01).step if optimizer else lambda: None
    seen = []
    for i in range(steps):
        model.way = way if i == bad else ""
        model.zero_grad()
        y = model(x)
        y.square().mean().backward()
        seen += [y.detach().clone(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers()), torch.get_rng_state()]
        if i != bad:
            step()
    return seen


def net():
    torch.manual_seed(1)
    return Net()


def the_fault(way, **settings):
    model, faults = net(), []
    with pb.watch(model, on_fault=faults.append) as watch:
        program(model, way=way, **settings)
    assert watch.faults == faults
    (fault,) = faults
    return fault


@pytest.mark.parametrize(
    ("way", "kind", "phase", "op", "marker", "module"),
    [
        ("log", "NaN", "forward", "log", "log", ""),
        ("sqrt", "Inf", "backward", "SqrtBackward0", "sqrt", ""),
        ("function", "Inf", "backward", "div in DividesByZero.backward", "function backward", ""),
        ("function forward", "NaN", "forward", "sqrt", "function forward", ""),
        ("overflow", "NaN", "forward", "div", "division", ""),
        ("mask", "NaN", "forward", "softmax", "mask", ""),
        ("inner", "NaN", "forward", "log", "inner", "inner"),
        ("inplace", "NaN", "forward", "log", "inplace", ""),
    ],
)
def test_first_fault_is_located(way, kind, phase, op, marker, module):
    fault = the_fault(way)
    assert (fault.phase, fault.op, fault.module, fault.step) == (phase, op, module, 5)
    assert fault.location is not None
    assert (fault.location.path.endswith("test_watch.py"), fault.location.line) == (True, line_of(marker))
    if way not in ("sqrt", "function"):
        assert fault.kind == kind


def test_an_infinity_that_became_nan_is_named_too():
    fault = the_fault("overflow")
    assert fault.since is not None
    assert fault.since.line == line_of("exp")
    assert f"Inf since {fault.since.path}:{line_of('exp')}   e = torch.exp(1000 * h)" in "\n".join(shown(fault))


def test_a_function_is_named_with_the_line_that_calls_it():
    fault = the_fault("function")
    assert fault.since is not None
    assert fault.since.line == line_of("function call")


def test_what_explains_it_is_said():
    assert "of arguments between -1e+09 and -1e+09" in the_fault("log").text
    assert "received a finite gradient" in the_fault("sqrt").text
    assert "64 divisors" not in the_fault("overflow").text


@pytest.mark.parametrize("way", ["", "log", "sqrt", "function", "overflow"])
def test_outputs_gradients_buffers_and_random_state_are_the_same(way):
    plain, watched = net(), net()
    expected = program(plain, way=way)
    with pb.watch(watched, every=2, on_fault=lambda fault: None):
        seen = program(watched, way=way)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan()) for a, b in zip(expected, seen, strict=True))


def hooks_of(model):
    return [
        len(hooks) for m in model.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks, m._forward_hooks_with_kwargs, m._backward_hooks)
    ]


def test_closing_takes_every_hook_off():
    model = net()
    before = hooks_of(model)
    with pb.watch(model, every=1):
        assert hooks_of(model) != before
        program(model)
    assert hooks_of(model) == before
    watch = pb.watch(model)
    watch.close()
    watch.close()
    assert hooks_of(model) == before


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(("copied", "every"), [(copy.copy, 0), (copy.deepcopy, 0), (copy.deepcopy, 1), (saved_and_loaded, 0), (saved_and_loaded, 1)])
def test_a_copy_of_the_model_is_not_watched(copied, every):
    model, faults = net(), []
    with pb.watch(model, every=every, on_fault=faults.append) as watch:
        program(model, steps=2)
        shadow = copied(model)
        shadow.way = "log"
        shadow(torch.ones(4, 8)).sum().backward()
        model.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
    assert (len(watch.steps), faults) == (3, [])
    assert all(row.bad == 0 for rows in watch.looks.values() for row in rows)


def test_an_exception_passes_and_the_hooks_go():
    model = net()
    before = hooks_of(model)
    with pytest.raises(RuntimeError, match="2x5"), pb.watch(model) as watch:  # noqa: PT012
        program(model)
        model(torch.ones(2, 5))
    assert (hooks_of(model), len(watch.steps)) == (before, 6)


def test_a_forward_that_raises_does_not_confuse_the_next():
    model = net()
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 5))
        program(model, way="log")
    assert [fault.op for fault in watch.faults] == ["log"]


def test_nan_that_stops_the_program_before_backward_is_located():
    model = net()
    model.way = "log"
    watch = pb.watch(model, on_fault=lambda fault: None)
    with pytest.raises(AssertionError), watch:
        assert model(torch.ones(4, 8)).isfinite().all()
    assert [fault.location.line for fault in watch.faults] == [line_of("log")]


def test_a_forward_without_gradients_is_looked_at_at_once():
    model = net().eval()
    model.way = "log"
    with pb.watch(model, on_fault=lambda fault: None) as watch, torch.no_grad():
        model(torch.ones(4, 8))
        assert [fault.op for fault in watch.faults] == ["log"]
    with pb.watch(model, on_fault=lambda fault: None) as watch, torch.inference_mode():
        model(torch.ones(4, 8))
        assert [fault.op for fault in watch.faults] == ["log"]


def test_what_was_bad_before_the_module_is_told_apart():
    model = net()
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        model(torch.full((4, 8), math.nan)).sum().backward()
    assert [(fault.phase, fault.op) for fault in watch.faults] == [("argument", "x")]
    model.last.weight.data[0, 0] = math.nan
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        model(torch.ones(4, 8)).sum().backward()
    assert [(fault.phase, fault.op) for fault in watch.faults] == [("parameter", "last.weight")]


class Loss(nn.Module):
    def forward(self, y):
        return (y * 0).sqrt().sum()  # at loss


def test_a_cotangent_that_comes_in_bad_and_a_loss_that_is_watched_too():
    model = net()
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        Loss()(model(torch.ones(4, 8))).backward()
    assert [fault.phase for fault in watch.faults] == ["outside"]
    assert "pb.watch(model, loss)" in str(watch)
    loss = Loss()
    with pb.watch(model, loss, on_fault=lambda fault: None) as watch:
        loss(model(torch.ones(4, 8))).backward()
    assert [(fault.phase, fault.op, fault.location.line) for fault in watch.faults] == [("backward", "SqrtBackward0", line_of("loss"))]


def test_one_report_each_time_that_it_begins():
    model, x = net(), torch.ones(4, 8)
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        for way in ("log", "log", "", "sqrt", "sqrt", ""):
            model.way = way
            model.zero_grad()
            model(x).sum().backward()
    assert [(fault.step, fault.op) for fault in watch.faults] == [(1, "log"), (4, "SqrtBackward0")]


def test_raising_from_on_fault_stops_the_program_before_the_update():
    model = net()
    model.way = "log"

    def stop(fault):
        raise FloatingPointError(fault.op)

    with pytest.raises(FloatingPointError, match="log"), pb.watch(model, on_fault=stop):
        model(torch.ones(4, 8)).sum().backward()


def test_by_default_it_is_printed_to_standard_error(capsys):
    model = net()
    model.way = "log"
    with pb.watch(model):
        model(torch.ones(4, 8)).sum().backward()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pullback: first NaN in the forward of step 1, made by log\n")
    assert "(h - 1e9).log()" in printed.err


def test_right_programs_are_silent(capsys):
    model = net()
    with pb.watch(model) as watch:
        program(model)
    assert watch.faults == []
    assert capsys.readouterr() == ("", "")
    assert [step.step for step in watch.steps] == [1, 2, 3, 4, 5, 6]


def test_gradient_norms_are_those_of_the_parameters():
    model = net()
    with pb.watch(model) as watch:
        torch.manual_seed(0)
        y = model(torch.randn(4, 8))
        y.square().sum().backward()
    (step,) = watch.steps
    expected = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert step.gradient == pytest.approx(float(expected), rel=1e-5)
    assert step.output == pytest.approx(float(y.detach().norm()), rel=1e-5)


def test_gradients_that_have_a_graph_are_measured():
    model = nn.Linear(4, 4)
    with pb.watch(model) as watch, pytest.warns(UserWarning, match="create_graph"):
        model(torch.ones(2, 4)).square().sum().backward(create_graph=True)
    assert watch.steps[0].gradient is not None
    model.zero_grad()


def test_large_finite_numbers_are_no_fault():
    model = nn.Linear(4, 4)
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        (1e30 * model(torch.ones(2, 4))).sum().backward()
        model.zero_grad()
        model(torch.full((2, 4), 1e30))
    assert watch.faults == []


def test_nan_that_the_loss_leaves_out_is_found():
    model = net()
    model.way = "log"
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        y = model(torch.ones(4, 8))
        torch.where(y.isnan(), 0.0, y).sum().backward()
    assert [fault.op for fault in watch.faults] == ["log"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    model = nn.Linear(4, 4).to(dtype)
    with pb.watch(model) as watch:
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
    assert watch.steps[0].gradient == pytest.approx(float(torch.cat([p.grad.flatten().double() for p in model.parameters()]).norm()), rel=1e-2)
    assert watch.faults == []


def test_mixed_dtypes_large_and_sparse_gradients():
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(300, 300), "b": nn.Linear(4, 4).double(), "c": nn.Embedding(9, 3, sparse=True)})

    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return {
                "a": self.parts["a"](x.expand(2, 300)).sum(),
                "rest": [self.parts["b"](x.expand(2, 4).double()).sum(), self.parts["c"](torch.arange(3)).sum(), torch.arange(3), "text"],
            }

    whole = All()
    with pb.watch(whole, every=1) as watch:
        found = whole(torch.ones(1))
        (found["a"] + found["rest"][0] + found["rest"][1]).backward()
    dense = [p.grad.double().flatten() for name, p in whole.named_parameters() if ".c." not in name]
    assert watch.steps[0].gradient == pytest.approx(float(torch.cat(dense).norm()), rel=1e-5)
    assert watch.faults == []


@dataclass
class Result:
    y: torch.Tensor
    index: torch.Tensor


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)

    def forward(self, x, *, bad=False):
        y = self.shared(self.shared(x))
        return Result((y - 1e9).log() if bad else y, y.argmax(1))  # at container


def test_containers_keywords_integers_and_shared_modules():
    model = Containers()
    with pb.watch(model, every=1, on_fault=lambda fault: None) as watch:
        for bad in (False, True):
            model(torch.ones(2, 4), bad=bad).y.sum().backward()
    assert [(fault.step, fault.location.line) for fault in watch.faults] == [(2, line_of("container"))]
    assert {"shared", "shared (2)", "shared.weight"} <= {row.name for row in watch.looks[1]}


def test_two_backwards_and_several_forwards_are_one_step_each():
    cell = nn.RNNCell(4, 4)
    with pb.watch(cell) as watch:
        for _ in range(2):
            h = torch.zeros(2, 4)
            for _ in range(5):
                h = cell(torch.ones(2, 4), h)
            h.sum().backward()
        y = cell(torch.ones(2, 4))
        y.sum().backward(retain_graph=True)
        y.sum().backward()
    assert [step.step for step in watch.steps] == [1, 2, 3, 3]


def test_many_forwards_without_backward_keep_little():
    model = nn.Linear(4, 4)
    with pb.watch(model) as watch:
        for _ in range(100):
            model(torch.ones(2, 4))
        assert len(watch._live) <= 32


def test_nested_watches_see_the_same_and_leave_each_other_alone():
    model = net()
    model.way = "inner"
    before = hooks_of(model)
    with pb.watch(model, on_fault=lambda fault: None) as outer:
        with pb.watch(model.inner, on_fault=lambda fault: None) as inner:
            model(torch.ones(4, 8)).sum().backward()
        assert hooks_of(model) != before
    assert hooks_of(model) == before
    assert [fault.location.line for fault in (*outer.faults, *inner.faults)] == [line_of("inner")] * 2


class Forgetful(nn.Module):
    """Bad once only, for a reason outside of torch's state."""

    def __init__(self):
        super().__init__()
        self.calls = random.Random(0)
        self.weight = nn.Parameter(torch.ones(3))
        self.list = []

    def forward(self, x):
        LOG.append(1)
        return self.weight * x * (math.nan if len(LOG) == 1 else 1.0)


LOG: list[int] = []


def test_what_cannot_be_made_again_is_said():
    LOG.clear()
    model = Forgetful()
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        model(torch.ones(3)).sum().backward()
    assert [(fault.phase, fault.kind) for fault in watch.faults] == [("unlocated", "NaN")]
    assert "made again, everything is finite" in str(watch)


class Uncopyable(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.lock = __import__("threading").Lock()

    def forward(self, x):
        return (self.weight * x - 1e9).log()


def test_a_module_that_cannot_be_copied_is_said():
    model = Uncopyable()
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        model(torch.ones(3)).sum().backward()
    assert "cannot be made again: TypeError" in watch.faults[0].text


def test_arguments_written_since_are_said():
    model, x = net(), torch.ones(4, 8)
    model.way = "log"
    with pb.watch(model, on_fault=lambda fault: None) as watch:
        model(x)
        x.zero_()
    assert "written since" in watch.faults[0].text


def test_a_compiled_model_is_watched_and_located_in_its_source():
    model = net()
    compiled = torch.compile(model, backend="eager")
    x = torch.ones(4, 8)
    with pb.watch(compiled, on_fault=lambda fault: None) as watch:
        for way in ("", "log"):
            model.way = way
            compiled(x).sum().backward()
    assert [step.step for step in watch.steps] == [1, 2]
    assert [fault.location.line for fault in watch.faults] == [line_of("log")]


def test_watching_what_is_compiled_from_outside_says_that_it_saw_nothing():
    model = nn.Sequential(nn.Linear(4, 4))
    with pb.watch(model[0]) as watch:
        torch.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 4)).sum().backward()
    assert "watch what torch.compile returned" in str(watch)


def test_text_shows_steps_the_last_full_look_and_marks():
    model = net()
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    with pb.watch(model, every=3) as watch:
        torch.manual_seed(0)
        for _ in range(12):
            model.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
    lines = str(watch).splitlines()
    assert lines[0] == "watch of Net: 12 steps"
    assert lines[1].split() == ["step", "output", "gradient"]
    assert [line.split()[0] for line in lines[2:11]] == ["1", "2", "3", "4", "…", "9", "10", "11", "12"]
    assert "step 10 in full, root mean squares" in lines
    assert any(line.startswith("  unused") and line.endswith("! no gradient") for line in lines)


def test_json_holds_everything_and_is_plain(tmp_path):
    model = net()
    with pb.watch(model, every=2, on_fault=lambda fault: None) as watch:
        program(model, way="log", bad=2)
    watch.save(tmp_path / "watch.json")
    data = json.loads((tmp_path / "watch.json").read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert (data["kind"], data["schema"], data["modules"]) == ("watch", 1, ["Net"])
    assert [step["gradient"] for step in data["steps"]][2] == "nan"
    assert data["faults"][0]["location"]["line"] == line_of("log")
    assert [look["step"] for look in data["looks"]] == [1, 3, 5]
    with pytest.raises(ValueError, match=r"Watch\.save writes \.json, \.txt"):
        watch.save("watch.svg")


def test_wrong_arguments_are_explained():
    with pytest.raises(TypeError, match=r"watch takes torch\.nn\.Module, got function"):
        pb.watch(lambda x: x)
    with pytest.raises(ValueError, match="needs a module"):
        pb.watch()
    with pytest.raises(ValueError, match="got -1"):
        pb.watch(nn.Linear(1, 1), every=-1)


def test_norms_of_small_steps_are_measured_in_order_whatever_the_batch():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    with pb.watch(model, every=0) as watched:
        expected = []
        for i in range(75):
            model.zero_grad()
            y = model(torch.randn(2 if i % 10 == 9 else 4, 3))
            y.square().sum().backward()
            expected.append((i + 1, torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item(), y.detach().norm().item()))
            if i == 20:
                assert len(watched.steps) == 21
    assert [(step.step, pytest.approx(step.gradient), pytest.approx(step.output)) for step in watched.steps] == expected
    assert not watched.faults


def test_infinities_of_both_signs_are_found_though_they_cancel():
    model = torch.nn.Linear(2, 2, bias=False)
    faults = []
    with pb.watch(model, on_fault=faults.append):
        model(torch.tensor([[math.inf, 1.0], [-math.inf, 1.0]])).sum().backward()
    assert len(faults) == 1
