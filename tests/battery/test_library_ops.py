"""Ops of torch.library are checked as they are called, and spoken of as their authors wrote them."""

import importlib.util
import re
import sys

import pytest
import torch

import pullback as pb
from pullback.battery.contract import contract
from pullback.battery.discover import defined_in
from pullback.battery.written import importable
from pullback.declare import Declaration

SOURCE = """
import torch
from torch import Tensor


@torch.library.custom_op("pullback_battery_library::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x.clone() ** 3


def keep_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def two_thirds(ctx, dy):
    (x,) = ctx.saved_tensors
    return dy * 2 * x**2


cube.register_autograd(two_thirds, setup_context=keep_input)
cube.register_fake(lambda x: torch.empty_like(x))


@torch.library.custom_op("pullback_battery_library::scaled", mutates_args=())
def _scaled(x: Tensor, w: Tensor, alpha: float = 2.0) -> Tensor:
    return alpha * x * w


def keep_both(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.alpha = inputs[2]


def scaled_gradients(ctx, dy):
    x, w = ctx.saved_tensors
    needs_x, needs_w, _ = ctx.needs_input_grad
    return ctx.alpha * dy * w if needs_x else None, ctx.alpha * dy * x if needs_w else None, None


_scaled.register_autograd(scaled_gradients, setup_context=keep_both)
_scaled.register_fake(lambda x, w, alpha=2.0: torch.empty_like(x))
_scaled.register_vmap(lambda info, in_dims, x, w, alpha: (alpha * x.movedim(in_dims[0], 0) * w.movedim(in_dims[1], 0), 0)
                      if None not in in_dims[:2] else (alpha * x * w, max(d for d in in_dims[:2] if d is not None)))
multiply = _scaled


@torch.library.custom_op("pullback_battery_library::total", mutates_args=())
def total(x: Tensor, reduction: str = "sum") -> Tensor:
    weight = torch.arange(x.shape[-1], dtype=x.dtype)
    y = x * weight
    return y.mean() if reduction == "mean" else y.sum()


def keep_shape(ctx, inputs, output):
    ctx.shape, ctx.reduction = inputs[0].shape, inputs[1]


def total_gradients(ctx, dy):
    return (dy * torch.arange(ctx.shape[-1], dtype=dy.dtype)).expand(ctx.shape), None


total.register_autograd(total_gradients, setup_context=keep_shape)
total.register_vmap(lambda info, in_dims, x, reduction: (total(x, reduction), None))


@torch.library.custom_op("pullback_battery_library::no_derivative", mutates_args=())
def no_derivative(x: Tensor) -> Tensor:
    return x.round()
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("ops") / "library_ops_to_check.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules[path.stem]


def line(text):
    return next(i for i, row in enumerate(SOURCE.splitlines(), 1) if text in row)


def loud(report):
    return {f.code: f for f in report.findings if f.severity != "note"}


def test_those_with_a_derivative_are_found_in_a_file(module):
    assert [subject.short for subject in defined_in(module)] == ["cube", "_scaled", "total"]


def test_a_wrong_factor_is_found_named_and_placed(module):
    report = pb.check(module.cube)
    found = loud(report)
    assert set(found) == {"PB501"}
    finding = found["PB501"]
    assert finding.message == "cube.backward returns a wrong gradient for x"
    assert finding.location is not None
    assert finding.location.line == line("def two_thirds")
    assert finding.certain
    assert "::cube --select PB501" in (finding.repro or "")
    assert {f.message for f in report.findings if f.code == "PB703"} == {
        "torch.func transforms cannot use cube: torch.library.register_autograd makes no rule for them"
    }


def test_a_right_op_is_clean_under_each_of_its_names(module):
    inputs = (torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64), 0.5)
    for target in (module.multiply, torch.ops.pullback_battery_library.scaled, torch.ops.pullback_battery_library.scaled.default):
        report = pb.check(target, inputs)
        assert not loud(report), report
        assert report.ok
    assert not loud(pb.check(module.multiply))


def test_an_argument_left_at_its_default_is_tried_otherwise(module):
    inputs = (torch.randn(2, 3, dtype=torch.float64),)
    (found,) = [f for f in pb.check(module.total, inputs).findings if f.code == "PB501"]
    assert "with reduction='mean'" in found.message


def test_the_rule_for_batches_is_compared_with_a_loop(module):
    found = loud(pb.check(module.total, select=["PB701"]))
    assert set(found) == {"PB701"}
    assert "register_vmap" in found["PB701"].fix


def test_the_code_behind_the_op_runs_on_another_device(module):
    found = loud(pb.check(module.total, select=["PB801"]))
    assert set(found) == {"PB801"}
    assert found["PB801"].evidence[0].got == f"line {line('y = x * weight')} mixes meta and cpu"


def test_an_op_without_python_code_of_its_own():
    library = torch.library.Library("pullback_battery_lower", "DEF")
    try:
        library.define("triple(Tensor x, *, float by=3.0) -> Tensor")
        library.impl("triple", lambda x, by=3.0: by * x, "CPU")

        def backward(ctx, dy):
            return 2 * dy

        torch.library.register_autograd("pullback_battery_lower::triple", backward, lib=library)
        report = pb.check(torch.ops.pullback_battery_lower.triple, (torch.randn(3, dtype=torch.float64),))
        found = loud(report)
        assert set(found) == {"PB501"}
        assert found["PB501"].message == "triple.backward returns a wrong gradient for x"
        assert found["PB501"].location is not None
        assert found["PB501"].location.line == backward.__code__.co_firstlineno
    finally:
        library._destroy()


def test_the_contract_says_what_is_kept_and_offered(module):
    text = contract("scaled", [pb.case(module.multiply, torch.ones(2, 3), torch.ones(2, 3))], Declaration())
    assert "`x`, an argument | save_for_backward | float32[2, 3]" in re.sub(" +", " ", text)
    assert "by the rule given to register_vmap" in text
    assert "pytorch#179652" in text


def test_it_is_imported_by_the_name_that_the_module_gives_it(module):
    assert importable(module.multiply) == (module.__name__, "_scaled")
    assert importable(module.cube) == (module.__name__, "cube")
