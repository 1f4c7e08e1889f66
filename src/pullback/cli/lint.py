"""`pullback lint`: faults of custom derivatives that can be read off the source."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..linter import baseline as known
from ..linter import fix as fixing
from ..linter.discover import files
from ..linter.engine import Settings, facts_of
from ..linter.engine import lint as run
from ..linter.repair import Repaired, repair_all
from ..linter.settings import Configured, SettingError, configured, settings
from ..linter.source import Unreadable
from ..linter.table import render as render_facts
from ..report.clean import clean
from ..report.codes import UnknownCode, resolve
from ..report.finding import SEVERITIES
from ..report.report import Report
from ._config import configuration
from ._output import formats, write


def _codes(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> frozenset[str]:
    try:
        return resolve(word.strip() for text in words for word in text.split(",") if word.strip())
    except UnknownCode as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@click.option(
    "--select", multiple=True, callback=_codes, metavar="CODES", help="Run only these: codes, names or families (PB2), separated by commas."
)
@click.option("--extend-select", multiple=True, callback=_codes, metavar="CODES", help="Run these as well, such as PB4, which is off by default.")
@click.option("--ignore", multiple=True, callback=_codes, metavar="CODES", help="Leave these out.")
@click.option("--fix", is_flag=True, help="Mend what can be mended safely.")
@click.option("--unsafe-fixes", is_flag=True, default=None, help="Count fixes that may change the program's meaning among them.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--output-format", type=click.Choice(formats()), help="How findings are written.  [default: text]")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of standard output.")
@click.option("--statistics", is_flag=True, help="Count findings by code instead of listing them.")
@click.option(
    "--baseline", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="Leave out what this JSON report holds."
)
@click.option("--fail-on", type=click.Choice(["error", "warning"]), help="Least severity for exit status 1.  [default: warning]")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 whatever is found.")
@click.option("--facts", is_flag=True, help="Show what is saved, set and read in each Function, by line, instead of linting.")
@click.pass_context
def lint(ctx: click.Context, paths: tuple[Path, ...], **given: Any) -> None:
    """Find faults of custom Functions that can be read off the source.

    PATH is a file or a folder (the current one by default). Nothing is imported, and torch need not be installed.
    Exit status: 0 nothing at or above --fail-on, 1 otherwise, 2 wrong usage.

    \b
    pullback lint src                        every Function in a folder
    pullback lint src --select PB1           only what makes gradients wrong
    pullback lint src --fix                  mend what can be mended safely
    pullback lint --facts src/ops.py         the facts of each Function as a table
    """
    paths = paths or (Path("."),)
    try:
        path, table = configuration(Path.cwd())
        found = configured(path, table)
        chosen = settings(found, select=given["select"], extend=given["extend_select"], ignore=given["ignore"])
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    if given["facts"]:
        ctx.exit(_show_facts(list(files(paths, chosen.exclude))))
    ctx.exit(_run(paths, chosen, found, given))


def _run(paths: Sequence[Path], chosen: Settings, found: Configured, given: dict[str, Any]) -> int:
    selected = list(files(paths, chosen.exclude))
    if not selected:
        raise click.UsageError(f"no Python file in {', '.join(map(str, paths))}")
    unsafe = bool(given["unsafe_fixes"] if given["unsafe_fixes"] is not None else found.get("unsafe-fixes", False))
    if given["diff"]:
        return _show_diff(repair_all(selected, chosen, unsafe=unsafe), exit_zero=given["exit_zero"])
    mended = _mend(repair_all(selected, chosen, unsafe=unsafe)) if given["fix"] else 0
    start = time.perf_counter()
    report = run(selected, chosen)
    report = replace(report, environment={**report.environment, "seconds": round(time.perf_counter() - start, 3)})
    report = _without_known(report, given["baseline"] or _anchored(found, "baseline"))
    if given["statistics"]:
        _show_statistics(report)
    else:
        _show(report, given["output_format"] or found.get("output-format", "text"), given["output"], mended)
    return 0 if given["exit_zero"] else _status(report, given["fail_on"] or found.get("fail-on", "warning"))


def _show(report: Report, output_format: str, output: Path | None, mended: int) -> None:
    if output_format != "text":
        write(report, output_format, output)
        return
    summary = _summary(report, mended)
    if report.findings:
        write(replace(report, checks=(), subjects=(), environment={}), "text", output)
    if output is None:
        click.echo(summary)
    elif report.findings:
        with output.open("a", encoding="utf-8") as file:
            file.write(summary + "\n")
    else:
        output.write_text(summary + "\n", encoding="utf-8")


def _summary(report: Report, mended: int) -> str:
    subjects, count, suppressed = len(report.subjects), report.environment.get("files", 0), report.environment.get("suppressed", 0)
    parts = [f"{subjects} Function{'' if subjects == 1 else 's'} in {count} file{'' if count == 1 else 's'}"]
    parts += [f"{suppressed} suppressed"] if suppressed else []
    parts += [f"{mended} mended"] if mended else []
    fixable = sum(bool(f.edits) and all(e.safe for e in f.edits) for f in report.findings)
    unsafe = sum(bool(f.edits) for f in report.findings) - fixable
    parts += [f"{fixable} can be mended with --fix"] if fixable else []
    parts += [f"{unsafe}{' more' if fixable else ' can be mended'} with --fix --unsafe-fixes"] if unsafe else []
    return ("" if report.findings else "nothing found · ") + " · ".join(parts)


def _show_statistics(report: Report) -> None:
    counts = Counter((f.code, f.name, f.severity) for f in report.findings)
    fixable = Counter(f.code for f in report.findings if f.edits)
    for (code, name, severity), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        click.echo(f"{count:>5}  {code} {name} ({severity}){f'  [{fixable[code]} can be mended]' if fixable[code] else ''}")
    click.echo(_summary(report, 0))


def _show_facts(paths: Sequence[Path]) -> int:
    classes, failed = [], False
    for path in paths:
        try:
            classes += facts_of(path)
        except (Unreadable, OSError) as error:
            click.echo(clean(f"{path}: {error}"), err=True)
            failed = True
    if classes:
        click.echo(clean(render_facts(classes), keep_newlines=True))
    else:
        click.echo("no Function found", err=True)
    return 2 if failed and not classes else 0


def _show_diff(repaired: Sequence[Repaired], *, exit_zero: bool) -> int:
    for one in repaired:
        click.echo(fixing.diff(one.path.as_posix(), one.before, one.after), nl=False)
    click.echo(f"{sum(r.applied for r in repaired)} fixes in {len(repaired)} file{'' if len(repaired) == 1 else 's'}", err=True)
    return 0 if exit_zero or not repaired else 1


def _mend(repaired: Sequence[Repaired]) -> int:
    for one in repaired:
        try:
            fixing.write(one.path, one.after)
        except OSError as error:
            raise click.UsageError(f"--fix: {one.path}: {error.strerror}") from error
    return sum(one.applied for one in repaired)


def _without_known(report: Report, path: Path | None) -> Report:
    if path is None:
        return report
    try:
        return replace(report, findings=known.new(report.findings, known.read(path)))
    except known.BaselineError as error:
        raise click.UsageError(f"--baseline {error}") from error


def _anchored(found: Configured, key: str) -> Path | None:
    value = found.get(key)
    return (found.root or Path()) / value if value else None


def _status(report: Report, fail_on: str) -> int:
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]  # type: ignore[arg-type]
    return 1 if any(f.severity in grave for f in report.findings) else 0
