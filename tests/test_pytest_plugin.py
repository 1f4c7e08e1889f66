"""The pytest plugin: what it costs unused, the tests of ``--pullback``, the mark and the fixture."""

import os
import re
import subprocess
import sys

import pytest

OPS = """
import os
import torch
import pullback as pb

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x

class Ends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, dy):
        os._exit(7)

class Picky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raise ValueError("not today")

    @staticmethod
    def backward(ctx, dy):
        return dy

def pullback_cases():
    yield pb.case(Double, torch.randn(3, requires_grad=True))
    yield pb.case(Square, torch.randn(3, 2, dtype=torch.float64, requires_grad=True))
    yield pb.case(Ends, torch.randn(3, requires_grad=True))
"""
TESTS = """
import pytest
import torch
import pullback as pb
from pkg.ops import Double, Square

def x(n):
    return torch.randn(n, dtype=torch.float64, requires_grad=True)

@pytest.mark.pullback
@pytest.mark.parametrize("n", [1, 3])
def test_right(n):
    return pb.case(Double, x(n)).against(lambda x: x + x)

@pytest.mark.pullback
def test_wrong():
    return [pb.case(Double, x(2)), pb.case(Square, x(2))]

@pytest.mark.pullback(ignore=["wrong-gradient"])
def test_ignored():
    return (pb.case(Square, x(n)) for n in (1, 2))

@pytest.mark.pullback
def test_nothing():
    pass

@pytest.mark.pullback(order=2)
def test_misspelt():
    return pb.case(Double, x(2))

def test_fixture(pullback_check):
    assert pullback_check(Double, x(3)).subjects == ("pkg.ops.Double",)

def test_fixture_fails(pullback_check):
    pullback_check(Square, x(3), select=["PB501"])

def test_unmarked():
    pass
"""
UNUSED = """
import sys
import pytest
before = set(sys.modules)
import _pullback_pytest
print(*sorted(set(sys.modules) - before))
"""


def python(*arguments, cwd):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    for name in ("PYTEST_ADDOPTS", "CI", "BUILD_NUMBER", "PYTHONDONTWRITEBYTECODE"):  # on CI pytest prints long lines twice
        environment.pop(name, None)
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=250, check=False)


def run(folder, *arguments):
    done = python("-m", "pytest", "-p", "no:cacheprovider", "-v", "-rA", *arguments, cwd=folder)
    outcomes = {}
    for line in done.stdout.splitlines():
        match = re.match(r"^(?:\[gw\d\].*?)?(PASSED|FAILED|ERROR) (\S+::\S+)", line)
        if match:
            outcomes[match[2]] = match[1]
        match = re.match(r"^(pullback::\S+) SKIPPED \((.*)\)", line)
        if match:
            outcomes[match[1]] = f"SKIPPED {match[2]}"
    return done, outcomes


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "ops.py").write_text(OPS)
    (folder / "test_marked.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text(
        '[tool.pullback]\nselect = ["PB5", "PB604", "PB608"]\n[tool.pytest.ini_options]\naddopts = "--strict-markers"\n'
    )
    return folder


@pytest.fixture(scope="module")
def collected(project):
    return run(project, "--pullback", "pkg", "-m", "pullback", "--ignore", "test_marked.py")


def test_unused_it_is_one_file(tmp_path):
    assert python("-c", UNUSED, cwd=tmp_path).stdout.split() == ["_pullback_pytest"]


def test_unused_it_imports_neither_torch_nor_pullback(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure():\n    print({'torch', 'pullback', 'rich', 'click', '_pullback_pytest'} & sys.modules.keys())\n"
    )
    assert python("-m", "pytest", "-q", cwd=tmp_path).stdout.splitlines()[-1] == "{'_pullback_pytest'}"


def test_each_check_has_an_id_of_its_own(collected):
    done, outcomes = collected
    assert outcomes["pullback::pkg.ops.Double[PB002-crashed]"] == "PASSED"
    assert outcomes["pullback::pkg.ops.Double[PB501-wrong-gradient]"] == "PASSED"
    assert outcomes["pullback::pkg.ops.Double[PB604-strided-grad-output]"] == "PASSED"
    assert "pullback::pkg.ops.Double[PB605-strided-input]" not in outcomes
    assert done.returncode == 1


def test_a_fault_fails_its_own_test_and_prints_the_finding(collected):
    done, outcomes = collected
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED" and "Square" in name}
    assert failed == {"pullback::pkg.ops.Square[PB501-wrong-gradient]"}
    assert "Square.backward returns a wrong gradient for x" in done.stdout
    assert "Traceback" not in done.stdout


def test_what_was_not_judged_is_skipped_with_its_reason(collected):
    _, outcomes = collected
    assert outcomes["pullback::pkg.ops.Double[PB511-wrong-forward]"] == "SKIPPED no reference is given"
    assert outcomes["pullback::pkg.ops.Picky[PB501-wrong-gradient]"].startswith("SKIPPED no sample inputs for Picky")
    assert outcomes["pullback::pkg.ops.Picky[PB002-crashed]"].startswith("SKIPPED")


def test_a_process_that_ends_fails_one_test(collected):
    done, outcomes = collected
    assert outcomes["pullback::pkg.ops.Ends[PB002-crashed]"] == "FAILED"
    assert {outcome.split()[0] for name, outcome in outcomes.items() if "Ends" in name and "PB002" not in name} == {"SKIPPED"}
    assert "ends the process: the process ended with status 7" in done.stdout


def test_one_check_runs_by_its_id(project):
    done, outcomes = run(project, "--pullback", "pkg", "pullback::pkg.ops.Square[PB501-wrong-gradient]", "pullback::pkg.ops.Double")
    assert outcomes.pop("pullback::pkg.ops.Square[PB501-wrong-gradient]") == "FAILED"
    assert {name.partition("[")[0] for name in outcomes} == {"pullback::pkg.ops.Double"}
    assert done.returncode == 1


def test_xdist_shares_functions_and_keeps_their_checks_together(project, collected):
    done, outcomes = run(project, "--pullback", "pkg", "-m", "pullback", "--ignore", "test_marked.py", "-n", "2")
    ran = {name: outcome for name, outcome in collected[1].items() if not outcome.startswith("SKIPPED")}
    assert {name: outcome for name, outcome in outcomes.items() if not outcome.startswith("SKIPPED")} == ran
    places = {}
    for worker, function in re.findall(r"^\[(gw\d)\] \[.*?\] \w+ (pullback::[\w.]+)\[", done.stdout, re.MULTILINE):
        places.setdefault(function, set()).add(worker)
    assert len(places) == 4
    assert all(len(workers) == 1 for workers in places.values())
    assert len(set.union(*places.values())) == 2


@pytest.mark.parametrize("more", [(), ("-n", "1")])
def test_an_unknown_id_is_an_error(project, more):
    done, _ = run(project, "--pullback", "pkg", "pullback::pkg.ops.Nobody", *more)
    assert done.returncode != 0
    assert "no such check: pullback::pkg.ops.Nobody" in done.stdout + done.stderr


def test_an_unknown_target_is_an_error(project):
    done, _ = run(project, "--pullback", "pgk")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "'pgk' is neither a file nor a module" in done.stderr


def test_a_file_that_cannot_be_imported_is_one_failing_test(tmp_path):
    (tmp_path / "broken.py").write_text("from torch.autograd import Function\nraise RuntimeError('no')\n")
    done, outcomes = run(tmp_path, "--pullback", "broken.py")
    assert outcomes == {"pullback::broken.py[PB001-import-failed]": "FAILED"}
    assert "RuntimeError: no" in done.stdout


def test_marks_and_fixture(project):
    done, outcomes = run(project, "test_marked.py")
    names = {name.partition("::")[2]: outcome for name, outcome in outcomes.items()}
    passed = {"test_right[1]", "test_right[3]", "test_ignored", "test_fixture", "test_unmarked"}
    failed = {"test_wrong", "test_nothing", "test_misspelt", "test_fixture_fails"}
    assert names == dict.fromkeys(passed, "PASSED") | dict.fromkeys(failed, "FAILED")
    assert done.stdout.count("Square.backward returns a wrong gradient for x") == 2
    assert "test_nothing is marked `pullback` and returned nothing; it must return pb.case(op, *arguments)" in done.stdout
    assert "unknown option 'order'" in done.stdout
