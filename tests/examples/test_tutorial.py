"""The tutorial examples: every fault is named, nothing else is, and the mended ones come out clean."""

import importlib.util
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from pullback.report.report import Report

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "examples" / "tutorial"

# Errors and warnings are all that may be reported, notes are the least that must be.
EXPECTED = {
    "Split": {"warning": {"PB617"}, "note": {"PB902"}},
    "RandomOp": {"warning": {"PB901"}},
    "MyReLU": {},
    "Dropout": {"warning": {"PB620"}, "note": {"PB502"}},
    "FusedLinearGELU": {},
    "MemoryEfficientOp": {"warning": {"PB901"}},
    "ScalarOp": {},
    "BuggyFunction": {},
    "DebugFunction": {"warning": {"PB901"}},
    "Swish": {"error": {"PB509"}, "warning": {"PB612"}, "note": {"PB703"}},
    "CustomReLU": {"error": {"PB501"}},
    "ScaledSigmoid": {"error": {"PB501"}},
    "Mul": {"error": {"PB611"}, "warning": {"PB901"}},
    "Exp": {},
    "GuidedReLU": {"error": {"PB503"}},
    "Sigmoid": {},
    "ParameterInside": {"error": {"PB611"}},
}
DELIBERATE = ("CustomReLU", "ScaledSigmoid", "GuidedReLU")


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"tutorial_{name}", TUTORIAL / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(name: str) -> tuple[subprocess.CompletedProcess[str], Report]:
    command = [sys.executable, "-m", "pullback", "check", f"examples/tutorial/{name}.py", "--output-format", "json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode in (0, 1), run.stderr
    return run, Report.from_json(run.stdout)


def by_example(report: Report) -> dict[str, dict[str, set[str]]]:
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for finding in report.findings:
        found[finding.subject.rpartition(".")[2]][finding.severity].add(finding.code)
    return found


@pytest.fixture(scope="module")
def published():
    return checked("as_published")


@pytest.fixture(scope="module")
def mended():
    return checked("mended")


@pytest.mark.parametrize("example", EXPECTED)
def test_published_example_shows_its_fault_and_no_other(published, example):
    found = by_example(published[1])[example]
    expected = EXPECTED[example]
    assert found["error"] == expected.get("error", set())
    assert found["warning"] == expected.get("warning", set())
    assert found["note"] >= expected.get("note", set())


@pytest.mark.parametrize("example", EXPECTED)
def test_mended_example_is_clean(mended, example):
    found = by_example(mended[1])[example]
    assert found["error"] == set()
    assert found["warning"] == set()


@pytest.mark.parametrize("which", ["published", "mended"])
def test_every_example_is_checked(which, request):
    _, report = request.getfixturevalue(which)
    assert {subject.rpartition(".")[2] for subject in report.subjects} == set(EXPECTED)
    passed = {run.subject.rpartition(".")[2] for run in report.checks if run.status in ("pass", "declared")}
    assert passed == set(EXPECTED)


def test_no_check_breaks(published, mended):
    broken = [run for _, report in (published, mended) for run in report.checks if run.status == "error"]
    assert broken == []


def test_exit_status_tells_findings_from_none(published, mended):
    assert published[0].returncode == 1
    assert mended[0].returncode == 0
    assert mended[1].ok


@pytest.mark.parametrize("name", ["as_published", "mended"])
def test_files_hold_exactly_the_examples_of_the_table(name):
    module = load(name)
    functions = {n for n, value in vars(module).items() if isinstance(value, type) and issubclass(value, torch.autograd.Function)} - {"Function"}
    assert functions == set(EXPECTED)
    assert {case.target.__name__ for case in module.pullback_cases()} == functions


@pytest.mark.parametrize("name", [n for n in EXPECTED if n not in DELIBERATE])
def test_mended_gradient_is_the_derivative(name):
    torch.manual_seed(0)
    for case in load("mended").pullback_cases():
        if case.target.__name__ == name:

            def same_noise(*args, apply=case.target.apply):
                torch.manual_seed(1)
                return apply(*args)

            assert torch.autograd.gradcheck(same_noise, case.args)


@pytest.mark.parametrize("module", ["as_published", "mended"])
def test_gradcheck_accepts_split_in_float32_where_torch_refuses_it(module):
    from pullback.testing import gradcheck

    split = load(module).Split
    for seed in range(5):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        with pytest.raises(RuntimeError), pytest.warns(UserWarning, match="double precision"):
            torch.autograd.gradcheck(split.apply, (x, 2, 1), eps=1e-6, atol=1e-4)
        assert gradcheck(split.apply, (x, 2, 1), eps=1e-6, atol=1e-4)
