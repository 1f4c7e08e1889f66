"""What can be checked, and what is said of the rest."""

import pytest
import torch

from pullback.capture.calls import resolve_target


class Layer(torch.nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (Layer, "pass an instance of this module"),
        (int, "pass an autograd.Function subclass"),
        (3, "pass an autograd.Function subclass"),
    ],
)
def test_what_to_pass_instead_is_said(target, wanted):
    with pytest.raises(TypeError, match=wanted):
        resolve_target(target)


def test_an_instance_is_taken():
    assert resolve_target(Layer()).name == "Layer"
