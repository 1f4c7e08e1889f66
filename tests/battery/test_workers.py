"""Whatever the checked code does to its process, the right check is blamed, the rest goes on and nothing is left behind."""

import os
import textwrap
import threading
import time
from pathlib import Path

import pytest

from pullback.battery.outcomes import Options
from pullback.battery.pool import check_targets, describe_targets, list_targets
from pullback.battery.targets import TargetError, parse_targets
from pullback.battery.workers import OUTPUT_LIMIT, Output, Worker, WorkerError

BATTERY = """
    from dataclasses import dataclass
    import torch
    from pullback.report import CheckRun, Evidence, Finding, Report

    @dataclass(frozen=True)
    class Settings:
        seed: int = 0
        select: frozenset = frozenset()

    def run_case(case, settings, announce=lambda code: None, skip=frozenset()):
        runs, findings = [], []
        for code in ("PB005", "PB006", "PB007"):
            if code in skip:
                continue
            announce(code)
            x = case.args[0].detach().clone().requires_grad_()
            y = case.target.apply(x)
            if code == "PB006":
                y.sum().backward()
            if code == "PB007" and torch.get_default_dtype() != torch.float32:
                findings.append(Finding("PB007", "n", "note", "fail", "?", f"default dtype {torch.get_default_dtype()}"))
            runs.append(CheckRun(code, "?", "pass", "", 0.25))
        return Report(tuple(findings), tuple(runs), ("?",))
"""

HEAD = """
    import ctypes, os, signal, subprocess, sys, tempfile, time
    import torch
    import pullback as pb

    class Good(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2
"""
CLASS = """
    class {name}(Good):
        @staticmethod
        def {method}:
            {body}
            return {result}
"""
TAIL = """
    class Later(Good):
        pass

    def pullback_cases():
        for function in ({names}):
            yield pb.case(function, torch.randn(3, 4))
"""
FORWARD, BACKWARD = "forward(ctx, x)", "backward(ctx, dy)"


def ops(bodies, method=BACKWARD):
    """The text of a file with `Good`, one class a body, and `Later`."""
    result = "dy" if method == BACKWARD else "x * 2"
    classes = [CLASS.format(name=name, method=method, body=body, result=result) for name, body in bodies.items()]
    return textwrap.dedent("".join([HEAD, *classes, TAIL.format(names=", ".join(["Good", *bodies, "Later"]))]))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty folder as working directory, with the small battery on the workers' path, on a machine that is not crowded."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.5, 0.5))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "small_battery.py").write_text(textwrap.dedent(BATTERY))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(text, *, timeout=20.0, jobs=1, job=check_targets, watch=lambda subject, at: None, **options):
    """Write ops.py and do a job on it; return outcomes by the Function's name."""
    Path("ops.py").write_text(text)
    how = Options({"seed": 0}, timeout=timeout, jobs=jobs, battery="small_battery", preload="", **options)
    return {outcome.found.short if outcome.found else "": outcome for outcome in job(parse_targets(["ops.py"]), how, watch=watch)}


def bad(body, *, method=BACKWARD, **how):
    return run(ops({"Bad": body}, method), **how)


def codes(outcome):
    return [(f.code, f.severity) for f in outcome.report.findings]


def statuses(outcome):
    return {run.code: run.status for run in outcome.report.checks}


def passed(outcome):
    return set(statuses(outcome).values()) == {"pass"} and len(outcome.report.checks) == 3


DEADLY = {
    "Segfault": ("ctypes.string_at(0)", "killed by SIGSEGV"),
    "Abort": ("os.abort()", "killed by SIGABRT"),
    "Kill": ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    "Exit": ("sys.exit(3)", "sys.exit(3) was called"),
    "QuietExit": ("os._exit(0)", "ended with status 0"),
    "Interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt was raised"),
    "ClosesPipes": ("os.closerange(3, 4096)", "ended with status 1"),
    "KillsItsParent": ("os.kill(os.getppid(), signal.SIGKILL); time.sleep(5)", "killed by SIGKILL"),
}
LOCATED = ("Segfault", "Exit", "Abort")


def test_a_death_is_charged_to_the_check_that_ran_and_the_rest_goes_on(project):
    bodies = {name: body for name, (body, _) in DEADLY.items()}
    outcomes = run(ops(bodies))
    assert list(outcomes) == ["Good", *DEADLY, "Later"]
    assert passed(outcomes["Good"])
    assert passed(outcomes["Later"])
    lines = Path("ops.py").read_text().splitlines()
    for name, (body, how) in DEADLY.items():
        found = outcomes[name]
        assert codes(found) == [("PB002", "error")]
        finding = found.report.findings[0]
        assert how in finding.message
        assert "during PB006 unused-suppression on sample 0: x: float32[3, 4]" in finding.evidence[0].text
        assert finding.repro == f"pullback check ops.py::{name} --case 0 --seed 0"
        assert statuses(found) == {"PB005": "pass", "PB006": "fail", "PB007": "pass"}
        assert finding.location is not None
        assert Path(finding.location.path).name == "ops.py"
        assert name not in LOCATED or body in lines[finding.location.line - 1]


HANGING = {
    "Python": "while True: pass",
    "C": "ctypes.CDLL(None).sleep(1000)",
    "Deaf": "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGUSR1}); ctypes.CDLL(None).pause()",
}


@pytest.mark.slow
def test_a_crowded_machine_has_more_time(monkeypatch, project):
    monkeypatch.setattr("os.getloadavg", lambda: (3.0 * os.cpu_count(), 0.0, 0.0))
    slow = {"C": "time.sleep(3)"}
    outcomes = run(ops(slow), timeout=2.0)
    assert not outcomes["C"].report.findings or codes(outcomes["C"]) != [("PB003", "error")]
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.0, 0.0))
    assert codes(run(ops(slow), timeout=2.0)["C"]) == [("PB003", "error")]


def test_a_hang_ends_after_the_timeout(project):
    start = time.monotonic()
    outcomes = run(ops(HANGING), timeout=2.0)
    lines = Path("ops.py").read_text().splitlines()
    for name, body in HANGING.items():
        found = outcomes[name]
        assert codes(found) == [("PB003", "error")]
        finding = found.report.findings[0]
        assert "no end after 2 s" in finding.message
        assert "during PB006" in finding.evidence[0].text
        assert finding.location is not None
        assert body in lines[finding.location.line - 1]
        assert statuses(found) == {"PB005": "pass", "PB006": "fail", "PB007": "pass"}
    assert passed(outcomes["Later"])
    assert time.monotonic() - start < 60


def test_a_case_whose_every_check_dies_is_given_up(project):
    outcomes = bad("ctypes.string_at(0)", method=FORWARD)
    found = outcomes["Bad"]
    assert codes(found) == [("PB002", "error")]
    assert len(found.report.findings[0].evidence) == 3
    assert "the process died too often: the rest was not tried" in [run.reason for run in found.report.checks]
    assert passed(outcomes["Later"])


def test_output_is_captured_cut_and_shown_with_the_death(project, capfd):
    found = bad('print("first words", flush=True); os.write(2, b"x" * 3_000_000); os.write(1, b"last words"); os.abort()')["Bad"]
    output = found.report.findings[0].attachments["output"]
    assert output.endswith("last words")
    assert len(output) <= OUTPUT_LIMIT + 100
    assert capfd.readouterr() == ("", "")


def test_output_of_what_passes_is_not_shown(project, capfd):
    outcomes = bad('print("hello" * 100_000)')
    assert passed(outcomes["Bad"])
    assert not outcomes["Bad"].report.findings
    assert capfd.readouterr() == ("", "")


def test_output_keeps_beginning_and_end():
    output = Output()
    output.feed(b"begin")
    for _ in range(50):
        output.feed(b"-" * 10_000)
    output.feed(b"end")
    text = output.text()
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "bytes cut]" in text
    assert len(text) < OUTPUT_LIMIT + 100
    short = Output()
    short.feed(b"all of it \xff")
    assert short.text() == "all of it \ufffd"


STATE = 'torch.set_default_dtype(torch.float64); torch.manual_seed(99); sys.path.clear(); os.environ["HOME"] = "/nowhere"; Later.backward = None'


def test_state_dies_with_its_function(project):
    outcomes = bad(STATE, method=FORWARD)
    assert [f.message for f in outcomes["Bad"].report.findings] == ["default dtype torch.float64"]
    assert passed(outcomes["Later"])
    assert not outcomes["Later"].report.findings


def test_forks_that_return_twice_cannot_speak_for_the_check(project):
    outcomes = bad("os.fork()", method=FORWARD)
    assert passed(outcomes["Bad"])
    assert passed(outcomes["Later"])


def test_processes_that_outlive_their_check_are_killed(project):
    body = 'open("pid", "w").write(str(subprocess.Popen(["sleep", "300"]).pid))'
    assert passed(bad(body)["Bad"])
    pid = int(Path("pid").read_text())
    until = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_temporary_files_are_removed(project):
    body = 'open("where", "w").write(tempfile.mkdtemp()); tempfile.NamedTemporaryFile(delete=False)'
    assert passed(bad(body)["Bad"])
    where = Path(Path("where").read_text())
    assert (project / "tmp") in where.parents
    assert not where.exists()
    assert list((project / "tmp").iterdir()) == []


BROKEN = """
    _run = run_case

    def run_case(case, settings, announce, skip):
        if "PB006" in skip:
            return _run(case, settings, announce, skip)
        announce("PB006")
        raise ZeroDivisionError("oops")
"""


def test_a_broken_check_of_ours_is_told_as_ours_and_the_rest_goes_on(project):
    (project / "lib" / "small_battery.py").write_text(textwrap.dedent(BATTERY) + textwrap.dedent(BROKEN))
    found = bad("pass")["Good"]
    assert codes(found) == [("PB008", "error")]
    assert "ZeroDivisionError: oops" in found.report.findings[0].message
    assert statuses(found) == {"PB005": "pass", "PB006": "error", "PB007": "pass"}


IMPORTS = {
    "raises": ("1 / 0", "PB001", "ZeroDivisionError: division by zero"),
    "syntax": ("def f(:", "PB001", "SyntaxError"),
    "exits": ("import sys; sys.exit('bye')", "PB001", "sys.exit(bye) was called"),
    "missing": ("import no_such_module_anywhere", "PB001", "No module named 'no_such_module_anywhere'"),
    "dies": ("import os; os.abort()", "PB001", "killed by SIGABRT"),
    "hangs": ("while True: pass", "PB003", "no end after 2 s"),
    "hostile": ("raise ValueError('\\x1b[31m\\u202e')", "PB001", "ValueError: \\x1b[31m\\u202e"),
}


def test_files_that_cannot_be_imported_are_findings(project):
    Path("fine.py").write_text(ops({}))
    for name, (text, _, _) in IMPORTS.items():
        Path(f"{name}.py").write_text(f"\n{text}\n")
    targets = parse_targets([f"{name}.py" for name in (*IMPORTS, "fine")])
    *broken, good, later = check_targets(targets, Options({"seed": 0}, timeout=2.0, battery="small_battery", preload=""))
    assert passed(good)
    assert passed(later)
    for outcome, (_, code, words) in zip(broken, IMPORTS.values(), strict=True):
        (finding,) = outcome.report.findings
        assert (finding.code, finding.severity) == (code, "error")
        assert words in finding.message + "".join(e.text for e in finding.evidence)
        assert finding.location is not None
        assert finding.location.line in (1, 2)
        assert not outcome.imported


def test_what_an_import_prints_is_shown_when_it_fails(project):
    outcomes = run('print("loading kernels")\nraise OSError("no compiler")\n')
    assert outcomes[""].report.findings[0].attachments["output"].strip() == "loading kernels"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("raise ValueError('no data')", "PB001", "pullback_cases() raised ValueError: no data"),
        ("yield 3", "PB005", "pullback_cases() yielded a int; it must yield pb.case(target, *arguments)"),
        ("yield pb.case(Good, torch.ones(2)).declare(exakt=False)", "PB005", "Did you mean 'exact'?"),
    ],
)
def test_broken_cases_are_a_finding_with_their_line(project, body, code, words):
    outcomes = run(textwrap.dedent(HEAD) + f"\ndef pullback_cases():\n    {body}\n")
    finding = outcomes[""].report.findings[0]
    assert (finding.code, finding.severity) == (code, "error")
    assert words in finding.message
    assert "pullback_cases" in "".join(Path("ops.py").read_text().splitlines()[finding.location.line - 2 : finding.location.line])


def test_threads_started_on_import_forbid_forking_after_it(project):
    outcomes = run(ops({"Bad": "pass"}) + "\nimport threading\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
    assert all(passed(outcome) for outcome in outcomes.values())
    assert list(outcomes) == ["Good", "Bad", "Later"]


def test_several_workers_give_the_same_outcomes_in_the_same_order(project):
    one = bad("ctypes.string_at(0)", jobs=1)
    three = bad("ctypes.string_at(0)", jobs=3)
    assert list(one) == list(three) == ["Good", "Bad", "Later"]
    assert [o.report for o in one.values()] == [o.report for o in three.values()]


def test_listing_checks_nothing(project):
    outcomes = bad("ctypes.string_at(0)", job=list_targets)
    assert [outcome.samples for outcome in outcomes.values()] == [["x: float32[3, 4]"]] * 3
    assert not any(outcome.report.checks for outcome in outcomes.values())


SECOND_CASE = """
_first = pullback_cases
def pullback_cases():
    yield from _first()
    yield pb.case(Good, torch.ones(5))
"""


def test_one_sample_can_be_asked_for(project):
    seen = []
    outcomes = run(ops({}) + SECOND_CASE, only=1, watch=lambda subject, at: seen.append((subject, at)))
    assert outcomes["Good"].samples == ["x: float32[3, 4]", "x: float32[5]"]
    assert seen.count(("ops.Good", "PB005")) == 1
    assert not outcomes["Later"].report.checks


def test_an_unknown_name_is_the_callers_mistake(project):
    Path("ops.py").write_text(ops({}))
    with pytest.raises(TargetError, match=r"defines no 'Goood'. Did you mean Good"):
        check_targets(parse_targets(["ops.py::Goood"]), Options(battery="small_battery", preload=""))


def test_the_contract_is_written_in_a_process_of_its_own(project):
    outcomes = bad("os._exit(0)", method=FORWARD, job=describe_targets)
    assert outcomes["Good"].page.startswith("# Good")
    assert not outcomes["Bad"].page
    assert codes(outcomes["Bad"]) == [("PB002", "error")]


def test_a_killed_worker_raises_where_it_is_waited_for(project):
    with Worker() as worker:
        threading.Timer(0.5, worker.kill).start()
        Path("slow.py").write_text("import time; time.sleep(60)")
        with pytest.raises(WorkerError, match="ended with status"):
            worker.open(parse_targets(["slow.py"])[0], cases=None, declare={}, seed=0, limit=60)
    assert list((project / "tmp").iterdir()) == []


def test_no_process_is_left_when_a_worker_ends(project):
    Path("slow.py").write_text('import os, time; open("pid", "w").write(str(os.getpid())); time.sleep(300)')
    worker = Worker()
    threading.Timer(2, worker.kill).start()
    with pytest.raises(WorkerError):
        worker.open(parse_targets(["slow.py"])[0], cases=None, declare={}, seed=0, limit=60)
    worker.end()
    pid = int(Path("pid").read_text())
    time.sleep(0.3)
    assert not _alive(pid)
