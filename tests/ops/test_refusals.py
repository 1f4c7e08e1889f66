"""Bad arguments, whichever op gets them: refused by the op, with a message that names the argument, what was got and what to do."""

import inspect
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import pullback as pb

ops = pb.ops
HELPERS = {"KernelError", "compile_kernels", "probe_products", "tune_allocator"}
OPS = sorted(set(ops.__all__) - HELPERS)
OF_THE_CALLER = {"args", "kwargs", "params", "f", "x0", "z0", "b", "matvec"}
"""Arguments that go on to a function that the caller wrote, whose own errors come through."""

BAD = {
    "None": None,
    "text": "text",
    "a list": [1.0, 2.0],
    "an array": np.ones((3, 4)),
    "integers": torch.ones(3, 4, dtype=torch.int64),
    "bools": torch.ones(3, 4, dtype=torch.bool),
    "complex": torch.ones(3, 4, dtype=torch.complex64),
    "no dimensions": torch.tensor(1.0, dtype=torch.float64),
    "seven": torch.ones(7, dtype=torch.float64),
    "three dimensions": torch.ones(2, 5, 7, dtype=torch.float64),
    "on another device": torch.ones(3, 4, device="meta"),
    "sparse": torch.eye(4).to_sparse(),
    "empty": torch.ones(0),
    "-1": -1,
    "0": 0,
    "2.5": 2.5,
    "nan": float("nan"),
    "99": 99,
    "True": True,
    "imaginary": 1j,
    "a function": lambda *args: "no tensor",
}


@pytest.fixture(scope="module", autouse=True)
def a_group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


pytestmark = [
    pytest.mark.xdist_group("process_group"),
    pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed"),
]


def refusal(op, bound):
    """What the op says to these arguments; nothing where it takes them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            op(*bound.args, **bound.kwargs)
    except Exception as error:
        return f"{type(error).__name__} without a word" if not str(error) else str(error)
    return ""


@pytest.mark.parametrize("name", OPS)
def test_an_op_takes_an_argument_or_refuses_it_by_name(name):
    op = getattr(ops, name)
    given = next(iter(op.__pullback__["samples"]()))
    signature = inspect.signature(op)
    for argument in signature.parameters:
        if argument in OF_THE_CALLER:
            continue
        for text, value in BAD.items():
            bound = signature.bind(*given.args, **given.kwargs)
            bound.apply_defaults()
            if text == "on another device" and isinstance(bound.arguments[argument], Tensor):
                value = bound.arguments[argument].to("meta")
            bound.arguments[argument] = value
            message = refusal(op, bound)
            named = any(known in message.partition(":")[2] for known in signature.parameters) or "converge" in message
            assert not message or (message.startswith(f"{name}: ") and named and len(message) < 400), f"{argument} = {text}: {message}"


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.relu([1.0, 2.0]), "relu: x must be a floating tensor, got list [1.0, 2.0]. Make it one: torch.tensor(x, dtype=torch.float32)."),
        (lambda: ops.relu(2), "relu: x must be a floating tensor, got int 2. Make it one: torch.tensor(x, dtype=torch.float32)."),
        (lambda: ops.relu(np.ones(2)), "relu: x must be a floating tensor, got ndarray array([1., 1.]). Make it one: torch.from_numpy(x)."),
        (lambda: ops.relu(None), "relu: x must be a floating tensor, got NoneType None."),
        (lambda: ops.relu(X.long()), "relu: x must be a floating tensor, got dtype torch.int64. Convert it: x.float()."),
        (lambda: ops.relu(X + 0j), "relu: x must be a floating tensor, got dtype torch.complex64. Take x.real, x.abs() or both parts apart."),
        (lambda: ops.relu(X.to_sparse()), "relu: x must be a dense tensor, got layout torch.sparse_coo. Convert it: x.to_dense()."),
        (
            lambda: ops.scale(X, torch.tensor(2.0)),
            "scale: factor must be a number, got Tensor of dtype torch.float32 and shape []. Take its value: factor.item().",
        ),
        (lambda: ops.scale(X, np.float32(2)), f"scale: factor must be a number, got float32 {np.float32(2)!r}. Convert it: float(factor)."),
        (lambda: ops.dropout(X, True), "dropout: p must be a number, got bool True."),
        (lambda: ops.dropout(X, 0.5, 1), "dropout: training must be True or False, got int 1."),
        (lambda: ops.dropout(X, 0.5, seed=np.int64(3)), f"dropout: seed must be an integer, got int64 {np.int64(3)!r}. Convert it: int(seed)."),
        (lambda: ops.swish(X, "1"), "swish: beta must be a number or a floating tensor, got str '1'."),
        (lambda: ops.swish(X, torch.ones(2)), "swish: the shapes do not broadcast together: x [2, 3], beta [2]."),
        (
            lambda: ops.swish(X, torch.ones(3, device="meta")),
            "swish: x and beta must be on one device, got x on cpu and beta on meta. Move one of them: beta.to(x.device).",
        ),
        (lambda: ops.scale_gradient(X, torch.ones(2)), "scale_gradient: scale must broadcast to the shape [2, 3], got the shape [2]."),
        (
            lambda: ops.reverse_gradient(X, torch.tensor(1j)),
            "reverse_gradient: strength must be a number or a real tensor, got dtype torch.complex64. Take strength.real or strength.abs().",
        ),
        (lambda: ops.gelu(X, "Tanh"), "gelu: approximate must be one of 'none', 'tanh', got 'Tanh'."),
        (lambda: ops.split(X, 2.0), "split: sizes must be an integer or a list of integers, got float 2.0."),
        (lambda: ops.split(X, (1, 2)), "split: sizes must sum up to the size of x along dim, 2; got [1, 2], which sum up to 3."),
        (lambda: ops.logsumexp(X, 2), "logsumexp: dim must be a dimension of a tensor of shape [2, 3], got 2."),
        (lambda: ops.logsumexp(X, 1.0), "logsumexp: dim must be an integer, got float 1.0."),
        (lambda: ops.rms_norm(X, torch.ones(2)), "rms_norm: weight must have the shape [3], got [2]."),
        (lambda: ops.layer_norm(X, eps=-1.0), "layer_norm: eps must be at least 0.0, got -1.0."),
        (lambda: ops.eigh(torch.ones(2, 3)), "eigh: a must have the shape [..., n, n], got [2, 3]."),
        (
            lambda: ops.eigh(torch.eye(2).half()),
            "eigh: a must be float32, float64, complex64 or complex128, got torch.float16. Convert it: a.float().",
        ),
        (lambda: ops.eigh(torch.eye(2), "tight"), "eigh: tol must be a number or None, got str 'tight'."),
        (lambda: ops.root(lambda x: x, torch.ones(2), tol=-1), "root: tol must be at least 0, got -1."),
        (
            lambda: ops.fake_quantize(X, torch.ones(3)),
            "fake_quantize: scale must have one element, got the shape [3]. Say with axis=... which dimension has a step of its own.",
        ),
    ],
)
def test_what_is_said(call, message):
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        call()
    assert str(caught.value) == message


def test_a_number_in_a_tensor_may_stay_on_the_cpu():
    assert ops.muladd(torch.tensor(2.0), torch.ones(3, device="meta"), torch.tensor(0.5)).device.type == "meta"


@pytest.mark.parametrize("name", [name for name in OPS if name not in ("fixed_point", "root", "solve", "checkpointed")])
def test_shapes_are_found_on_the_meta_device(name):
    op = getattr(ops, name)
    for given in op.__pullback__["samples"]():
        moved = [value.to("meta") if isinstance(value, Tensor) else value for value in given.args]
        more = {key: value.to("meta") if isinstance(value, Tensor) and key != "seed" else value for key, value in given.kwargs.items()}
        want, got = op(*given.args, **given.kwargs), op(*moved, **more)
        for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
            assert (a.device.type, a.shape, a.dtype) == ("meta", b.shape, b.dtype)
