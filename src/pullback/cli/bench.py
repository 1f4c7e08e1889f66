"""`pullback bench`: speed and memory of an op beside what it competes with, and a gate against regressions."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..report.clean import clean
from ._config import ConfiguredCommand

if TYPE_CHECKING:
    from ..benchmark.gate import Condition
    from ..benchmark.result import Bench
    from ._benched import Follow

FORMATS = ("text", "json", "svg", "html")
_DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")


def sizes(ctx: click.Context, parameter: click.Parameter, text: str | None) -> list[int] | None:
    """Return numbers of elements: ``10_000,1e6``."""
    if text is None:
        return None
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{text!r} are no sizes; write numbers of elements separated by commas: 1e4,1e6", ctx, parameter) from error
    if any(size < 1 or size != int(size) for size in found):
        raise click.BadParameter("a size is a whole number of elements, at least 1", ctx, parameter)
    return [int(size) for size in found]


def conditions(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[Condition, ...]:
    """Return the conditions of ``time>1.1``."""
    if not texts:
        return ()
    from ..benchmark.gate import parse

    try:
        return tuple(condition for text in texts for condition in parse(text))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


@click.command(cls=ConfiguredCommand)
@click.argument("target", metavar="FILE_OR_MODULE::NAME")
@click.option(
    "--against",
    multiple=True,
    metavar="REF",
    help="What to compare with: FILE::NAME, a dotted name such as torch.nn.functional.silu, reference, or compile: before one of these. "
    "May be given several times.  [default: the declared reference]",
)
@click.option("--sizes", callback=sizes, metavar="N,N,…", help="Elements of the largest differentiated argument.  [default: 1e4,1e5,1e6,1e7]")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of torch's operators.")
@click.option("--dtype", "precision", type=click.Choice(_DTYPES), help="Cast floating inputs.  [default: float32 for samples in float64]")
@click.option("--device", "place", metavar="DEVICE", help="Move inputs to this device, such as cuda.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="Time for one size.")
@click.option("--case", "number", type=click.IntRange(min=0), default=0, show_default=True, help="Which sample to grow, as numbered by check --list.")
@click.option("--cases", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Take pullback_cases() from this file too.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses searched samples.")
@click.option("--output-format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How the result is written.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to this file.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Keep the result as JSON, for --baseline.")
@click.option("--baseline", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="Compare with what --save kept.")
@click.option(
    "--fail-if",
    "gate",
    multiple=True,
    callback=conditions,
    metavar="CONDITION",
    help="Exit with 1 where a ratio to the baseline, or without one to a contender, is beyond a limit: time>1.1; also forward, backward, kept, peak "
    "and overhead.",
)
@click.pass_context
def bench(
    ctx: click.Context,
    target: str,
    against: tuple[str, ...],
    sizes: list[int] | None,
    threads: int | None,
    precision: str | None,
    place: str | None,
    seconds: float,
    number: int,
    cases: str | None,
    seed: int,
    form: str,
    output: Path | None,
    save: Path | None,
    baseline: Path | None,
    gate: tuple[Condition, ...],
) -> None:
    """Measure forward, backward, memory and the cost of a call, in turn with what an op competes with.

    The file is imported and run in a process of its own. What it prints goes to standard error.
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("a benchmark needs PyTorch, which is not installed: pip install 'pullback[torch]'")
    from ._benched import benched

    request = {
        "target": target,
        "against": against,
        "sizes": sizes,
        "threads": threads,
        "dtype": precision,
        "device": place,
        "seconds": seconds,
        "case": number,
        "cases": cases,
        "seed": seed,
        "declare": dict(ctx.meta["pullback.declare"]),
    }
    stored = _stored(baseline)
    with _progress() as follow:
        result = benched(request, follow)
    if gate and stored is None and len(result.names) == 1:
        raise click.UsageError("--fail-if needs something to compare with: --baseline FILE, or --against REF")
    _write(result, form, output)
    if save is not None:
        _write_file(save, result.to_json(), "--save")
    if stored is not None or gate:
        ctx.exit(_judged(result, stored, gate))


def _stored(baseline: Path | None) -> Bench | None:
    if baseline is None:
        return None
    from ..benchmark.result import Bench

    try:
        return Bench.from_json(baseline.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.UsageError(f"--baseline {baseline}: {error}") from error


def _judged(result: Bench, stored: Bench | None, gate: tuple[Condition, ...]) -> int:
    """Print what changed since the baseline and what is beyond a limit; return the exit status."""
    from ..benchmark import gate as gates

    try:
        comparisons = gates.to_contenders(result) if stored is None else gates.to_baseline(result, stored)
    except ValueError as error:
        raise click.UsageError(f"--baseline: {error}") from error
    if stored is not None:
        click.echo("\n".join(["", *gates.changes(comparisons), *gates.doubts(result, stored)]), err=True)
    failed = gates.failures(comparisons, gate)
    for failure in failed:
        click.echo(click.style("FAILED ", fg="red") + clean(failure), err=True)
    return 1 if failed else 0


def _write(result: Bench, form: str, output: Path | None) -> None:
    if output is None and form == "text" and sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(result, soft_wrap=True)
        return
    text = {"text": _text, "json": _json, "svg": _svg, "html": _html}[form](result)
    if output is None:
        click.echo(text)
        return
    _write_file(output, text, "--output")


def _write_file(path: Path, text: str, option: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{option} {path}: {error.strerror}") from error


def _text(result: Bench) -> str:
    return result.to_text()


def _json(result: Bench) -> str:
    return result.to_json()


def _svg(result: Bench) -> str:
    return result.to_svg()


def _html(result: Bench) -> str:
    from ..report.render.html import SCHEMA, render

    return render({"schema": SCHEMA, "title": f"Benchmark of {result.subject}", "sections": result.sections()})


@contextlib.contextmanager
def _progress() -> Iterator[Follow]:
    if not sys.stderr.isatty():
        yield lambda at, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda at, done, total: bar.update(task, description=clean(at, limit=80), completed=done, total=total or None)
