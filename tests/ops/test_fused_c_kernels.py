"""The C kernels of norms, gated units and losses: the same numbers as torch's operations, on every option that they take."""

import shutil

import pytest
import torch
import torch.nn.functional as F

import pullback as pb
from pullback.ops.kernels import cpu

pytestmark = [
    pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
SHAPES = [(3, 5), (300, 700), (2, 3, 7), (1,), (0, 4)]


@pytest.fixture(scope="module", autouse=True)
def kernels(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("PULLBACK_CACHE", str(tmp_path_factory.mktemp("kernels", numbered=True)))
    before = cpu._loaded
    cpu.compile_kernels()
    yield
    cpu._loaded = before
    patch.undo()


@pytest.fixture
def ran(monkeypatch):
    """Names of the kernels that ran."""
    names = []
    run = cpu.run

    def watched(name, *given):
        names.append(name)
        run(name, *given)

    monkeypatch.setattr(cpu, "run", watched)
    return names


def drawn(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def agree(call, leaves, dy=None):
    """With kernels and without."""
    found = []
    for context in (torch.enable_grad, cpu.without_kernels):
        with context():
            out = call()
            found.append((out.detach(), *torch.autograd.grad(out, leaves, dy)))
    for got, want in zip(*found, strict=True):
        scale = float(want.abs().max()) if want.numel() else 1.0  # sums may cancel, down to the rounding of their terms
        torch.testing.assert_close(got, want, rtol=0, atol=2e-6 * max(scale, 0.1))


@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(shape, ran):
    x, weight, dy = drawn(shape, shape[-1:], shape)
    agree(lambda: pb.ops.rms_norm(x, weight), [x, weight], dy)
    agree(lambda: pb.ops.rms_norm(x, eps=1e-3), [x], dy)
    agree(lambda: pb.ops.rms_norm(x.detach(), weight), [weight], dy)
    assert set(ran) == {"rms_norm_forward", "rms_norm_backward"}


@pytest.mark.parametrize("shape", SHAPES)
def test_swiglu(shape, ran):
    gate, up, dy = drawn(shape, shape, shape)
    agree(lambda: pb.ops.swiglu(gate, up), [gate, up], dy)
    assert ran == ["swiglu_backward"]


def test_softmax_cross_entropy_whatever_the_default_dtype(ran):
    (logits,), target = drawn((5, 4)), torch.tensor([0, 1, 2, 3, 0])
    want = pb.ops.softmax_cross_entropy(logits, target)
    torch.set_default_dtype(torch.float64)
    try:
        got = pb.ops.softmax_cross_entropy(logits, target)
    finally:
        torch.set_default_dtype(torch.float32)
    assert ran == ["cross_entropy_forward"] * 2
    assert torch.equal(got, want)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 9000)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_logsumexp(shape, keepdim, ran):
    (x,) = drawn(shape)
    y = torch.logsumexp(x, -1, keepdim)
    agree(lambda: pb.ops.logsumexp(x, -1, keepdim), [x], torch.linspace(-1, 2, y.numel()).reshape(y.shape))
    assert ran == ["logsumexp_forward", "logsumexp_backward"]


def test_logsumexp_at_infinity_and_nan():
    inf = float("inf")
    x = torch.tensor([[-inf, -inf], [inf, 1.0], [inf, -inf], [float("nan"), inf], [-inf, 3.0], [3e38, 3e38], [-3e38, 1e-40]])
    with cpu.without_kernels():
        want = pb.ops.logsumexp(x)
    torch.testing.assert_close(pb.ops.logsumexp(x), want, equal_nan=True)


@pytest.mark.parametrize(
    "option", [{}, {"label_smoothing": 0.2, "z_loss": 0.01}, {"reduction": "none", "z_loss": 0.1}, {"reduction": "sum", "ignore_index": 2}]
)
@pytest.mark.parametrize("shape", [(5, 4), (90, 1000), (1, 1), (3, 2, 7)])
def test_softmax_cross_entropy(shape, option, ran):
    (logits,) = drawn(shape)
    target = torch.arange(logits.numel() // shape[-1]).reshape(shape[:-1]) % shape[-1]
    if shape[0] > 1:
        target[1] = option.get("ignore_index", -100)
    dy = torch.linspace(0.5, 1.5, target.numel()).reshape(shape[:-1]) if option.get("reduction") == "none" else None
    agree(lambda: pb.ops.softmax_cross_entropy(logits, target, **option), [logits], dy)
    assert ran == ["cross_entropy_forward", "cross_entropy_backward"]


@pytest.mark.parametrize("recompute", [False, True])
def test_linear_cross_entropy(recompute, ran, monkeypatch):
    from pullback.ops.fused import _chunked

    monkeypatch.setitem(_chunked.CHUNK, "cpu", 40)
    monkeypatch.setitem(_chunked.LEAST, "cpu", 3)
    x, weight, bias = drawn((11, 5), (9, 5), (9,))
    target = torch.arange(11) % 9
    agree(lambda: pb.ops.linear_cross_entropy(x, weight, target, bias, label_smoothing=0.1, recompute=recompute), [x, weight, bias])
    assert ran.count("cross_entropy_backward") == 3


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_linear_gelu(approximate):
    tensors = drawn((6, 5), (4, 5), (4,), (6, 4))
    agree(lambda: pb.ops.linear_gelu(*tensors[:3], approximate=approximate), tensors[:3], tensors[3])


def test_targets_that_are_no_class_are_refused_before_anything_is_read_there():
    for wrong in (3, -1, 2**40):
        with pytest.raises(IndexError, match=rf"softmax_cross_entropy: target must hold classes from 0 to 2, or ignore_index -100; got {wrong}"):
            pb.ops.softmax_cross_entropy(torch.ones(2, 3), torch.tensor([0, wrong]))


def test_special_values_go_through_as_in_torch():
    inf, nan = float("inf"), float("nan")
    logits = torch.tensor([[1.0, -inf, 2.0], [500.0, -500.0, 0.0], [nan, 0.0, 1.0]], requires_grad=True)
    target = torch.tensor([2, 0, 1])
    rows = pb.ops.softmax_cross_entropy(logits, target, reduction="none")
    want = F.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(rows, want, equal_nan=True)
    dy = torch.ones(3)
    torch.testing.assert_close(torch.autograd.grad(rows, logits, dy), torch.autograd.grad(want, logits, dy), equal_nan=True)
    gate = torch.tensor([-inf, -200.0, 0.0, 200.0, nan])
    torch.testing.assert_close(pb.ops.swiglu(gate, torch.ones(5)), F.silu(gate), equal_nan=True)


def test_threads_do_not_change_a_digit():
    x, weight, dy = drawn((400, 300), (300,), (400, 300))
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(torch.autograd.grad(pb.ops.rms_norm(x, weight), [x, weight], dy))
    finally:
        torch.set_num_threads(before)
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], again, strict=True))
