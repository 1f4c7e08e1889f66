"""softmax_cross_entropy: against torch, with every option, block by block."""

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


def test_against_reference(prove):
    row = torch.linspace(-1.0, 2.0, 4, dtype=torch.float64)
    edges = [
        pb.sample(row.expand(0, 4), torch.zeros(0, dtype=torch.int64), reduction="sum"),
        pb.sample(row, torch.tensor(2)),
        pb.sample(row[:1].expand(3, 1), torch.tensor([0, 0, -100])),
        pb.sample(row.expand(2, 4), torch.tensor([-100, -100]), reduction="none"),
    ]
    prove(pb.ops.softmax_cross_entropy, edges=edges, kept=0)


def test_check(passes_check):
    passes_check(pb.ops.softmax_cross_entropy, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.softmax_cross_entropy, thorough=True)


LOGITS = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((torch.ones(2, 3).long(), torch.tensor([0, 1])), {}, TypeError, r"logits must be a floating tensor"),
        ((LOGITS, torch.ones(2)), {}, TypeError, r"target must be an integer tensor of class numbers, got dtype torch.float32"),
        ((LOGITS, torch.tensor([0, 1, 1])), {}, ValueError, r"target must have the shape \[2\], one class for each row, got \[3\]"),
        ((LOGITS, torch.tensor([0, 3])), {}, IndexError, r"target must hold classes from 0 to 2, or ignore_index -100; got 3"),
        ((LOGITS, torch.tensor([0, 1])), {"label_smoothing": 1.5}, ValueError, r"label_smoothing must be from 0.0 to 1.0, got 1.5"),
        ((LOGITS, torch.tensor([0, 1])), {"soft_cap": 0.0}, ValueError, r"soft_cap must be positive"),
        ((LOGITS, torch.tensor([0, 1])), {"z_loss": -1.0}, ValueError, r"z_loss must be at least 0.0"),
        ((LOGITS, torch.tensor([0, 1])), {"reduction": "max"}, ValueError, r"reduction must be one of"),
        ((torch.ones(2, 0), torch.tensor([0, 1])), {}, ValueError, r"with at least one class"),
    ],
)
def test_refuses(args, options, error, message):
    with pytest.raises(error, match=f"softmax_cross_entropy: .*{message}"):
        pb.ops.softmax_cross_entropy(*args, **options)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_as_torch_has_it(reduction, smoothing):
    torch.manual_seed(0)
    logits = (4 * torch.randn(600, 1000, dtype=torch.float64)).requires_grad_()
    target = torch.randint(-1, 1000, (600,))
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": -1}
    got, want = pb.ops.softmax_cross_entropy(logits, target, **options), F.cross_entropy(logits, target, **options)
    torch.testing.assert_close(got, want)
    dy = torch.randn_like(got)
    torch.testing.assert_close(torch.autograd.grad(got, logits, dy), torch.autograd.grad(want, logits, dy))


@pytest.mark.parametrize("options", OPTIONS)
def test_formulas_with_and_without_new_memory_agree(options):
    from pullback.ops.fused import _entropy as entropy

    torch.manual_seed(0)
    logits, target = 3 * torch.randn(7, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4, 2, 0])
    scale, given = torch.rand(7, dtype=torch.float64), entropy.Options(**options)
    before = logits.clone()
    want = entropy.gradients(logits, target, scale, given)
    torch.testing.assert_close(entropy.gradients_now(logits, target, scale, given, None, torch.empty_like(logits)), want)
    assert torch.equal(logits, before)
    torch.testing.assert_close(entropy.gradients_now(logits, target, scale, given, None, logits), want)


def test_no_row_counts():
    target = torch.tensor([-100, -100])
    assert pb.ops.softmax_cross_entropy(LOGITS, target).isnan()
    assert F.cross_entropy(LOGITS, target).isnan()
    assert pb.ops.softmax_cross_entropy(LOGITS, target, reduction="sum") == 0


def test_masked_classes():
    logits = torch.tensor([[1.0, -float("inf"), 2.0]], requires_grad=True)
    target = torch.tensor([2])
    loss = pb.ops.softmax_cross_entropy(logits, target)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target))
    torch.testing.assert_close(torch.autograd.grad(loss, logits), torch.autograd.grad(F.cross_entropy(logits, target), logits))


def test_half_precision_is_summed_in_float32():
    torch.manual_seed(0)
    logits = (2 * torch.randn(4000, 50)).bfloat16()
    target = torch.randint(50, (4000,))
    truth = F.cross_entropy(logits.double(), target)
    assert abs(pb.ops.softmax_cross_entropy(logits, target).double() - truth) <= truth * 2**-8
    with torch.autocast("cpu", torch.bfloat16):
        loss = pb.ops.softmax_cross_entropy(logits, target)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), truth, rtol=1e-5, atol=0)
