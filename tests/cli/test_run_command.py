"""`pullback run` runs a program as Python does, and explains the mistake that ends it."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pullback.cli.main import main

WRONG = """\
import sys

import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


print(sys.argv, __name__, __file__)
loss = Scale.apply(torch.ones(3, requires_grad=True), 2.0).sum()
loss.backward()
"""

RIGHT = '''\
"""Prints what it is, steps an optimizer, and leaves with a status of its own."""
import sys

import torch

if __name__ == "__main__":
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    print(sys.argv[1:], __name__, sys.modules["__main__"].__file__ == __file__, __spec__ is None)
    sys.exit(7)
'''

OTHER = """\
def inner():
    raise KeyError("mine")


inner()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    (tmp_path / "other.py").write_text(OTHER, encoding="utf-8")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "right.py").write_text(RIGHT, encoding="utf-8")
    return tmp_path


def python(folder, *args):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    return subprocess.run([sys.executable, *args], cwd=folder, env=environment, capture_output=True, text=True, timeout=250, check=False)


def test_a_mistake_is_explained_with_the_traceback_of_the_program(folder):
    run = python(folder, "-m", "pullback", "run", "wrong.py", "--epochs", "1")
    assert run.returncode == 1
    assert run.stdout == f"['wrong.py', '--epochs', '1'] __main__ {folder / 'wrong.py'}\n"
    cause, _, rest = run.stderr.partition("\n\nThe above exception was the direct cause of the following exception:\n\n")
    assert cause == "RuntimeError: function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)"
    assert rest.startswith(f'Traceback (most recent call last):\n  File "{folder / "wrong.py"}", line 18, in <module>\n    loss.backward()\n')
    assert "pullback" not in rest.replace(str(folder), "")
    assert rest.endswith(
        "RuntimeError: Scale.backward returned an incorrect number of gradients: 1, where forward takes 2 arguments\n"
        "  wrong.py:12   def backward(ctx, grad_output):\n"
        "  forward   wrong.py:8   def forward(ctx, x, factor):\n"
        "  backward  wrong.py:18   loss.backward()\n"
        "  fix       return grad_x, grad_factor, as a tuple, with None for an argument that has no gradient\n"
    )


def test_a_right_module_is_run_as_python_runs_it(folder):
    plain = python(folder, "-m", "package.right", "-m", "--epochs", "1")
    run = python(folder, "-m", "pullback", "run", "-m", "package.right", "-m", "--epochs", "1")
    assert (run.returncode, run.stdout, run.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert run.returncode == 7
    assert run.stdout == "['-m', '--epochs', '1'] __main__ True False\n"


@pytest.mark.slow
def test_other_errors_look_as_ever(folder):
    plain = python(folder, "other.py")
    run = python(folder, "-m", "pullback", "run", "other.py")
    assert (run.returncode, run.stdout) == (plain.returncode, plain.stdout)
    assert run.stderr == plain.stderr.replace('File "other.py"', f'File "{folder / "other.py"}"')


def usage(*args):
    return CliRunner().invoke(main, ["run", *args])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name a program to run"),
        (("missing.py",), "missing.py: No such file or directory"),
        (("python3", "train.py"), "leave out 'python3': pullback run train.py"),
        (("no-such-command",), "neither a Python file nor a console command"),
        (("-m", "no.such.module"), "-m no.such.module"),
    ],
)
def test_wrong_usage_is_explained(args, message):
    result = usage(*args)
    assert result.exit_code == 2
    assert message in result.output


def test_help_shows_how_to_run_scripts_modules_and_commands():
    text = usage("--help").output
    assert "pullback run train.py --epochs 1" in text
    assert "pullback run -m package.train --epochs 1" in text
    assert "pullback run -- pytest -q" in text
