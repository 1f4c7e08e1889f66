"""Time of a CUDA device, by captured graphs where the op can be captured."""

import pytest
import torch
from torch.nn import functional as F

import pullback as pb

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_a_captured_op_is_measured():
    found = pb.bench(F.silu, torch.randn(1_000_000), against={"composite": lambda x: x * torch.sigmoid(x)}, device="cuda", seconds=0.1)
    (point,) = found.sizes
    assert all(run.forward.low > 0 and run.backward.low > 0 for run in point.runs)
    assert point.runs[0].peak >= 8_000_000
    assert found.notes == ()


def test_an_op_that_waits_for_the_device_is_measured_too():
    found = pb.bench(lambda x: x * float(x.sum()), torch.randn(1000), device="cuda", seconds=0.1)
    assert any("cannot be captured" in note for note in found.notes)
    assert found.sizes[0].runs[0].time.low > 0
