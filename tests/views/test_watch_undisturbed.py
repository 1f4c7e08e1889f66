"""A watch changes nothing in the program, and leaves nothing behind."""

import copy
import io

import pytest
import torch
from going_wrong import hooks_of, line_of, net, program
from torch import nn

import pullback as pb


@pytest.mark.parametrize("way", ["", "log", "sqrt", "function", "overflow"])
def test_outputs_gradients_buffers_and_random_state_are_the_same(way):
    plain, watched = net(), net()
    expected = program(plain, way=way)
    with pb.watch(watched, every=2, on_fault=lambda fault: None):
        seen = program(watched, way=way)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan()) for a, b in zip(expected, seen, strict=True))


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


def test_raising_from_on_fault_stops_the_program_before_the_update():
    model = net()
    model.way = "log"

    def stop(fault):
        raise FloatingPointError(fault.op)

    with pytest.raises(FloatingPointError, match="log"), pb.watch(model, on_fault=stop):
        model(torch.ones(4, 8)).sum().backward()


def test_right_programs_are_silent(capsys):
    model = net()
    with pb.watch(model) as watch:
        program(model)
    assert watch.faults == []
    assert capsys.readouterr() == ("", "")
    assert [step.step for step in watch.steps] == [1, 2, 3, 4, 5, 6]


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
