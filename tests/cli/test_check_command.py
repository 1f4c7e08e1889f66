"""`pullback check`: exit status, options, configuration, suppressions, baseline."""

import functools
import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from pullback.battery.outcomes import Options
from pullback.cli.main import main
from pullback.report import Report

RIGHT = """
import torch
import pullback as pb

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2
"""
WRONG = """
class Triple(torch.autograd.Function):{comment}
    @staticmethod
    def forward(ctx, x):
        return (x * x).sum(-1)

    @staticmethod
    def backward(ctx, dy):
        return torch.ones(3, 4, dtype=torch.float64) * dy[:, None]
"""
CASES = """
def pullback_cases():
    for function in ({names}):
        yield pb.case(function, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
"""


SMALL_BATTERY = """
from dataclasses import dataclass
from pullback.report import CheckRun, Finding, Location, Report

@dataclass(frozen=True)
class Settings:
    seed: int
    orders: int
    thorough: bool
    select: frozenset
    ignore: frozenset
    dtype: object
    device: object
    distributed: int

def run_case(case, settings, announce, skip):
    codes = [c for c in ("PB501", "PB503", "PB604") if c not in settings.ignore | skip and (not settings.select or c in settings.select)]
    wrong = [c for c in codes if c == "PB501" and case.target.__name__ == "Triple"]
    found = [Finding(c, "wrong-gradient", "error", "fail", "?", "Triple.backward is wrong", Location("wrong.py", 20)) for c in wrong]
    runs = [CheckRun(c, "?", "fail" if c in wrong else "pass") for c in codes]
    shown = {"seed": settings.seed, "orders": settings.orders, "thorough": settings.thorough, "dtype": str(settings.dtype), "device": settings.device,
             "distributed": settings.distributed}
    return Report(tuple(found), tuple(runs), ("?",), shown)
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Replace the battery by one of a few lines: what is tested is what the command makes of its answers."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "small_battery.py").write_text(SMALL_BATTERY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setattr("pullback.cli.check.Options", functools.partial(Options, battery="small_battery", preload=""))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(RIGHT + CASES.format(names="Double,"))
    Path("wrong.py").write_text(RIGHT + WRONG.format(comment="") + CASES.format(names="Double, Triple"))
    return tmp_path


def run(*args, status=None):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    if status is not None:
        assert result.exit_code == status, result.output
    return result


def report(*args, status=None):
    return Report.from_json(run(*args, "--output-format", "json", status=status).stdout)


def test_a_wrong_gradient_exits_1_and_is_told_by_the_template(project):
    printed = run("check", "wrong.py", "--select", "PB501", status=1).stdout
    assert printed.startswith("PB501 wrong-gradient: Triple.backward")
    assert "  repro      pullback check wrong.py::Triple --select PB501 --case 0 --seed 0\n" in printed
    assert "  more       pullback explain PB501\n" in printed
    assert "1 error · 2 of 2 checked" in printed
    assert "not run: thorough (--thorough), gpu (--device cuda), distributed (--distributed N)" in " ".join(printed.split())


def test_the_command_that_a_finding_prints_shows_it_again(project, small):
    (finding,) = report("check", "wrong.py").findings
    assert finding.repro == "pullback check wrong.py::Triple --select PB501 --case 0 --seed 0"
    again = report(*finding.repro.split()[1:], status=1)
    assert again.findings == (finding,)
    assert again.subjects == ("wrong.Triple",)


def test_the_printed_command_asks_for_the_same_tier_and_order(project):
    (finding,) = report("check", "wrong.py::Triple", "--select", "PB501", "--orders", "2", "--thorough").findings
    assert finding.repro.endswith("--orders 2 --thorough --seed 0")
    assert report(*finding.repro.split()[1:], status=1).findings == (finding,)


def test_right_code_exits_0(project):
    result = report("check", "right.py", status=0)
    assert result.ok
    assert result.subjects == ("right.Double",)
    assert {f.severity for f in result.findings} <= {"note"}
    assert result.environment["samples"] == {"right.Double": ["x: float64[3, 4]"]}


def test_output_goes_to_a_file(project, small):
    assert run("check", "wrong.py::Triple", "--select", "PB501", "--output-format", "concise", "--output", "out.txt", status=1).stdout == ""
    first, last = Path("out.txt").read_text().splitlines()
    assert ": PB501 error wrong-gradient: Triple.backward" in first
    assert first.startswith("wrong.py:")
    assert last.startswith("1 error · 1 of 1 checked")
    assert "--output" in run("check", "right.py", "--select", "PB501", "--output", "no/such/folder.txt", status=2).stderr


def test_ignored_and_unselected_codes_do_not_count(project, small):
    assert "PB501" not in {f.code for f in report("check", "wrong.py::Triple", "--ignore", "wrong-gradient").findings}
    assert {run.code for run in report("check", "wrong.py::Triple", "--select", "PB503,PB604").checks} <= {"PB503", "PB604"}


def test_suppressions(project, small):
    comment = "  # pullback: ignore[PB501] teaching material"
    Path("quiet.py").write_text(RIGHT + WRONG.format(comment=comment) + CASES.format(names="Double, Triple"))
    quiet = report("check", "quiet.py", "--select", "PB501", status=0)
    assert quiet.environment["suppressed"] == 1
    assert not quiet.findings


def test_unused_and_unknown_suppressions(project, small):
    text = RIGHT.replace("Function):", "Function):  # pullback: ignore[PB501, PB60444, PB101] why", 1)
    Path("stale.py").write_text(text + CASES.format(names="Double,"))
    stale = report("check", "stale.py", status=1)
    assert sorted((f.code, f.severity) for f in stale.findings) == [("PB005", "error"), ("PB006", "warning")]
    told = " ".join(f.message for f in stale.findings)
    assert "PB501" in told
    assert "PB60444" in told
    assert "PB101" not in told
    assert {f.location.line for f in stale.findings if f.location} == {5}
    assert len(report("check", "stale.py", "--select", "PB604", status=1).findings) == 1


def test_a_comment_of_another_class_or_another_tool_does_not_count(project, small):
    other = RIGHT.replace("Function):", "Function):  # pullback: ignore[PB604] a lesson", 1)
    Path("other.py").write_text(other + WRONG.format(comment="  # noqa: PB501") + CASES.format(names="Double, Triple"))
    assert sorted(f.code for f in report("check", "other.py", status=1).findings) == ["PB006", "PB501"]


def test_baseline(project, small):
    run("check", "wrong.py", "--select", "PB501", "--output-format", "json", "--output", "known.json", status=1)
    again = report("check", "wrong.py", "--select", "PB501", "--baseline", "known.json", status=0)
    assert again.environment["suppressed"] == 1
    Path("bad.json").write_text("[]")
    assert "not a pullback report" in run("check", "wrong.py", "--select", "PB501", "--baseline", "bad.json", status=2).stderr


def test_nothing_found_to_check_exits_1(project, small):
    Path("plain.py").write_text("x = 1\n")
    result = run("check", "plain.py", status=1)
    assert "no custom Function, op or case is defined in plain.py" in result.stderr
    assert "nothing was checked" in result.stdout


def test_nothing_importable_exits_2_and_something_importable_does_not(project, small):
    Path("broken.py").write_text("1 / 0\n")
    printed = run("check", "broken.py", status=2).stdout
    assert "PB001 import-failed: broken.py cannot be imported" in printed
    assert "broken.py:1   1 / 0" in printed
    assert "Traceback" not in printed
    both = report("check", "broken.py", "right.py", "--select", "PB501", status=1)
    assert [f.code for f in both.findings] == ["PB001"]
    assert both.findings[0].location.path == "broken.py"
    assert " · 1 of 2 checked" in run("check", "broken.py", "right.py", "--select", "PB501", "--output-format", "concise").stdout
    assert both.subjects == ("broken.py", "right.Double")


UNFINDABLE = """
import torch

class Sends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, connection):
        return connection.roundtrip(x)

    @staticmethod
    def backward(ctx, dy):
        return dy, None
"""


def test_a_function_without_inputs_never_passes(project):
    Path("unfindable.py").write_text(UNFINDABLE)
    alone = report("check", "unfindable.py", status=1)
    assert [(f.code, f.severity) for f in alone.findings] == [("PB004", "note")]
    Path("mixed.py").write_text(UNFINDABLE + RIGHT + CASES.format(names="Double,"))
    printed = run("check", "mixed.py", status=0).stdout
    assert "PB004 no-inputs (note)" in printed
    assert "pullback_cases()" in printed
    assert "1 of 2 checked" in printed
    run("check", "mixed.py", "--strict", status=1)


def test_searched_samples_are_printed_with_their_numbers(project, small):
    Path("searched.py").write_text(RIGHT)
    printed = run("check", "searched.py", status=0).stdout
    assert "searched     Double 0  x: float64[" in printed
    assert "Double 0" not in run("check", "right.py", status=0).stdout


def test_list(project):
    printed = run("check", "wrong.py", "--list", status=0).stdout
    assert printed.splitlines() == [
        "wrong.py::Double   wrong.py:5",
        "  0  x: float64[3, 4]",
        "wrong.py::Triple   wrong.py:14",
        "  0  x: float64[3, 4]",
    ]
    rows = json.loads(run("check", "wrong.py", "--list", "--output-format", "json", status=0).stdout)
    assert [row["name"] for row in rows] == ["wrong.Double", "wrong.Triple"]


def test_a_sample_that_does_not_exist(project, small):
    assert "there is no sample 4 (they are numbered from 0): Double has 1" in run("check", "right.py", "--case", 4, status=2).stderr


def test_settings_reach_the_battery(project, small):
    given = ("--dtype", "bfloat16", "--device", "meta", "--seed", 5, "--orders", 2, "--thorough", "--distributed", 2, "-j", 1, "--timeout", 30)
    result = report("check", "right.py", *given, status=0)
    assert {key: result.environment[key] for key in ("seed", "orders", "thorough", "dtype", "device", "distributed")} == {
        "seed": 5,
        "orders": 2,
        "thorough": True,
        "dtype": "torch.bfloat16",
        "device": "meta",
        "distributed": 2,
    }
    assert result.environment["skipped_tiers"] == ["gpu (--device cuda)"]


def test_a_device_that_cannot_be_used(project, small):
    assert "--device nonsense cannot be used: Expected one of cpu" in run("check", "right.py", "--device", "nonsense", status=2).stderr


def test_cases_of_another_file(project, small):
    Path("bare.py").write_text(RIGHT)
    Path("cases.py").write_text(
        "import torch, pullback as pb\nfrom bare import Double\ndef pullback_cases():\n    yield pb.case(Double, torch.ones(7))\n"
    )
    result = report("check", "bare.py", "--cases", "cases.py", "--select", "PB501", status=0)
    assert result.environment["samples"] == {"bare.Double": ["x: float32[7]"]}
    assert result.environment["searched"] == []


def configure(text):
    Path("pyproject.toml").write_text(textwrap.dedent(text))


def test_configuration_gives_defaults_and_the_command_line_wins(project, small):
    configure("""
        [tool.pullback]
        select = ["PB501"]
        fail-on = "error"
        seed = 3
        output-format = "json"
    """)
    result = Report.from_json(run("check", "wrong.py", status=1).stdout)
    assert result.environment["seed"] == 3
    assert {run.code for run in result.checks} == {"PB501"}
    other = Report.from_json(run("check", "right.py", "--seed", 4, "--select", "PB604", status=0).stdout)
    assert other.environment["seed"] == 4
    assert {run.code for run in other.checks} == {"PB604"}


def test_configured_declarations_reach_the_cases(project, small):
    configure("""
        [tool.pullback.declare]
        "right.Double" = { exact = false }
    """)
    result = report("check", "right.py", "--select", "PB501", status=0)
    assert [f.code for f in result.findings] == ["PB007"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.pullback]\nslect = ['PB5']", "unknown key 'slect' in [tool.pullback]. Did you mean 'select'?"),
        ("[tool.pullback]\nxyzzy = 1", "The keys are select, ignore,"),
        ("[tool.pullback.declare]\n'm.F' = {exakt = false}", "unknown key 'exakt'; the keys are exact, linear"),
        ("[tool.pullback.declare]\n'm.F' = 3", "must be a table such as"),
        ("[tool.pullback]\ndeclare = 3", "must be a table of"),
        ("[tool.pullback]\nselect = ['PB5044']", "unknown code or name 'PB5044'"),
        ("[tool.pullback]\ntimeout = 'soon'", "'soon' is not a valid float"),
        ("[tool.pullback", "pyproject.toml"),
    ],
)
def test_wrong_configuration_exits_2(project, text, words):
    configure(text)
    assert words in run("check", "right.py", status=2).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["check"], "Missing argument"),
        (["check", "rigth.py"], "no file 'rigth.py'. Did you mean right.py"),
        (["check", "right.py::Duoble"], "defines no 'Duoble'. Did you mean Double?"),
        (["check", "right.py", "--select", "PB6044"], "unknown code or name 'PB6044'. Did you mean"),
        (["check", "right.py", "--ignore", "strided-gradoutput"], "Did you mean strided-grad-output"),
        (["check", "right.py", "--slect", "PB6"], "--select"),
        (["check", "right.py", "--dtype", "float"], "'float64', 'float32'"),
        (["check", "right.py", "--output-format", "xml"], "'text', 'concise', 'json'"),
        (["check", "right.py", "--timeout", "0"], "0"),
        (["check", "right.py", "--cases", "none.py"], "does not exist"),
        (["chekc", "right.py"], "No such command 'chekc'. Did you mean 'check'?"),
        (["right.py"], "To check it: pullback check right.py"),
    ],
)
def test_wrong_usage_exits_2_with_a_suggestion(project, args, words):
    result = run(*args, status=2)
    assert words in result.stderr.replace("\n", " ")
    assert result.stdout == ""


PARALLEL = """
import torch
import torch.distributed as dist
import pullback as pb

def summed(x):
    total = x.clone()
    dist.all_reduce(total)
    return total

class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group=None):
        ctx.rows = x.shape[0] * dist.get_world_size(group)
        return x - summed(x.sum(0)) / ctx.rows

    @staticmethod
    def backward(ctx, dy):
        return dy - summed(dy.sum(0)) / ctx.rows, None

class OwnMean(Mean):
    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(0), None

def pullback_cases():
    for function in (Mean, OwnMean):
        yield pb.case(function, torch.randn(4, 3, dtype=torch.float64, requires_grad=True))
"""


def test_the_distributed_tier_runs_the_op_in_several_processes(project):
    Path("parallel.py").write_text(PARALLEL)
    result = report("check", "parallel.py", "--distributed", 2, "--select", "PB805,PB806", status=1)
    assert [(f.code, f.subject) for f in result.findings] == [("PB806", "parallel.OwnMean")]
    assert {run.code for run in result.checks} == {"PB805", "PB806"}
    assert "distributed" not in " ".join(result.environment["skipped_tiers"])
    assert result.findings[0].repro == "pullback check parallel.py::OwnMean --select PB806 --case 0 --distributed 2 --seed 0"
