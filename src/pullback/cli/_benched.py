"""Start the process that measures, follow what it says, and tell how it died if it did."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from ..benchmark.result import Bench
from ..capture.frames import is_of_project
from ..report.clean import clean

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+) in (.+)$', re.MULTILINE)

Follow = Callable[[str, int, int], None]
"""Told what is done, how many points are finished, and of how many."""


def benched(request: Mapping[str, Any], follow: Follow) -> Bench:
    """Return what another process measures.

    Raises:
        click.UsageError: for a request that names what is not there.
        click.ClickException: if the benched code raises or ends the process; the message says where.
    """
    with tempfile.TemporaryDirectory(prefix="pullback-bench-") as folder:
        stack = Path(folder) / "stack"
        last: dict[str, Any] = {}
        process, messages = _start(request, stack)
        try:
            with os.fdopen(messages, encoding="utf-8") as stream:
                for line in stream:
                    last = json.loads(line) | {"at": json.loads(line).get("at", last.get("at", ""))}
                    if "done" in last:
                        follow(last["at"], last["done"], last["total"])
            status = process.wait()
        finally:
            process.kill()
            process.wait()
        if "result" in last:
            return Bench.from_json(last["result"])
        if "usage" in last:
            raise click.UsageError(last["usage"])
        if "failed" in last:
            raise click.ClickException(last["failed"])
        raise click.ClickException(_died(status, last.get("at", ""), stack))


def _start(request: Mapping[str, Any], stack: Path) -> tuple[subprocess.Popen[bytes], int]:
    asked, asks = os.pipe()
    said, says = os.pipe()
    command = [sys.executable, "-P", "-m", "pullback.benchmark.child", str(asked), str(says), str(stack)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno() if _has_file(sys.stderr) else None, pass_fds=(asked, says)
    )
    os.close(asked)
    os.close(says)
    with os.fdopen(asks, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(request) + "\n")
    return process, said


def _has_file(stream: Any) -> bool:
    try:
        return stream.fileno() >= 0
    except (OSError, AttributeError):
        return False


def _died(status: int, at: str, stack: Path) -> str:
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    doing = f" while it measured {clean(at, limit=300)}" if at else ""
    text = stack.read_text(encoding="utf-8", errors="replace") if stack.exists() else ""
    place = next((m for m in _FRAME.finditer(text) if is_of_project(m[1])), None)
    return f"the process {how}{doing}" + (f"\n  at {clean(place[1])}:{place[2]}, in {clean(place[3])}" if place else "")
