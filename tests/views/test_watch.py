"""A watch finds the first NaN or Inf at its operation and line."""

import math
import random

import pytest
import torch
from going_wrong import Containers, Loss, line_of, net, program
from torch import nn

import pullback as pb
from pullback.views.watch_faults import shown


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
    assert (fault.location.path.endswith("going_wrong.py"), fault.location.line) == (True, line_of(marker))
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


def test_by_default_it_is_printed_to_standard_error(capsys):
    model = net()
    model.way = "log"
    with pb.watch(model):
        model(torch.ones(4, 8)).sum().backward()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pullback: first NaN in the forward of step 1, made by log\n")
    assert "(h - 1e9).log()" in printed.err


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


def test_containers_keywords_integers_and_shared_modules():
    model = Containers()
    with pb.watch(model, every=1, on_fault=lambda fault: None) as watch:
        for bad in (False, True):
            model(torch.ones(2, 4), bad=bad).y.sum().backward()
    assert [(fault.step, fault.location.line) for fault in watch.faults] == [(2, line_of("container"))]
    assert {"shared", "shared (2)", "shared.weight"} <= {row.name for row in watch.looks[1]}


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


def test_infinities_of_both_signs_are_found_though_they_cancel():
    model = torch.nn.Linear(2, 2, bias=False)
    faults = []
    with pb.watch(model, on_fault=faults.append):
        model(torch.tensor([[math.inf, 1.0], [-math.inf, 1.0]])).sum().backward()
    assert len(faults) == 1
