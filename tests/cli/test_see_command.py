"""`pullback see` shows one Function's sample in every form, and says what is wrong with a call."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from pullback.cli.main import main

MENDED = str(Path(__file__).resolve().parents[2] / "examples" / "tutorial" / "mended.py")


@pytest.fixture
def see(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def run(*arguments):
        modules = set(sys.modules)
        try:
            return CliRunner().invoke(main, ["see", "--in-process", *arguments])
        finally:
            for name in set(sys.modules) - modules:
                if name.startswith(("mended", "own_")):
                    del sys.modules[name]

    return run


def test_text_shows_trace_memory_and_graph(see):
    result = see(f"{MENDED}::Swish", "--case", "1")
    assert result.exit_code == 0, result.output
    for part in ("── trace", "Swish.apply", "Swish.backward", "── kept for backward", "104 B in 2 blocks", "── graph", "● Swish"):
        assert part in result.stdout


def test_what_the_function_prints_goes_elsewhere(see):
    result = see(f"{MENDED}::DebugFunction", "--output-format", "json")
    data = json.loads(result.stdout)
    assert data["subject"].endswith("DebugFunction")
    assert [section["kind"] for section in (data["trace"], data["saved"], data["graph"])] == ["trace", "saved", "graph"]
    assert "forward: (3, 4)" in result.stderr


def test_svg_is_written_to_a_file(see, tmp_path):
    output = tmp_path / "mul.svg"
    result = see(f"{MENDED}::Mul", "--output-format", "svg", "--output", str(output))
    assert (result.exit_code, result.stdout) == (0, "")
    assert ElementTree.parse(output).getroot().tag.endswith("svg")
    assert ">w<" in output.read_text()


def test_mermaid_is_printed(see):
    assert see(f"{MENDED}::Exp", "--output-format", "mermaid").stdout.startswith("flowchart TD")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([MENDED], "see shows one Function"),
        ([f"{MENDED}::Swich"], "Swish"),
        ([f"{MENDED}::Swish", "--case", "7"], "has 2 samples"),
        (["nowhere.py::X"], "nowhere.py"),
    ],
)
def test_wrong_calls_are_explained(see, arguments, says):
    result = see(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_an_import_that_fails_is_told(see, tmp_path):
    path = tmp_path / "own_broken.py"
    path.write_text("raise RuntimeError('no GPU here')\n")
    result = see(f"{path}::X")
    assert result.exit_code == 2
    assert "RuntimeError: no GPU here" in result.output


def test_a_backward_that_raises_still_shows_the_rest(see, tmp_path):
    path = tmp_path / "own_raises.py"
    path.write_text(
        "import torch\n\n\nclass Raises(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n"
        "    @staticmethod\n    def backward(ctx, dy):\n        raise RuntimeError('not yet')\n\n\n"
        "def pullback_cases():\n    import pullback as pb\n\n    yield pb.case(Raises, torch.ones(3, requires_grad=True))\n"
    )
    result = see(f"{path}::Raises")
    assert result.exit_code == 0, result.output
    assert "RuntimeError: not yet" in result.stdout
    assert "● Raises" in result.stdout


def test_a_crash_ends_its_own_process_alone(tmp_path):
    path = tmp_path / "own_crashes.py"
    path.write_text(
        "import os, signal\n\nimport torch\n\n\nclass Crashes(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        os.kill(os.getpid(), signal.SIGKILL)\n\n"
        "    @staticmethod\n    def backward(ctx, dy):\n        return dy\n\n\n"
        "def pullback_cases():\n    import pullback as pb\n\n    yield pb.case(Crashes, torch.ones(3, requires_grad=True))\n"
    )
    result = CliRunner().invoke(main, ["see", f"{path}::Crashes"])
    assert result.exit_code == 1
    assert "own_crashes.py::Crashes died of SIGKILL" in result.output


def test_a_hang_is_given_up(monkeypatch):
    def never(*arguments, timeout, **settings):
        raise subprocess.TimeoutExpired("see", timeout)

    monkeypatch.setattr(subprocess, "run", never)
    result = CliRunner().invoke(main, ["see", f"{MENDED}::Exp", "--timeout", "2"])
    assert result.exit_code == 1
    assert "did not end within 2 s" in result.output


def test_the_child_prints_and_ends_as_the_command(capfd):
    result = CliRunner().invoke(main, ["see", f"{MENDED}::Nothing"])
    assert result.exit_code == 2
    said = capfd.readouterr().err
    assert "Nothing" in said
    assert said.startswith("Usage: pullback see ")
