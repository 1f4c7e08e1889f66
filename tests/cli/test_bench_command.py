"""`pullback bench` measures in a process of its own, writes every form, and fails where a gate says so."""

import json
import sys
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

from pullback.benchmark import child
from pullback.benchmark.result import Bench, Point, Run
from pullback.benchmark.spread import Spread
from pullback.cli import _benched
from pullback.cli.main import main

OPS = """
import ctypes

import torch

import pullback as pb


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.numel() == 100:
            print("as the op prints", end="\\r")
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        if dy.numel() == 77:
            ctypes.string_at(0)
        if dy.numel() == 99:
            raise ValueError("not this size")
        return 2 * dy


def doubled(x):
    return x + x


def pullback_cases():
    yield pb.case(Doubled, torch.ones(6)).against(doubled)
    yield pb.case(Doubled, torch.ones(3, 2))
"""


def line_of(text):
    return next(number for number, line in enumerate(OPS.splitlines(), 1) if text in line)


@pytest.fixture
def ops(tmp_path):
    path = tmp_path / "own_ops.py"
    path.write_text(OPS)
    return path


def bench(*arguments):
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def made_up(op, **about):
    """A result whose op takes `op` times as long as its reference."""
    times, quotient = Spread(op, op, op), Spread(op, op, op)
    one = Spread(1.0, 1.0, 1.0)
    ours = Run("Doubled", times, times, times)
    theirs = Run("reference", one, one, one, quotient, quotient, quotient)
    return Bench("own_ops.Doubled", ("Doubled", "reference"), (Point(100, 100, "x: float32[100]", (ours, theirs), rounds=5),), (), about)


@pytest.fixture
def measured(monkeypatch):
    """Let the other process come back with a made-up result at once; the requests are kept."""
    requests = []

    def make(result):
        monkeypatch.setattr(_benched, "benched", lambda request, follow: requests.append(request) or result)
        return requests

    return make


def test_another_process_measures_and_everything_is_written(ops, tmp_path):
    page, kept = tmp_path / "page.html", tmp_path / "kept.json"
    result = bench(f"{ops}::Doubled", "--sizes", "50,1e2", "--seconds", "0.01", "--output-format", "html", "--output", page, "--save", kept)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    found = Bench.from_json(kept.read_text())
    assert found.names == ("Doubled", "reference")
    assert [point.size for point in found.sizes] == [50, 100]
    assert page.read_text().lower().startswith("<!doctype html")
    assert "as the op prints" not in result.stdout


def test_a_crash_is_named_with_its_place(ops):
    result = bench(f"{ops}::Doubled", "--sizes", "77", "--seconds", "0.01")
    assert result.exit_code == 1
    assert "the process was ended by SIGSEGV while it measured x: float32[77]" in result.output
    assert f"own_ops.py:{line_of('string_at')}, in backward" in result.output


def test_forms(ops, measured, tmp_path):
    measured(made_up(2.0))
    assert "Doubled / it" in bench(f"{ops}::Doubled").stdout
    assert json.loads(bench(f"{ops}::Doubled", "--output-format", "json").stdout)["names"] == ["Doubled", "reference"]
    ElementTree.fromstring(bench(f"{ops}::Doubled", "--output-format", "svg").stdout)
    result = bench(f"{ops}::Doubled", "--output", tmp_path / "no" / "file")
    assert (result.exit_code, "No such file or directory" in result.output) == (2, True)


def test_the_gate_fails_and_says_why(ops, measured, tmp_path):
    measured(made_up(2.0))
    result = bench(f"{ops}::Doubled", "--fail-if", "time>1.5,kept>1", "--fail-if", "forward>3")
    assert result.exit_code == 1
    assert "FAILED time>1.5: time is 2.00 (2.00–2.00) × that of reference, with x: float32[100]" in result.stderr
    assert result.stderr.count("FAILED") == 1
    assert bench(f"{ops}::Doubled", "--fail-if", "time>2").exit_code == 0


def test_the_gate_against_a_baseline(ops, measured, tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text(made_up(1.0, threads=1).to_json())
    measured(made_up(2.0, threads=2))
    result = bench(f"{ops}::Doubled", "--baseline", kept, "--fail-if", "time>1.5")
    assert result.exit_code == 1
    assert "× that of baseline" in result.stderr
    assert "measured with threads 1, this with 2" in result.stderr
    assert bench(f"{ops}::Doubled", "--baseline", kept).exit_code == 0
    kept.write_text("{}")
    result = bench(f"{ops}::Doubled", "--baseline", kept)
    assert (result.exit_code, "not a benchmark" in result.output) == (2, True)


def test_nothing_to_compare_with(ops, measured):
    alone = made_up(1.0)
    point = alone.points[0]
    measured(Bench(alone.subject, ("Doubled",), (Point(100, 100, "x", point.runs[:1]),)))
    result = bench(f"{ops}::Doubled", "--fail-if", "time>1")
    assert (result.exit_code, "--baseline FILE, or --against REF" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sizes", "many"], "numbers of elements separated by commas"),
        (["--sizes", "1.5"], "a whole number of elements"),
        (["--fail-if", "time<1"], "'time<1' is no condition"),
        (["--dtype", "int8"], "is not one of"),
    ],
)
def test_wrong_options_are_explained(ops, arguments, says):
    result = bench(f"{ops}::Doubled", *arguments)
    assert (result.exit_code, says in result.output) == (2, True), result.output


def test_options_reach_the_request(ops, measured):
    requests = measured(made_up(1.0))
    bench(f"{ops}::Doubled", "--sizes", "1e3,2_000", "--threads", "2", "--dtype", "float16", "--against", "a", "--against", "b", "--case", "1")
    (request,) = requests
    assert {key: request[key] for key in ("sizes", "threads", "dtype", "against", "case", "device")} == {
        "sizes": [1000, 2000],
        "threads": 2,
        "dtype": "float16",
        "against": ("a", "b"),
        "case": 1,
        "device": None,
    }


@pytest.fixture
def asked(ops, monkeypatch):
    """Answer a request in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def ask(name="Doubled", **changes):
        request = {"target": f"{ops}::{name}", "against": [], "sizes": [10], "threads": None, "dtype": None, "device": None, "seconds": 0.001}
        request |= {"case": 0, "cases": None, "seed": 0, "declare": {}} | changes
        try:
            return Bench.from_json(child.measured(request, lambda **message: None))
        finally:
            for known in [n for n in sys.modules if n.startswith("own_")]:
                del sys.modules[known]

    return ask


def test_contenders_by_name(asked, ops):
    found = asked(against=[f"{ops}::doubled", "torch.Tensor.positive", "reference"])
    assert found.names == ("Doubled", "doubled", "positive", "reference")
    assert found.notes[1].startswith("positive computes something else than Doubled")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "Doublet"}, "Did you mean Doubled"),
        ({"case": 5}, "has 2 samples, numbered from 0\n  0  x: float32\\[6\\]"),
        ({"case": 1, "against": ["reference"]}, "no reference is declared"),
        ({"against": ["torch.nn.functional.sillu"]}, "write FILE::NAME"),
        ({"against": ["torch.pi"]}, "this is a float; a callable is needed"),
        ({"against": ["nowhere"]}, "write FILE::NAME"),
        ({"against": ["nowhere.py::x"]}, "no file 'nowhere.py'"),
    ],
)
def test_wrong_requests_are_explained(asked, changes, says):
    with pytest.raises(child.UsageError, match=says):
        asked(**changes)


def test_a_size_that_raises_is_named(asked, ops):
    from pullback import BenchError

    with pytest.raises(BenchError, match="backward of Doubled raised ValueError: not this size") as caught:
        asked(sizes=[99])
    assert f"with x: float32[99]\n  at {ops}:{line_of('ValueError')}" in str(caught.value)


def test_what_the_child_says_in_the_end_becomes_an_error(monkeypatch, tmp_path):
    def fake(request, stack):
        import os
        import subprocess

        said, says = os.pipe()
        os.write(says, (json.dumps(request) + "\n").encode())
        os.close(says)
        return subprocess.Popen(["true"]), said

    monkeypatch.setattr(_benched, "_start", fake)
    with pytest.raises(click.UsageError, match="nothing of this name"):
        _benched.benched({"usage": "nothing of this name"}, print)
    with pytest.raises(click.ClickException, match="raised"):
        _benched.benched({"failed": "it raised"}, print)
    with pytest.raises(click.ClickException, match="ended with status 0 while it measured something"):
        _benched.benched({"at": "something", "done": 0, "total": 1}, lambda at, done, total: None)
