"""Ops of torch.library are seen under their own names, with the lines that their authors wrote."""

import torch
from torch import Tensor

import pullback as pb


def _add(x: Tensor, w: Tensor, alpha: float) -> Tensor:
    return x + alpha * w


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.alpha = inputs[2]


def _gradients(ctx, dy):
    return dy, ctx.alpha * dy, None


ADD = torch.library.custom_op("pullback_views_library::add_scaled", _add, mutates_args=())
ADD.register_autograd(_gradients, setup_context=_keep)


def _total(xs: list[Tensor], scale: float) -> Tensor:
    return scale * torch.stack(xs).sum()


TOTAL = torch.library.custom_op("pullback_views_library::total", _total, mutates_args=())
TOTAL.register_autograd(
    lambda ctx, dy: ([ctx.scale * dy.expand(3)] * 2, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[1])
)


def inputs():
    return torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)


def line(function):
    return function.__code__.co_firstlineno


def test_a_trace_has_the_arguments_and_both_places():
    traced = pb.trace(ADD, *inputs(), 3.0)
    assert {step.function for step in traced.steps} == {"add_scaled"}
    assert [step.name for step in traced.steps if step.what == "argument"] == ["x", "w", "alpha"]
    assert [step.name for step in traced.steps if step.what == "returns"] == ["grad_x", "grad_w"]
    places = {step.what: step.location.line for step in traced.steps if step.location}
    assert places == {"forward": line(_add), "backward": line(_gradients)}


def test_lists_of_tensors_are_traced_element_by_element():
    traced = pb.trace(TOTAL, list(inputs()), 2.0)
    assert len([step for step in traced.steps if step.what == "argument"]) == 3


def test_graph_and_saved_memory_name_the_op():
    x, w = inputs()
    y = ADD(x, w, 3.0)
    assert "● add_scaled" in pb.graph(y).to_text()
    assert "add_scaled" in pb.saved(y).to_text()
