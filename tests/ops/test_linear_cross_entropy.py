"""linear_cross_entropy: against torch, in chunks, with and without gradients kept."""

import pytest
import torch
import torch.nn.functional as F

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

OPTIONS = [
    {},
    {"reduction": "sum", "label_smoothing": 0.2},
    {"reduction": "none", "soft_cap": 3.0, "z_loss": 0.05},
    {"label_smoothing": 0.1, "soft_cap": 5.0, "z_loss": 0.01, "ignore_index": 2},
]


@pytest.fixture
def small_chunks(monkeypatch):
    from pullback.ops.fused import _chunked

    monkeypatch.setitem(_chunked.CHUNK, "cpu", 40)
    monkeypatch.setitem(_chunked.LEAST, "cpu", 3)


def case(rows=11, classes=9, width=5, dtype=torch.float64):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=dtype).requires_grad_() for shape in ((rows, width), (classes, width), (classes,)))
    return x, weight, torch.randint(classes, (rows,)), bias


def test_against_reference(prove):
    x, weight = torch.linspace(-1.0, 2.0, 4, dtype=torch.float64), torch.linspace(1.0, -1.0, 12, dtype=torch.float64).reshape(3, 4)
    edges = [
        pb.sample(x.expand(0, 4), weight, torch.zeros(0, dtype=torch.int64), reduction="sum"),
        pb.sample(x, weight, torch.tensor(2)),
        pb.sample(x.expand(2, 4), weight[:1], torch.tensor([0, -100]), weight[0, :1]),
        pb.sample(x.expand(2, 4), weight, torch.tensor([-100, -100]), reduction="none"),
    ]
    prove(pb.ops.linear_cross_entropy, edges=edges, kept=(12 + 15 + 5) * 4)  # the gradients of x, weight and bias


def test_check(passes_check):
    passes_check(pb.ops.linear_cross_entropy, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.linear_cross_entropy, thorough=True)


X, WEIGHT, TARGET = torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((X, torch.ones(4, 2), TARGET), {}, ValueError, r"x must have the shape \[..., 2\]"),
        ((X, WEIGHT, TARGET.float()), {}, TypeError, r"target must be an integer tensor of class numbers"),
        ((X, WEIGHT, torch.tensor([0])), {}, ValueError, r"target must have the shape \[2\]"),
        ((X, WEIGHT, torch.tensor([0, 4])), {}, IndexError, r"target must hold classes from 0 to 3, or ignore_index -100; got 4"),
        ((X, WEIGHT, TARGET, torch.ones(3)), {}, ValueError, r"bias must have the shape \[4\]"),
        ((X, WEIGHT.double(), TARGET), {}, TypeError, r"weight must have x's dtype"),
        ((X, torch.ones(0, 3), TARGET), {}, ValueError, r"with at least one class"),
        ((X, WEIGHT, TARGET), {"reduction": "max"}, ValueError, r"reduction must be one of"),
    ],
)
def test_refuses(args, options, error, message):
    with pytest.raises(error, match=f"linear_cross_entropy: .*{message}"):
        pb.ops.linear_cross_entropy(*args, **options)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("wanted", [(0,), (1,), (3,), (0, 1), (0, 1, 3)])
@pytest.mark.usefixtures("small_chunks")
def test_chunks_make_no_difference(options, recompute, wanted):
    from pullback.ops.fused.linear_cross_entropy import linear_cross_entropy_reference

    args = case()
    args = [a if i in wanted else a.detach() for i, a in enumerate(args)]
    leaves = [args[i] for i in wanted]
    got = pb.ops.linear_cross_entropy(*args, **options, recompute=recompute)
    want = linear_cross_entropy_reference(*args, **options)
    torch.testing.assert_close(got, want)
    dy = torch.randn_like(got)
    torch.testing.assert_close(torch.autograd.grad(got, leaves, dy, retain_graph=True), torch.autograd.grad(want, leaves, dy))
    torch.testing.assert_close(
        torch.autograd.grad(got, leaves, dy), torch.autograd.grad(linear_cross_entropy_reference(*args, **options), leaves, dy)
    )


@pytest.mark.usefixtures("small_chunks")
def test_chunks_under_second_derivatives_and_compilers():
    x, weight, target, bias = case()
    assert torch.autograd.gradgradcheck(lambda *leaves: pb.ops.linear_cross_entropy(leaves[0], leaves[1], target, leaves[2]), (x, weight, bias))
    compiled = torch.compile(pb.ops.linear_cross_entropy, backend="aot_eager", fullgraph=True)
    got, want = compiled(x, weight, target, bias), pb.ops.linear_cross_entropy(x, weight, target, bias)
    torch.testing.assert_close(torch.autograd.grad(got, (x, weight, bias)), torch.autograd.grad(want, (x, weight, bias)))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("gradients", [True, False])
def test_no_tensor_of_the_size_of_the_logits_is_made(gradients):
    """Of everything the op makes, forward and backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                largest[0] = max(largest[0], tensor.untyped_storage().nbytes() if isinstance(tensor, torch.Tensor) else 0)
            return result

    x, weight, target, _ = case(rows=200, classes=40, width=2, dtype=torch.float32)
    if not gradients:
        x, weight = x.detach(), weight.detach()
    with Watch():
        loss = pb.ops.linear_cross_entropy(x, weight, target)
        if gradients:
            loss.backward()
    assert largest[0] < 200 * 40 * 4 / 4


def test_evaluation_computes_no_gradients(monkeypatch):
    from pullback.ops.fused import _chunked

    monkeypatch.setattr(_chunked, "loss_and_gradients", None)
    with torch.no_grad():
        assert pb.ops.linear_cross_entropy(*case()).isfinite()


def test_mixed_precision_sums_the_weights_gradient_in_float32(small_chunks):
    x, weight, target, _ = case(rows=400, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = pb.ops.linear_cross_entropy(x, weight, target)
    assert loss.dtype == torch.float32
    got = torch.autograd.grad(loss, (x, weight))
    want = torch.autograd.grad(F.cross_entropy(x.double() @ weight.double().t(), target), (x, weight))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == torch.float32
        assert (g - w).norm() < 0.01 * w.norm()
