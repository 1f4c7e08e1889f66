"""What find_inputs returns for the commonest signatures."""

from __future__ import annotations

import pytest
import torch

from pullback.battery.search import find_inputs


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return dy * (s + ctx.beta * x * s * (1 - s)), None


class MissingGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x * scale

    @staticmethod
    def backward(ctx, dy):
        return dy


class ReadsFile(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, path):
        with open(path) as lines:
            return x * float(lines.read())

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class KeywordOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *, scale):
        return x * scale

    @staticmethod
    def backward(ctx, dy):
        return dy


class Stubborn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, knob):
        if not isinstance(knob, Swish):
            raise ValueError("knob is not what it should be")
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class ByExpert(torch.autograd.Function):
    """Rows in the order of their experts; new memory, since every row belongs to one."""

    @staticmethod
    def forward(ctx, rows, experts, rows_counts):
        ctx.save_for_backward(rows, experts, rows_counts)
        out, start = rows.new_empty(rows.shape[0], experts.shape[2]), 0
        for i, count in enumerate(rows_counts.tolist()):
            out[start : start + count] = rows[start : start + count] @ experts[i]
            start += count
        return out

    @staticmethod
    def backward(ctx, dy):
        rows, experts, rows_counts = ctx.saved_tensors
        drows, dexperts, start = torch.empty_like(rows), torch.empty_like(experts), 0
        for i, count in enumerate(rows_counts.tolist()):
            part = slice(start, start + count)
            drows[part] = dy[part] @ experts[i].t()
            dexperts[i] = rows[part].t() @ dy[part]
            start += count
        return drows, dexperts, None


class Embeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, words, pad_token=None):
        ctx.save_for_backward(words)
        ctx.shape, ctx.pad = table.shape, pad_token
        found = table[words]
        return found if pad_token is None else found.masked_fill((words == pad_token)[..., None], 0.0)

    @staticmethod
    def backward(ctx, dy):
        (words,) = ctx.saved_tensors
        grad = dy.new_zeros(ctx.shape).index_put((words,), dy, accumulate=True)
        if ctx.pad is not None:
            grad[ctx.pad] = 0
        return grad, None, None


def test_found():
    result = find_inputs(Swish)
    assert result.status == "found"
    assert result.call == "Swish.apply(x=float64[3, 4], beta=0.7)"
    first, second = result.cases[:2]
    assert first.target is Swish
    assert (first.origin, first.index, second.index) == ("searched", 0, 1)
    assert first.args[0].requires_grad
    assert first.args[0].dtype == torch.float64
    assert first.args[0].shape != second.args[0].shape
    assert first.args[1] == 0.7


def test_skeleton_can_be_pasted():
    result = find_inputs(Swish)
    namespace = {"Swish": Swish}
    exec(result.skeleton, namespace)
    (case,) = namespace["pullback_cases"]()
    assert case.target is Swish
    assert case.args[0].shape == (3, 4)


def test_fault_of_backward_is_unsure_and_proved():
    result = find_inputs(MissingGradient)
    assert result.status == "unsure"
    assert result.cases == ()
    assert result.attempted is not None
    assert "proved" in result.flags
    assert "incorrect number of gradients" in result.last_error


def test_nothing_is_invented_for_a_path():
    result = find_inputs(ReadsFile)
    assert result.status == "skipped"
    assert "`path`" in result.reason
    assert result.evaluations == 0
    assert "pb.case(ReadsFile" in result.skeleton


def test_keyword_only_parameters_are_refused():
    assert "by keyword only" in find_inputs(KeywordOnly).reason


def test_nothing_found_names_the_parameter_and_gives_a_skeleton():
    result = find_inputs(Stubborn, evaluations=60)
    assert result.status == "skipped"
    assert result.blamed == "knob"
    assert "knob is not what it should be" in result.last_error
    assert "change `knob`" in result.skeleton
    assert result.evaluations <= 60


def test_only_functions_are_taken():
    with pytest.raises(TypeError, match=r"autograd\.Function"):
        find_inputs(torch.nn.Linear)  # type: ignore[arg-type]


def test_counts_belong_to_every_matrix_of_a_stack_and_cover_every_row():
    for case in find_inputs(ByExpert).cases:
        rows, experts, counts = case.args
        assert len(counts) == len(experts)
        assert int(counts.sum()) == len(rows)
        assert len(counts.unique()) > 1


def test_what_names_one_entry_is_a_number():
    passed = [case.args[2] for case in find_inputs(Embeds).cases]
    assert {type(value) for value in passed} == {int, type(None)}
