"""Every row of the message table is provoked on the running torch; where torch words an error anew, the row's test fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pullback.battery.search.attempt import run
from pullback.battery.search.engine import Budget, Search
from pullback.battery.search.evidence import gather_evidence
from pullback.battery.search.messages import MESSAGES
from pullback.battery.search.moment import Moment
from pullback.battery.search.shape_messages import size_pairs
from pullback.battery.search.specs import Spec, tensor
from pullback.battery.search.syntax import read_function

x = torch.randn(3, 4)
number: Any = 2.0


class Grads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a.clone()

    @staticmethod
    def backward(ctx, g):
        return g, torch.ones(5)


def unpack_three():
    _, _, _ = x.shape


def in_place_on_leaf():
    leaf = torch.ones(3, requires_grad=True)
    leaf.add_(1)


def no_group():
    torch.distributed.all_reduce(torch.ones(1))


def positive_only():
    raise ValueError("sigma must be positive")


def even_only():
    raise ValueError("features must be divisible by 2")


def half_only():
    raise AssertionError("rotary size must be half of the head size")


def gradient_for_a_number():
    Grads.apply(torch.ones(3, requires_grad=True), 2.0).sum().backward()


def gradient_of_other_shape():
    Grads.apply(torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)).sum().backward()


def only_tuples(given):
    raise TypeError(f"expected a 2-tuple of tensors, got {type(given).__name__}")


def scripted(given):
    raise RuntimeError(f"f() Expected a value of type 'List[Tensor]' for argument 'x' but instead found type '{type(given).__name__}'.")


PROVOKED = {
    "unpack": unpack_three,
    "no attribute": lambda: number.clone(),
    "not callable": lambda: number(x),
    "not a sequence": lambda: list(number),
    "sizes differ": lambda: x + torch.ones(3),
    "size of one dimension": lambda: torch.eye(3).to_sparse() @ torch.ones(4, 2),
    "length of an axis": lambda: torch.linalg.cross(x[:, :1], x),
    "matrix sizes": lambda: x @ x,
    "view of other size": lambda: x.view(5, 2),
    "number of elements": lambda: F.conv2d(torch.ones(1, 2, 3, 3), torch.ones(4, 2, 2, 2), torch.ones(3)),
    "shape does not fit": lambda: torch.cat([x, torch.ones(3, 5)], 0),
    "not divisible": even_only,
    "half or double": half_only,
    "dimension out of range": lambda: x.sum(2),
    "too many indices": lambda: x[0, 0, 0],
    "wrong rank": lambda: torch.bmm(x, x),
    "fewer sizes than dimensions": lambda: x.expand(4),
    "index wanted": lambda: x.gather(0, x),
    "out of bounds": lambda: x[torch.tensor([7])],
    "number wanted": lambda: bool(x),
    "leaf changed in place": in_place_on_leaf,
    "dtype wanted": lambda: x @ torch.ones(4, 2, dtype=torch.float64),
    "complex wanted": lambda: torch.view_as_real(x),
    "square wanted": lambda: torch.linalg.inv(x),
    "positive definite wanted": lambda: torch.linalg.cholesky(-torch.eye(3)),
    "probability wanted": lambda: F.dropout(x, 1.5),
    "positive wanted": positive_only,
    "argument of torch": lambda: F.embedding(number, x),
    "arguments of torch": lambda: torch.tensor([[1.0]]).sum(number, number, number, number),
    "gradient of a non-tensor": gradient_for_a_number,
    "gradient shape": gradient_of_other_shape,
    "missing key": lambda: {}["mean"],
    "operand types": lambda: x < "a",  # type: ignore[operator]
    "tuple wanted": lambda: isinstance(x, tuple) or only_tuples(x),
    "mapping wanted": lambda: dict(**x),  # type: ignore[arg-type]
    "type of TorchScript": lambda: scripted(x),
    "nothing in a list": lambda: torch.cat([]),
    "call with other arguments": lambda: (lambda a, b: a)(x),  # type: ignore[call-arg]
}
SENTENCES = {"not finite": "an output or gradient is not finite", "nothing differentiable": "no output of forward requires grad"}


def test_every_row_is_covered():
    assert set(PROVOKED) | set(SENTENCES) == {rule.name for rule in MESSAGES}
    assert len({rule.name for rule in MESSAGES}) == len(MESSAGES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(PROVOKED))
def test_error_of_the_running_torch_is_understood(name):
    with pytest.raises(Exception) as caught:
        PROVOKED[name]()
    text = f"{type(caught.value).__name__}: {caught.value}"
    rule = next(rule for rule in MESSAGES if rule.name == name)
    assert rule.pattern.search(text), text


@pytest.mark.parametrize("name", list(SENTENCES))
def test_own_sentences_are_understood(name):
    rule = next(rule for rule in MESSAGES if rule.name == name)
    assert rule.pattern.search(SENTENCES[name])


def test_the_group_message_is_known():
    with pytest.raises(ValueError, match="process group"):
        no_group()


def first_change(function, *state):
    """Return the first proposal that the message of this failing state leads to."""
    from pullback.battery.search.blame import blamed
    from pullback.battery.search.messages import changes_for

    evidence = gather_evidence(read_function(function))
    attempt = run(function, tuple(state), evidence.slots, 0)
    assert attempt.error is not None
    return next(iter(changes_for(Moment(attempt, evidence, blamed(attempt, evidence)))))


def test_unpack_gives_the_rank():
    class ThreeSizes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            b, t, d = x.shape
            return x * (b + t + d)

    change = first_change(ThreeSizes, tensor(3, 4))
    assert change["x"].shape == (2, 3, 4)


def test_sizes_that_differ_are_swapped_in_the_blamed_argument():
    class Adds(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, other, unrelated):
            unrelated.sum()
            return a + other

    change = first_change(Adds, tensor(3, 4), tensor(3), tensor(3))
    assert set(change) <= {"a", "other"}


def test_gradient_for_a_number_makes_it_a_tensor():
    change = first_change(Grads, tensor(3), Spec("float", value=0.7))
    assert change["b"].kind == "tensor"


def test_gradient_shape_is_taken_over():
    change = first_change(Grads, tensor(3), tensor(2))
    assert change["b"].shape == (5,)


def test_size_pairs_compare_printed_shapes_first():
    assert size_pairs("could not be broadcast together with shapes (3,2) (3,4)")[:2] == [(2, 4), (4, 2)]


def test_a_failure_is_blamed_on_the_argument_of_the_failing_expression():
    class Blames(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, index):
            y = x * scale
            return y[index]

        @staticmethod
        def backward(ctx, g):
            return g, None, None

    evidence = gather_evidence(read_function(Blames))
    search = Search(evidence, 0, Budget(10, 10.0))
    from pullback.battery.search.blame import blamed

    attempt = search.evaluate((tensor(3, 4), Spec("float", value=2.5), Spec("index", (2,), dtype="int64", value=9)))
    assert "index" in blamed(attempt, evidence)
    assert "out of" in attempt.message


def test_a_failure_in_a_helper_is_blamed_on_the_argument_it_was_given():
    evidence = gather_evidence(read_function(UsesHelper))
    attempt = run(UsesHelper, (tensor(3, 4), tensor(3, 4)), evidence.slots, 0)
    from pullback.battery.search.blame import blamed

    assert blamed(attempt, evidence) == ["matrix"]


def helper(m):
    return torch.linalg.inv(m)


class UsesHelper(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, matrix):
        return x * helper(matrix).sum()
