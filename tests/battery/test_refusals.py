"""A raise in the checked code is a refusal; anything else is a crash."""

import pytest
import torch

from pullback.battery.evaluate import UserCodeError
from pullback.battery.refusals import blames_torch, refuses


def raises_itself():
    raise ValueError("at most 1024 columns")


def asserts():
    assert torch.zeros(2).is_complex()


def unbound():
    if torch.zeros(1).item():
        y = 1
    return y


def asks_torch():
    return torch.zeros(2) @ torch.zeros(3)


def out_of_memory():
    return torch.empty(2**60)


def error_of(function):
    try:
        function()
    except Exception as error:
        return UserCodeError("backward", error)
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "expected"), [(raises_itself, True), (asserts, True), (unbound, False), (asks_torch, False), (out_of_memory, True)]
)
def test_refuses(function, expected):
    assert refuses(error_of(function)) is expected


def test_blames_torch_only_for_nodes_of_its_own():
    text = "Function {} returned an invalid gradient at index 0 - got [0, 6] but expected shape compatible with [0, 4]"
    assert blames_torch(UserCodeError("backward", RuntimeError(text.format("PixelShuffleBackward0"))))
    assert not blames_torch(UserCodeError("backward", RuntimeError(text.format("MyScaleBackward"))))
