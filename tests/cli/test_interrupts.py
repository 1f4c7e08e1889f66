"""Ctrl-C and SIGTERM end the command, its workers and their temporary folders."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANGS = """
import os, time
open("pid", "w").write(str(os.getpid()))
time.sleep(300)
"""


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def ended(pid):
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def started(command, **how):
    """Start a command as a terminal does: what runs in the background of a shell script inherits a SIGINT that is ignored."""

    def heard():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard, **how)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupts_leave_nothing_behind(tmp_path, number, status):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pullback", "check", "hangs.py", "--list"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    run = started(command, cwd=tmp_path, env=environment)
    pid = tmp_path / "pid"
    assert wait_for(lambda: pid.exists() and pid.read_text())
    run.send_signal(number)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == status
    assert "Traceback" not in errors
    assert wait_for(lambda: ended(int(pid.read_text())), 5)
    assert list((tmp_path / "tmp").iterdir()) == []


HANGS_LATE = """
import os, time
import torch

class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 3

class Hangs(Right):
    @staticmethod
    def forward(ctx, x):
        open("pid", "w").write(str(os.getpid()))
        time.sleep(300)

def pullback_cases():
    import pullback as pb
    yield from (pb.case(op, torch.ones(3, requires_grad=True)) for op in (Right, Hangs))
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_done_is_reported(tmp_path, number, status):
    (tmp_path / "late.py").write_text(HANGS_LATE)
    command = [sys.executable, "-m", "pullback", "check", "late.py", "-j", "1", "--select", "PB501", "--output-format", "json"]
    run = started(command, cwd=tmp_path)
    pid = tmp_path / "pid"
    assert wait_for(lambda: pid.exists() and pid.read_text())
    run.send_signal(number)
    written, errors = run.communicate(timeout=30)
    assert run.returncode == status
    assert errors == "interrupted: 1 Function done until then\n"
    report = json.loads(written)
    assert [(f["code"], f["subject"]) for f in report["findings"]] == [("PB501", "late.Right")]
    assert report["environment"]["interrupted"] is True
    assert wait_for(lambda: ended(int(pid.read_text())), 5)
