"""Walks of autograd's graph: complete, in order, fast, and harmless to the graph."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from torch.autograd import Function

from pullback.capture.graph import FREED_AT_ONCE, function_of, leaf_of, walk
from pullback.capture.held import held_by


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.kept = {"ones": torch.ones(3)}
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def chain(length):
    x = torch.ones(3, requires_grad=True)
    y = x
    for _ in range(length):
        y = y * 1.5
    return x, y


def names(walked):
    return [type(node).__name__ for node in walked.nodes]


def test_every_node_comes_after_its_sources():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    h = (x * w).exp()
    walked = walk([h + h.sin() + w])
    assert sorted(names(walked)) == ["AccumulateGrad"] * 2 + ["AddBackward0"] * 2 + ["ExpBackward0", "MulBackward0", "SinBackward0"]
    for index, sources in enumerate(walked.sources):
        assert all(source[0] < index for source in sources if source is not None)


def test_arguments_keep_their_order():
    a, b, c = (torch.ones(3, requires_grad=True) for _ in range(3))
    walked = walk([torch.addcmul(a, b, c)])
    assert [leaf_of(node) is tensor for node, tensor in zip(walked.nodes, (a, b, c), strict=False)] == [True] * 3


def test_arguments_without_gradient_are_none():
    walked = walk([torch.ones(3) * torch.ones(3, requires_grad=True)])
    assert walked.sources[-1] == (None, (0, 0))


def test_roots_name_the_result():
    x = torch.ones(4, requires_grad=True)
    head, tail = x.split(2)
    walked = walk([tail, head])
    assert walked.roots == [(1, 1), (1, 0)]


def test_a_leaf_is_its_own_graph():
    x = torch.ones(3, requires_grad=True)
    walked = walk([x])
    assert walked.roots == [(0, 0)]
    assert leaf_of(walked.nodes[0]) is x


def test_nothing_is_walked_without_a_gradient():
    assert walk([torch.ones(3)]).nodes == []


def test_custom_functions_are_known():
    walked = walk([Double.apply(torch.ones(3, requires_grad=True))])
    assert [function_of(node) for node in walked.nodes] == [None, Double]


def test_held_tensors_are_named_and_not_unpacked():
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: ("cpu", tensor.clone()), lambda packed: unpacked.append(packed) or packed[1]):
        y = Double.apply(torch.ones(3, requires_grad=True))
    held = list(held_by(y.grad_fn))
    assert [(one.name, one.how) for one in held] == [("x[1]", "packed"), ("ctx.kept['ones']", "ctx")]
    assert unpacked == []


def test_freed_tensors_are_gone_and_hidden_ones_stay():
    y = Double.apply(torch.ones(3, requires_grad=True))
    y.sum().backward()
    assert [one.name for one in held_by(y.grad_fn)] == ["ctx.kept['ones']"]


def test_a_walked_graph_still_has_its_backward():
    x, y = chain(3)
    walk([y])
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 1.5**3))


def test_a_hundred_thousand_nodes_are_walked():
    _, y = chain(100_000)
    assert len(walk([y]).nodes) == 100_001


def test_the_work_of_a_walk_grows_as_the_graph_does():
    def calls(length):
        _, y = chain(length)
        made = 0

        def count(frame, event, argument):
            nonlocal made
            made += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            walk([y])
        finally:
            sys.setprofile(before)
        return made

    calls(10)
    few, many = calls(500), calls(2000)
    assert many < 4.1 * few


FREED = """
import gc, torch
from pullback.capture.graph import walk
x = torch.ones(3, requires_grad=True)
y = x
for _ in range(100_000):
    y = y * 1.5
walk([y])
{then}
gc.collect()
print("freed")
"""


@pytest.mark.parametrize(
    "then", ["del y", "z = y.sum(); del y; gc.collect(); del z", "walk([y, y.sum()]); del y", "del y; gc.collect(); walk([x * 2])"]
)
def test_large_graphs_are_freed_without_overflowing_the_stack(then):
    run = subprocess.run([sys.executable, "-c", FREED.format(then=then)], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == "freed\n", run.stderr[-500:]


def test_large_graphs_are_freed_at_all():
    x, y = chain(FREED_AT_ONCE + 1)
    walk([y])
    gone = weakref.ref(x)
    del x, y
    gc.collect()
    gc.collect()
    assert gone() is None


def test_the_collector_is_left_as_it_was():
    gc.disable()
    try:
        walk([chain(2)[1]])
        assert not gc.isenabled()
    finally:
        gc.enable()
    walk([chain(2)[1]])
    assert gc.isenabled()
