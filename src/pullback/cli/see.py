"""`pullback see`: the trace, the saved memory and the graph of a Function's sample."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..report.clean import clean
from ._config import ConfiguredCommand
from ._output import emit

if TYPE_CHECKING:
    from ..capture.case import Case
    from ..views.graph import Graph
    from ..views.saved_memory import Saved
    from ..views.trace import Trace

FORMATS = ("text", "svg", "mermaid", "json", "html")


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to see of one sample; no graph where nothing has a gradient."""

    subject: str
    sample: str
    trace: Trace
    saved: Saved | None
    graph: Graph | None


@click.command(cls=ConfiguredCommand)
@click.argument("target", metavar="FILE_OR_MODULE::NAME")
@click.option("--case", "number", type=click.IntRange(min=0), default=0, show_default=True, help="Which sample, as numbered by check --list.")
@click.option("--cases", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Take pullback_cases() from this file too.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses searched samples.")
@click.option("--output-format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="svg and mermaid show the graph alone.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to this file.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds until it is given up.")
@click.option("--in-process", "contained", is_flag=True, hidden=True, help="Run the Function in this process.")
@click.pass_context
def see(
    ctx: click.Context, target: str, number: int, cases: str | None, seed: int, form: str, output: Path | None, timeout: float, contained: bool
) -> None:
    """Show what a custom derivative does on a sample: every step of apply and backward, what is kept for backward and by whom, and the graph.

    The file is imported and the Function is run in a process of its own: a crash or a hang ends that process alone. What it prints goes to standard
    error.
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("seeing a Function needs PyTorch, which is not installed: pip install 'pullback[torch]'")
    if not contained:
        ctx.exit(_in_child([target, "--case", str(number), "--seed", str(seed), "--output-format", form], cases, output, timeout))
    with contextlib.redirect_stdout(sys.stderr):
        found = _case(target, number, cases, seed, ctx.meta["pullback.declare"])
        seen = look(found, seed)
    text = {"text": _text, "svg": _svg, "mermaid": _mermaid, "json": _json, "html": _html}[form](seen)
    emit(text, output)


def _in_child(arguments: list[str], cases: str | None, output: Path | None, timeout: float) -> int:
    """Run the command in a process of its own, with this one's output; return its exit status."""
    files = [*(["--cases", cases] if cases else []), *(["--output", str(output)] if output else [])]
    command = [sys.executable, "-P", "-m", "pullback", "see", "--in-process", *files, *arguments]
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=timeout, check=False).returncode
    except subprocess.TimeoutExpired as error:
        raise click.ClickException(f"{arguments[0]} did not end within {timeout:g} s; --timeout SECONDS waits longer") from error
    if status < 0:
        raise click.ClickException(
            f"the process that ran {arguments[0]} died of {_signal(-status)}; pullback check {arguments[0]} says at which sample"
        )
    return status


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _case(spec: str, number: int, cases: str | None, seed: int, configured: Mapping[str, Any]) -> Case:
    from ..battery.discover import CasesError, UnknownNameError, load, with_subjects_of_cases
    from ..battery.samples import collect
    from ..battery.targets import TargetError, parse_targets

    try:
        (target, *others) = parse_targets([spec])
        loaded = None if others else with_subjects_of_cases(load(target, cases=cases, configured=configured), seed)
    except (TargetError, UnknownNameError, CasesError) as error:
        raise click.UsageError(clean(error, keep_newlines=True)) from error
    except Exception as error:
        raise click.UsageError(f"{spec} cannot be imported: {type(error).__name__}: {clean(error, limit=500)}") from error
    names = [subject.short for subject in loaded.subjects] if loaded else []
    if loaded is None or len(names) != 1:
        raise click.UsageError(
            f"see shows one Function; name it: {spec.partition('::')[0]}::NAME" + (f", one of {', '.join(names)}" if names else "")
        )
    samples, problem = collect(loaded, loaded.subjects[0], seed)
    if not samples:
        reason = problem.findings[0].message if problem and problem.findings else "no sample inputs were found"
        raise click.UsageError(f"{names[0]}: {clean(reason, limit=500)}")
    if number >= len(samples):
        raise click.UsageError(f"--case {number}: {names[0]} has {len(samples)} samples, numbered from 0")
    return samples[number]


def look(case: Case, seed: int) -> Seen:
    """Return what there is to see of a sample; its code is run in this process."""
    from ..battery.discover import seed_everything
    from ..battery.samples import describe
    from ..capture.calls import resolve_target
    from ..views.graph import graph
    from ..views.saved_memory import saved
    from ..views.trace import trace, with_gradients

    target = resolve_target(case.target)
    args = with_gradients(case.args)
    seed_everything(seed)
    traced = trace(case.target, *args, **case.kwargs)
    kept = drawn = None
    if not traced.error or any(step.phase == "backward" for step in traced.steps):
        seed_everything(seed)
        result = target.call(*args, **case.kwargs)
        names = _tensors(dict(zip(target.positional(len(args)), args, strict=True)) | dict(case.kwargs))
        with contextlib.suppress(ValueError, TypeError):
            kept, drawn = saved(result, params=names), graph(result, params=names)
    return Seen(target.subject, describe(case), traced, kept, drawn)


def _tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    from torch import Tensor

    from ..trees import leaves

    return {path: leaf for name, value in arguments.items() for path, leaf in leaves(value, name) if isinstance(leaf, Tensor)}


def _text(seen: Seen) -> str:
    parts = [
        click.style(f"{seen.subject}({seen.sample})" if not seen.sample.endswith(")") else seen.sample, bold=True),
        _heading("trace"),
        str(seen.trace),
    ]
    if seen.saved is not None and seen.graph is not None:
        parts += [_heading("kept for backward"), str(seen.saved), _heading("graph"), str(seen.graph)]
    else:
        parts += [_heading("graph"), "none: no result requires grad"]
    return "\n".join(parts)


def _heading(text: str) -> str:
    return "\n" + click.style(f"── {text} ".ljust(60, "─"), fg="cyan") + "\n"


def _graph(seen: Seen) -> Graph:
    if seen.graph is None:
        raise click.ClickException(
            f"{seen.subject} has no graph to draw: no result requires grad" + (f"; it raised {seen.trace.error}" if seen.trace.error else "")
        )
    return seen.graph


def _svg(seen: Seen) -> str:
    return _graph(seen).to_svg()


def _mermaid(seen: Seen) -> str:
    return _graph(seen).to_mermaid()


def _html(seen: Seen) -> str:
    from ..report.render.html import SCHEMA, render
    from ._page import sections_of

    sample = seen.sample if seen.sample.endswith(")") else f"{seen.subject}({seen.sample})"
    return render({"schema": SCHEMA, "title": sample, "sections": sections_of(data(seen))})


def _json(seen: Seen) -> str:
    return json.dumps(data(seen), indent=2)


def data(seen: Seen) -> dict[str, Any]:
    """Return what is seen as JSON data."""
    from ..views.saved_memory import saved_section
    from ..views.sections import graph_section
    from ..views.trace import trace_section

    return {
        "schema": 1,
        "subject": seen.subject,
        "sample": seen.sample,
        "trace": trace_section(seen.trace),
        "saved": saved_section(seen.saved) if seen.saved else None,
        "graph": graph_section(seen.graph) if seen.graph else None,
    }
