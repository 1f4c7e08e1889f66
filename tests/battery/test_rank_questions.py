"""What code says about how many axes its tensors have."""

import torch

from pullback.battery.rank_questions import rank_questions


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, bias, gate):
        if x.dim() == 3 and 2 < w.ndim <= 4:
            x = x.flatten(1)
        assert len(bias.shape) != 2, "bias.dim() == 7"
        if gate.ndim == x.ndim:
            return x * gate
        return x * Asks.laid(bias, x)

    @staticmethod
    def laid(b, t):
        return b.view(1, -1, *[1] * (t.dim() - 2))

    @staticmethod
    def backward(ctx, dy):
        rows = dy.reshape(-1, dy.shape[-1])
        return rows.view(dy.shape[:-1]), dy[..., 0], None, None


class CountsFromTheEnd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[..., 1:] * 1.0

    @staticmethod
    def backward(ctx, dy):
        return torch.nn.functional.pad(dy, (1, 0))


def test_ranks_are_compared_with_numbers_from_either_side_and_with_each_other():
    code = rank_questions(Asks)
    assert set(code.compared) == {("x", "==", 3), ("w", ">", 2), ("w", "<=", 4), ("bias", "!=", 2)}
    assert code.between == [("gate", "x")]
    assert (code.highest("w"), code.highest("gate")) == (4, float("inf"))
    assert {rank for name, rank in code.told_apart() if name == "w"} == {2, 3, 4, 5}


def test_what_is_asked_for_and_folded_is_found_in_helpers_and_backward():
    code = rank_questions(Asks)
    assert code.asked == {"x", "w", "bias", "gate", "t", "dy"}
    assert {"x", "t"} <= code.folded
    assert "dy" not in code.folded


def test_axes_are_counted_from_the_end_where_forward_does_so():
    assert rank_questions(CountsFromTheEnd).from_the_end
    assert not rank_questions(Asks).from_the_end


def test_without_a_function_nothing_is_asked():
    assert not rank_questions(None).asked
