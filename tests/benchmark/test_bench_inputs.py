"""Samples grow to the sizes that are asked for and keep their character."""

import pytest
import torch

import pullback as pb
from pullback.benchmark.call import BenchError, Call
from pullback.benchmark.inputs import contents
from pullback.benchmark.sources import SIZES, Wanted
from pullback.capture.calls import resolve_target
from pullback.declare import declaration_of


def source(target, inputs=None, kwargs=None, **wanted):
    return Wanted(resolve_target(target), declaration_of(target), **wanted).source(inputs, kwargs)


def grown(target, inputs, size, **wanted):
    (make,) = source(target, inputs, sizes=(size,), **wanted).makers
    return make()


def test_all_axes_grow_together():
    found = grown(torch.mul, (torch.randn(3, 4), torch.randn(3, 4)), 120_000)
    assert [tuple(t.shape) for t in found.tensors] == [(304, 400)] * 2
    assert found.said == "argument 1: float32[304, 400], argument 2: float32[304, 400]"
    assert (found.size, found.elements) == (120_000, 304 * 400)


def test_a_vector_gets_the_very_size():
    assert grown(torch.sin, torch.randn(5), 12_345).tensors[0].shape == (12_345,)


def test_sizes_that_belong_together_stay_equal():
    x, weight = grown(torch.nn.functional.linear, (torch.randn(2, 3), torch.randn(5, 3)), 6000).tensors
    assert x.shape[1] == weight.shape[1] > 30
    assert weight.shape[0] > 50


def test_numbers_that_equal_a_size_follow_it():
    def split(x, parts):
        if x.shape[0] != parts:
            raise ValueError("parts")
        return x * parts

    found = grown(split, (torch.randn(6, 1), 6), 600)
    assert (found.tensors[0].shape[0], found.args[1]) == (600, 600)


def test_an_axis_that_must_stay_stays():
    def of_three(x):
        if x.shape[1] != 3:
            raise ValueError("three channels")
        return x * 2

    assert grown(of_three, torch.randn(4, 3), 3000).tensors[0].shape == (1000, 3)


def test_indices_stay_valid():
    logits, labels = grown(torch.nn.functional.cross_entropy, (torch.randn(4, 7), torch.randint(7, (4,))), 2800).tensors
    assert labels.shape == logits.shape[:1]
    assert int(labels.max()) < logits.shape[1]


def test_signs_come_in_random_order_even_if_the_sample_is_sorted():
    values = contents(torch.linspace(-3, 3, 8), [4000], torch.Generator().manual_seed(0))
    changes = (values[1:].sign() != values[:-1].sign()).float().mean()
    assert 0.4 < float(changes) < 0.6
    assert float(values.abs().max()) <= 3


def test_what_cannot_grow_says_how_to_give_inputs():
    def fixed(x):
        if x.shape != (2, 3):
            raise ValueError("only [2, 3]")
        return x * 2

    with pytest.raises(BenchError, match=r"(?s)fixed takes its sample \(x: float32\[2, 3\]\) in no other size.*only \[2, 3\].*function of the size"):
        grown(fixed, torch.randn(2, 3), 600)


def test_an_op_without_floating_arguments_cannot_grow():
    with pytest.raises(BenchError, match=r"(?s)no floating tensor argument.*function of the size"):
        grown(torch.neg, torch.arange(4), 100)


def test_given_tensors_stay_as_they_are():
    x = torch.randn(4, 4, dtype=torch.float64).t()
    found = source(torch.sin, x)
    (inputs,) = [make() for make in found.makers]
    assert inputs.tensors[0].dtype == torch.float64
    assert inputs.tensors[0].stride() == x.stride()
    assert inputs.tensors[0] is not x
    assert not x.requires_grad


class Doubled(torch.autograd.Function):
    __pullback__ = {"samples": lambda: [pb.case(Doubled, torch.ones(6, dtype=torch.float64))]}

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def test_samples_in_double_become_single():
    found = source(Doubled)
    assert found.small is not None
    assert found.small.tensors[0].dtype == torch.float32
    assert len(found.makers) == len(SIZES)
    assert found.note == "inputs are grown from a sample that its author gives"
    assert source(Doubled, dtype=torch.float64).small.tensors[0].dtype == torch.float64


def test_an_op_for_double_alone_gets_double():
    def wide(x):
        if x.dtype != torch.float64:
            raise TypeError("float64 only")
        return x * 2

    assert source(wide, pb.case(wide, torch.ones(6, dtype=torch.float64))).small.tensors[0].dtype == torch.float64


def test_inputs_of_a_function_of_the_size():
    found = source(torch.mul, lambda n: (torch.randn(n), 2.0), sizes=(7, 9))
    assert [make().said for make in found.makers] == ["argument 1: float32[7], argument 2=2.0", "argument 1: float32[9], argument 2=2.0"]
    assert found.small.tensors[0].numel() == 64


def test_an_op_that_writes_to_its_input_gets_copies():
    x = torch.ones(3, requires_grad=True)
    (inputs,) = [make() for make in source(torch.Tensor.mul_, (x, 2.0)).makers]
    call = Call.prepared("mul_", torch.Tensor.mul_, inputs)
    assert call.copies
    for _ in range(3):
        assert torch.equal(call.forward(), torch.full((3,), 2.0))
    call.once()
