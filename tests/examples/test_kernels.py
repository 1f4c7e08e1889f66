"""The C kernel: right on packed gradients in both versions, on every layout in the mended one; pullback tells them apart."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pullback.report.report import Report

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "examples" / "kernels"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(KERNELS))
    return importlib.import_module


def gradients(op, reference, cotangent):
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight = torch.rand(16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    got = torch.autograd.grad(op(x, weight), (x, weight), cotangent)
    expected = torch.autograd.grad(reference(x, weight), (x, weight), cotangent)
    return got, expected


@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_mended"])
def test_kernel_agrees_with_its_reference_on_packed_gradients(example, name):
    module = example(name)
    torch.testing.assert_close(*gradients(module.FusedRMSNorm.apply, module.rms_norm_reference, torch.randn(6, 16)))


@pytest.mark.parametrize(("name", "right"), [("rms_norm", False), ("rms_norm_mended", True)])
def test_only_the_mended_kernel_reads_strides(example, name, right):
    module = example(name)
    got, expected = gradients(module.FusedRMSNorm.apply, module.rms_norm_reference, torch.randn(16, 6).t())
    assert all(torch.allclose(g, e, atol=1e-5) for g, e in zip(got, expected, strict=True)) is right


def test_missing_compiler_is_named(example, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel = example("rms_norm_kernel")
    with pytest.raises(RuntimeError, match="'no-such-compiler' on the PATH"):
        kernel.compiled(kernel.SOURCE)


def test_compiler_errors_are_shown(example, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    broken = tmp_path / "broken.c"
    broken.write_text("int f( {")
    with pytest.raises(RuntimeError, match=r"cannot compile .*broken\.c:\n.*error"):
        example("rms_norm_kernel").compiled(broken)


def check(name: str) -> Report:
    command = [sys.executable, "-m", "pullback", "check", f"examples/kernels/{name}.py", "--output-format", "json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode in (0, 1), run.stderr
    return Report.from_json(run.stdout)


def test_check_names_the_fault_and_nothing_else():
    loud = [f for f in check("rms_norm").findings if f.severity != "note"]
    assert [f.code for f in loud] == ["PB604"]
    assert loud[0].certain
    assert "contiguous()" in (loud[0].fix or "")


def test_check_passes_the_mended_kernel():
    report = check("rms_norm_mended")
    assert [f.code for f in report.findings if f.severity != "note"] == []
    assert report.ok
