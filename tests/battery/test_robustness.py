"""Hostile code under the real battery: contained, reported, and without a trace in the next check, the caller or the output."""

import os
import random
import re
import textwrap
import warnings
from pathlib import Path

import numpy
import pytest
import torch
from click.testing import CliRunner

import pullback as pb
from pullback.cli.main import main
from pullback.report import Report


def square(forward="", backward=""):
    """A right Function that also does something to its process."""
    names = {"torch": torch, "os": os, "random": random, "numpy": numpy, "warnings": warnings}

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            exec(forward, names)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, dy):
            exec(backward, names)
            (x,) = ctx.saved_tensors
            return 2 * x * dy

    return Square


def x(*shape):
    return torch.linspace(-1.3, 1.7, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).requires_grad_()


CHANGES = {
    "default dtype": "torch.set_default_dtype(torch.float16)",
    "default device": "torch.set_default_device('meta')",
    "grad mode": "torch.set_grad_enabled(False)",
    "deterministic": "torch.use_deterministic_algorithms(True)",
    "anomaly": "torch.autograd.set_detect_anomaly(True)",
    "precision": "torch.set_float32_matmul_precision('medium')",
    "threads": "torch.set_num_threads(3)",
    "warnings": "warnings.simplefilter('error')",
    "folder": "os.chdir('/')",
    "python seed": "random.seed(1)",
    "numpy seed": "numpy.random.seed(1)",
}


def process_state():
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "warnings": list(warnings.filters),
        "folder": os.getcwd(),
        "torch seed": torch.get_rng_state().tolist(),
        "python seed": random.getstate(),
        "numpy seed": numpy.random.get_state()[1].tolist(),
    }


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_state_does_not_reach_the_caller(change, where):
    before = process_state()
    report = pb.check(square(**{where: CHANGES[change]}), x(4), select=["PB501", "PB604", "PB610"])
    assert process_state() == before
    assert "PB501" not in {f.code for f in report.findings}


def test_places_are_told_from_where_the_caller_is():
    class Moves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            os.chdir("/")
            return value * 3

        @staticmethod
        def backward(ctx, dy):
            return dy

    (finding,) = pb.check(Moves, x(4), select=["PB501"]).findings
    assert finding.location.path == os.path.relpath(__file__)


def test_changed_defaults_do_not_reach_the_next_call():
    seen = []
    names = {"torch": torch, "seen": seen}

    class Spoils(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            exec("seen.append((torch.get_default_dtype(), torch.get_default_device().type))", names)
            exec("torch.set_default_dtype(torch.float16); torch.set_default_device('meta')", names)
            ctx.save_for_backward(value)
            return value * value

        @staticmethod
        def backward(ctx, dy):
            (value,) = ctx.saved_tensors
            return 2 * value * dy

    assert pb.check(Spoils, x(4), select=["PB501", "PB604", "PB610"]).ok
    assert len(seen) > 5
    assert set(seen) == {(torch.float32, "cpu")}


def test_changed_process_state_does_not_reach_the_next_check():
    seen = []

    def op(value):
        seen.append(torch.are_deterministic_algorithms_enabled())
        torch.use_deterministic_algorithms(True)
        return Double.apply(value)

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    pb.check(op, x(4), select=["PB501", "PB604", "PB610", "PB618"])
    assert seen.count(False) >= 3


HOSTILE = "\x1b[31m[bold red]x[/bold] <script>alert(1)</script> ]]> \u202e \x07\r\n::error::stop | `y`"


def hostile_ops():
    return textwrap.dedent(f"""
        import ctypes, os, sys
        import torch
        import pullback as pb

        HOSTILE = {HOSTILE!r}

        class Good(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, dy):
                return dy * 2

        class Raises(Good):
            @staticmethod
            def backward(ctx, dy):
                raise ValueError(HOSTILE)

        class Wrong(Good):
            @staticmethod
            def backward(ctx, dy):
                print(HOSTILE * 20_000)
                os.write(2, b"\\x1b[2J" * 500_000)
                return dy * 3

        class CrashesOnStrides(Good):
            @staticmethod
            def backward(ctx, dy):
                if not dy.is_contiguous():
                    ctypes.string_at(0)
                return dy * 2

        Wrong.__name__ = Wrong.__qualname__ = "Wrong" + HOSTILE

        def pullback_cases():
            for function in (Good, Raises, Wrong, CrashesOnStrides):
                yield pb.case(function, torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_())
    """)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The report on hostile code, from one run of the command."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "ops.py").write_text(hostile_ops())
    before = Path.cwd()
    os.chdir(folder)
    try:
        select = ("--select", "PB002,PB501,PB604,PB610")
        result = CliRunner().invoke(main, ["check", "ops.py", *select, "-j", "1", "--output-format", "json", "--output", "report.json"])
        assert result.exit_code == 1, result.output
        assert result.output == ""
    finally:
        os.chdir(before)
    return Report.from_json((folder / "report.json").read_text())


def test_each_fault_is_reported_and_the_right_one_is_not(hostile):
    found = {(f.code, re.match(r"ops\.\w+", f.subject).group()) for f in hostile.findings if f.severity != "note"}
    assert ("PB002", "ops.Raises") in found
    assert ("PB501", "ops.Wrong") in found
    assert ("PB002", "ops.CrashesOnStrides") in found
    assert not [entry for entry in found if entry[1] == "ops.Good"]


def test_the_check_that_met_a_crash_is_named(hostile):
    (finding,) = [f for f in hostile.findings if f.subject == "ops.CrashesOnStrides" and f.code == "PB002"]
    assert "killed by SIGSEGV" in finding.message
    assert "PB604 strided-grad-output" in "".join(e.text for e in finding.evidence)
    assert {r.code: r.status for r in hostile.checks if r.subject == "ops.CrashesOnStrides"}["PB501"] == "pass"


@pytest.mark.parametrize("style", ["text", "concise", "github", "sarif", "junit", "html", "json"])
def test_no_output_format_lets_control_characters_or_markup_through(hostile, style):
    render = pytest.importorskip(f"pullback.report.render.{style}").render
    text = render(hostile)
    if style == "html":
        text = text.replace((Path(pb.__file__).parent / "report" / "_web" / "page.js").read_text(encoding="utf-8"), "")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert "<script>alert" not in text or style in ("text", "concise", "github", "json", "sarif")
    if style == "github":
        assert not [line for line in text.splitlines() if line.startswith("::error::stop")]
