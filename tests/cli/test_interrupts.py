"""Ctrl-C and SIGTERM end the command, its workers and their temporary folders."""

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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
def test_interrupts_leave_nothing_behind(tmp_path, number, status):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pullback", "check", "hangs.py", "--list"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = tmp_path / "pid"
    assert wait_for(lambda: pid.exists() and pid.read_text())
    run.send_signal(number)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == status
    assert "Traceback" not in errors
    assert wait_for(lambda: ended(int(pid.read_text())), 5)
    assert list((tmp_path / "tmp").iterdir()) == []
