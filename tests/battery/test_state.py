"""A check leaves nothing behind in the caller's process."""

import random
import warnings

import pytest
import torch

import pullback as pb


class Meddler(torch.autograd.Function):
    """Changes everything of the process that a Function can reach, and is wrong besides."""

    @staticmethod
    def forward(ctx, x, w):
        torch.manual_seed(1)
        random.seed(1)
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True, warn_only=True)
        warnings.simplefilter("error")
        torch.set_grad_enabled(True)
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        x.detach().mul_(2)
        dy.mul_(w)
        torch.rand(3)
        return dy, (dy * x).sum(0) * 3


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torch.set_default_dtype(torch.float64)
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        raise RuntimeError("no")


def snapshot(*tensors):
    return [(t.detach().clone(), t.requires_grad, t._version, t.grad, t.data_ptr(), tuple(t.stride())) for t in tensors]


def same(before, after):
    return all(torch.equal(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("grad_mode", [True, False])
@pytest.mark.parametrize("function", [Meddler, Raises])
def test_nothing_of_the_caller_changes(function, grad_mode):
    count = 2 if function is Meddler else 1
    tensors = [torch.randn(3, 4, requires_grad=True), torch.randn(4)][:count]
    state = torch.get_rng_state(), random.getstate(), torch.get_default_dtype(), list(warnings.filters)
    before = snapshot(*tensors)
    with torch.set_grad_enabled(grad_mode):
        report = pb.check(function, tuple(tensors))
        assert torch.is_grad_enabled() is grad_mode
    assert not report.ok
    assert not [f for f in report.findings if f.code == "PB008"], str(report)
    assert same(before, snapshot(*tensors))
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert torch.get_default_dtype() is state[2]
    assert list(warnings.filters) == state[3]
    assert not torch.are_deterministic_algorithms_enabled()
    assert "backward" in function.__dict__
    assert isinstance(function.__dict__["backward"], staticmethod)


def test_the_methods_of_the_checked_class_are_its_own_again():
    forward, backward = Meddler.__dict__["forward"], Meddler.__dict__["backward"]
    pb.check(Meddler, (torch.randn(3, 4, requires_grad=True), torch.randn(4)))
    assert Meddler.__dict__["forward"] is forward
    assert Meddler.__dict__["backward"] is backward
    assert "apply" not in Meddler.__dict__


def test_the_same_seed_gives_the_same_report():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    first, second = (pb.check(Meddler, (x, w), seed=3) for _ in range(2))
    assert [(f.code, f.message, f.evidence) for f in first.findings] == [(f.code, f.message, f.evidence) for f in second.findings]


def test_declarations_of_the_project_are_honoured(tmp_path, monkeypatch):
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp()

        @staticmethod
        def backward(ctx, dy):
            return dy.clamp(-1, 1)

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert {f.code for f in pb.check(Clipped, x, select=["PB501", "PB503"]).findings} == {"PB501", "PB503"}
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.pullback.declare]\n"{Clipped.__module__}.{Clipped.__qualname__}" = {{ exact = false, linear = false, reason = "clipped" }}\n'
    )
    monkeypatch.chdir(tmp_path)
    assert not pb.check(Clipped, x, select=["PB501", "PB503"]).findings
