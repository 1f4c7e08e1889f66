"""The battery on tensors of another device: on a pretended one, and on CUDA where there is one."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

import pullback as pb
from pullback import _compat
from pullback.battery.check import Settings, run_case

MIXES = ("copy_", "_to_copy", "index", "index_put", "index_put_")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Elsewhere(torch.Tensor):
    """A tensor that says it lies on the meta device, and holds its values on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype, "layout": inner.layout}
        tensor = torch.Tensor._make_wrapper_subclass(cls, inner.shape, device="meta", **layout)
        tensor.inner = inner
        return tensor

    def __repr__(self):
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return dispatch(func, args, kwargs or {})


def dispatch(func, args, kwargs):
    """Run an operator on the inner tensors; refuse a mixture of devices as CUDA does."""
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
    elsewhere = any(isinstance(t, Elsewhere) for t in tensors)
    if elsewhere and func.overloadpacket.__name__ not in MIXES and any(not isinstance(t, Elsewhere) and t.dim() for t in tensors):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, meta and cpu! ({func})")
    device = kwargs.get("device")
    result = func(*tree_map(inside, args), **tree_map(inside, kwargs))
    if not (elsewhere if device is None else torch.device(device).type == "meta"):
        return result
    result = tree_map(lambda x: Elsewhere(x) if isinstance(x, torch.Tensor) and not isinstance(x, Elsewhere) else x, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if elsewhere and device is None and isinstance(result, torch.Tensor) else result


def inside(value):
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.inner if isinstance(value, Elsewhere) else value


class PretendedDevice(_compat.dispatch_mode()):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        meta = device is not None and torch.device(device).type == "meta"
        if meta or any(isinstance(t, Elsewhere) for t in tree_flatten((args, kwargs))[0]):
            return dispatch(func, args, kwargs)
        return func(*args, **kwargs)


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


class SwishWithoutProduct(Swish):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.sigmoid(ctx.beta * x), None


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, dy.shape[1]).index_add(0, index, dy), None


class GatherOnTheCpu(Gather):
    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return torch.zeros(ctx.rows, dy.shape[1], dtype=dy.dtype).index_add(0, index, dy), None


def x(*shape):
    return torch.linspace(-1.3, 1.6, torch.Size(shape).numel(), dtype=torch.float64).sin().mul(1.5).reshape(shape).requires_grad_()


RIGHT = [
    pb.case(Swish, x(5), 1.5),
    pb.case(Linear, x(4, 3), x(3, 2)),
    pb.case(Gather, x(4, 3), torch.tensor([2, 0, 2])),
    pb.case(lambda a: Swish.apply(a, 1.0).sum(), x(4)).declare(orders=2),
]
NOT_HERE = frozenset({"PB605", "PB624", "PB706", "PB709", "PB801"})
PLACES = ["meta", pytest.param("cuda", marks=CUDA)]


def on(place, case, **settings):
    if place != "meta":
        return run_case(case, Settings(device=place, **settings))
    # Not about where tensors lie: layouts (a subclass is cloned without its strides), compiling, pickling, and the meta device itself.
    with PretendedDevice():
        return run_case(case, Settings(device=place, ignore=NOT_HERE, **settings))


def loud(report):
    return [f"{f.code} {f.message} {f.evidence}" for f in report.findings if f.severity != "note"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", RIGHT, ids=["swish", "linear", "gather", "second-order"])
def test_right_ops_are_clean_on_another_device(case, place):
    report = on(place, case)
    assert not loud(report)
    assert {run.code: run.status for run in report.checks}["PB501"] == "pass"
    assert not [run for run in report.checks if "same device" in run.reason]


@pytest.mark.parametrize("place", PLACES)
def test_faults_are_found_on_another_device(place):
    assert "PB501" in {f.code for f in on(place, pb.case(SwishWithoutProduct, x(5), 1.5)).findings}
    mixed = on(place, pb.case(GatherOnTheCpu, x(4, 3), torch.tensor([2, 0, 2])))
    assert {f.code for f in mixed.findings if f.severity == "error"} & {"PB002", "PB802"}


def test_a_device_argument_moves_with_the_tensors():
    seen = []

    def op(a, device):
        seen.append((a.device.type, device.type))
        return a * torch.ones(3, device=device, dtype=a.dtype)

    on("meta", pb.case(op, x(3), torch.device("cpu")), select=frozenset({"PB501"}))
    assert set(seen) == {("meta", "meta")}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_gpu_checks_are_skipped_with_a_reason_where_no_device_is():
    codes = frozenset({"PB802", "PB803", "PB804"})
    report = run_case(RIGHT[0], Settings(select=codes))
    assert {run.code: (run.status, run.reason) for run in report.checks} == dict.fromkeys(codes, ("skipped", "no CUDA device"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_script_for_gpus_says_that_there_is_none():
    script = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.sh"
    done = subprocess.run([script], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
    assert (done.returncode, done.stdout) == (0, "gpu_check: no CUDA device here, nothing was run\n")


@CUDA
def test_random_state_on_cuda_is_left_alone():
    before = torch.cuda.get_rng_state_all()
    on("cuda", RIGHT[0])
    assert all(torch.equal(a, b) for a, b in zip(before, torch.cuda.get_rng_state_all(), strict=True))
