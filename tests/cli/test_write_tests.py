"""`--write-tests DIR`: what is written, and that it passes and fails as the check does."""

import os
import subprocess
import sys

import pytest

OPS = """
import dataclasses
import math
import torch
import pullback as pb

@dataclasses.dataclass
class Config:
    scale: float

def scaled(x, weight, config, eps=0.0):
    return x * weight * config.scale

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, config, eps=0.0):
        ctx.save_for_backward(x, weight)
        ctx.scale = config.scale
        return x * weight * config.scale

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy * weight * ctx.scale, dy * x * ctx.scale, None, None

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, activation):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x, None

class Spike(torch.autograd.Function):
    __pullback__ = {"exact": False, "reason": "straight through"}

    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy

class Picky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raise ValueError("not today")

    @staticmethod
    def backward(ctx, dy):
        return dy

class Local(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy

def pullback_cases():
    x = torch.randn(3, 4, requires_grad=True)
    yield pb.case(Scaled, x, torch.nn.Parameter(torch.randn(3, 4)), Config(3.0), eps=math.inf).against(scaled)
    yield pb.case(Scaled, torch.randn(4, 3).t().requires_grad_(), torch.randn(3, 4), Config(2.0)).against(lambda x, w, c, eps=0.0: x * w * c.scale)
    yield pb.case(Square, torch.randn(20, 30, requires_grad=True), torch.relu)
    yield pb.case(Local, x).declare(static=("y",))
"""


def python(*arguments, cwd):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=250, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "ops.py").write_text(OPS)
    return folder


@pytest.fixture(scope="module")
def written(project):
    return python("-m", "pullback", "check", "ops.py", "--select", "PB5,PB604", "--write-tests", "out", cwd=project)


def test_one_file_a_function(project, written):
    assert {path.name for path in (project / "out").glob("*.py")} == {f"test_ops_{name}.py" for name in ("scaled", "square", "spike", "local")}
    assert "no test for Picky: it has no samples" in written.stderr
    assert "wrote out/test_ops_scaled.py" in written.stderr
    assert written.returncode == 1


def test_samples_are_code(project, written):
    text = (project / "out" / "test_ops_scaled.py").read_text()
    assert "from ops import Config, Scaled, pullback_cases, scaled" in text
    assert "return pb.case(Scaled, x, weight, Config(scale=3.0), eps=math.inf).against(scaled)" in text
    assert "weight = torch.nn.Parameter(torch.tensor([[" in text
    assert "return given(1)  # holds what cannot be written down: function pullback_cases.<locals>.<lambda>" in text
    assert "select=['PB501', " in text


def test_large_tensors_lie_beside_the_file(project, written):
    text = (project / "out" / "test_ops_square.py").read_text()
    assert "x = DATA['x_0'].clone().requires_grad_()" in text
    assert "return pb.case(Square, x, torch.relu)" in text
    assert (project / "out" / "test_ops_square.pt").is_file()


def test_what_was_searched_stays_searched(project, written):
    assert "return replace(pb.case(Spike, x), origin='searched')" in (project / "out" / "test_ops_spike.py").read_text()


def test_they_pass_and_fail_as_the_check_does(project, written):
    run = python("-m", "pytest", "out", "-rA", "-q", "-p", "no:cacheprovider", cwd=project)
    outcomes = dict(reversed(line.split(" - ")[0].split(" ", 1)) for line in run.stdout.splitlines() if line.startswith(("PASSED", "FAILED")))
    assert {name for name, outcome in outcomes.items() if outcome == "FAILED"} == {"out/test_ops_square.py::test_sample_0"}
    assert {
        "out/test_ops_scaled.py::test_sample_0",
        "out/test_ops_scaled.py::test_sample_1",
        "out/test_ops_local.py::test_sample_0",
    } <= outcomes.keys()
    assert "Square.backward returns a wrong gradient for x" in run.stdout


def test_what_is_there_is_left_as_it_is(project, written):
    path = project / "out" / "test_ops_local.py"
    path.write_text("# mine\n")
    again = python("-m", "pullback", "check", "ops.py::Local", "--select", "PB604", "--write-tests", "out", cwd=project)
    assert path.read_text() == "# mine\n"
    assert "was left as it is" in again.stderr
