"""What is generated from an op is shown as the op: by its name, its places, and the names of its arguments."""

from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.capture.authored import attributes, is_generated, written

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


@pb.op
def power(x, exponent: float = 2.0):
    return x**exponent


@power.vjp("x")
def _(dy, x, exponent):
    return dy * exponent * x ** (exponent - 1)


@pb.op
def total(*xs):
    return sum(xs)


@total.vjp("xs")
def _(dy, xs):
    return tuple(dy.expand(x.shape) for x in xs)


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor


def leaf():
    return torch.ones(3, dtype=torch.float64, requires_grad=True)


def line_of(text):
    return next(number for number, line in enumerate(LINES, 1) if line.startswith(text))


def test_a_plain_function_is_written_where_its_methods_are():
    found = written(Plain)
    assert (found.name, found.generated) == ("Plain", False)
    assert LINES[found.forward.line - 1].strip() == "def forward(ctx, x):"
    assert LINES[found.backward.line - 1].strip() == "def backward(ctx, dy):"


@pytest.mark.parametrize("calls", [1, 20])
def test_an_op_is_written_where_its_body_and_rules_are(calls):
    for _ in range(calls):
        y = power(leaf())
    function = y.grad_fn._forward_cls
    found = written(function)
    assert is_generated(function)
    assert (found.name, found.generated) == ("power", True)
    assert abs(found.forward.line - line_of("def power")) <= 1
    assert abs(found.backward.line - line_of('@power.vjp("x")')) <= 1
    assert Path(found.forward.path).name == Path(__file__).name


def test_what_generated_code_keeps_for_itself_is_left_out():
    y = power(leaf(), 3.0)
    assert attributes(y.grad_fn._forward_cls, y.grad_fn) == {"exponent": 3.0}
    y = Plain.apply(leaf())
    assert attributes(Plain, y.grad_fn) == {"ctx.factor": 2}


def test_an_op_is_one_call_in_a_trace():
    traced = pb.trace(power, leaf(), 3.0)
    assert {step.function for step in traced.steps} == {"power"}
    assert [step.what for step in traced.steps].count("forward") == 1
    assert [step.what for step in traced.steps].count("backward") == 1
    assert [step.name for step in traced.steps if step.what == "saves"] == ["x", "exponent"]
    assert [step.name for step in traced.steps if step.what == "returns"] == ["grad_x"]


def test_an_op_bears_its_name_in_graphs_and_saved_memory():
    y = power(leaf())
    (node,) = [node for node in pb.graph(y).nodes if node.kind == "function"]
    assert (node.name, [tensor.name for tensor in node.saved]) == ("power", ["x"])
    (block,) = pb.saved(y).blocks
    assert [(holder.node, holder.name) for holder in block.holders] == [("power", "x")]


def test_an_op_of_any_number_of_arguments_bears_its_name():
    y = total(leaf(), leaf())
    assert [node.name for node in pb.graph(y).nodes if node.kind == "function"] == ["total"]
