"""The Triton kernels of swish, gelu and dropout: interpreted on CPU, and run where there is a CUDA device."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import classic_kernels
import pytest
import torch

import pullback as pb

SCRIPT = Path(__file__).with_name("classic_kernels.py")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CLASSICS = ["add_noise", "dropout", "exp_scaled", "gelu", "guided_relu", "muladd", "observe"]
CLASSICS += ["relu", "scale", "scaled_relu", "sigmoid", "split", "swish"]


@needs_triton
def test_interpreted_kernels_agree_with_float64():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    times = dict(re.findall(r"(\w+): kernels ran (\d+) times", run.stdout))
    assert times.keys() == {check.__name__ for check in classic_kernels.CHECKS}
    assert all(int(count) > 0 for count in times.values())


@needs_triton
@needs_cuda
@pytest.mark.parametrize("check", classic_kernels.CHECKS, ids=lambda check: check.__name__)
def test_cuda_kernels_agree_with_float64(check):
    assert check("cuda") > 0


@needs_cuda
@pytest.mark.parametrize("name", CLASSICS)
def test_cuda_ops_agree_with_their_references(name):
    op = getattr(pb.ops, name)
    declared = op.__pullback__
    law = declared["surrogate"] or (declared["reference"] if declared["exact"] else None)
    for sample in declared["samples"]():
        args = [a.cuda() if isinstance(a, torch.Tensor) else a for a in sample.args]
        torch.testing.assert_close(op(*args, **sample.kwargs), declared["reference"](*args, **sample.kwargs))
        leaves = [a.requires_grad_() for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()][:1]
        if law is not None:
            outs = [f(*args, **sample.kwargs) for f in (op, law)]
            outs = [out[0] if isinstance(out, tuple) else out for out in outs]
            torch.testing.assert_close(*[torch.autograd.grad(out.sum(), leaves) for out in outs])


@needs_cuda
def test_cuda_mask_is_that_of_the_cpu():
    x = torch.ones(140_000)
    assert torch.equal(pb.ops.dropout(x.cuda(), 0.3, seed=9).cpu(), pb.ops.dropout(x, 0.3, seed=9))
