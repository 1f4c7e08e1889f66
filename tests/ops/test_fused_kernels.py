"""The Triton kernels of rms_norm, softmax_cross_entropy and linear_cross_entropy: interpreted on CPU, and run where there is a CUDA device."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import fused_kernels
import pytest
import torch

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
SCRIPT = Path(__file__).with_name("fused_kernels.py")


@needs_triton
@pytest.mark.slow
def test_interpreted_kernels_agree_with_float64():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    times = dict(re.findall(r"(\w+): the kernel ran (\d+) times", run.stdout))
    assert times.keys() == {check.__name__ for check in fused_kernels.CHECKS}
    assert all(int(count) > 0 for count in times.values())


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("check", fused_kernels.CHECKS, ids=lambda check: check.__name__)
def test_cuda_kernels_agree_with_float64(check):
    assert check("cuda") > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "name", ["linear_act", "linear_gelu", "swiglu", "layer_norm", "logsumexp", "rms_norm", "softmax_cross_entropy", "linear_cross_entropy"]
)
def test_cuda_ops_agree_with_their_references(name):
    import pullback as pb

    op = getattr(pb.ops, name)
    for sample in op.__pullback__["samples"]():
        args = [a.cuda() if isinstance(a, torch.Tensor) else a for a in sample.args]
        leaves = [a.requires_grad_() for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        found = [torch.autograd.grad(function(*args, **sample.kwargs).sin().sum(), leaves) for function in (op, op.__pullback__["reference"])]
        torch.testing.assert_close(*found)
