"""`pullback check`: the battery on every custom derivative of files, modules and packages."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..battery.outcomes import Options, Outcome
from ..battery.pool import Interrupted, check_targets, list_targets
from ..battery.pool import write_tests as written_tests
from ..battery.targets import Target, TargetError, parse_targets
from ..battery.workers import WorkerError
from ..report.clean import clean
from ..report.codes import UnknownCode, resolve
from ..report.finding import SEVERITIES, Finding
from ..report.render.summary import short_names
from ..report.report import RAN, Report
from ._config import ConfiguredCommand
from ._output import formats, write
from ._page import write_page
from ._progress import progress
from ._sharing import Sharing
from ._suppress import known_before, suppress

_DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")


def codes(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> frozenset[str]:
    """Return the codes meant by comma-separated codes, names and families."""
    try:
        return resolve(word.strip() for text in words for word in text.split(",") if word.strip())
    except UnknownCode as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


@click.command(cls=ConfiguredCommand)
@click.argument("targets", nargs=-1, required=True, metavar="FILE_OR_MODULE[::NAME]...")
@click.option("--output-format", type=click.Choice(formats()), default="text", show_default=True, help="How findings are written.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of standard output.")
@click.option("--select", multiple=True, callback=codes, metavar="CODES", help="Run only these: codes, names or families (PB6), separated by commas.")
@click.option("--ignore", multiple=True, callback=codes, metavar="CODES", help="Leave these out.")
@click.option("--fail-on", type=click.Choice(["error", "warning"]), default="warning", show_default=True, help="Least severity for exit status 1.")
@click.option("--strict", is_flag=True, help="Fail where no sample inputs are found.")
@click.option("--list", "list_only", is_flag=True, help="List what would be checked, with the numbered samples, and stop.")
@click.option("--cases", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Take pullback_cases() from this file too.")
@click.option("--case", "case", type=click.IntRange(min=0), metavar="N", help="Check only the sample of this number.")
@click.option("--device", metavar="DEVICE", help="Move sample inputs to this device, such as cuda.")
@click.option("--dtype", type=click.Choice(_DTYPES), help="Cast sample inputs to this dtype.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses directions, grad_outputs and searched samples.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds for one check.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Worker processes.  [default: number of CPUs]")
@click.option("--thorough", is_flag=True, help="Run the slow tier too, and large tensors as they are given.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="For a recording: check code of this package, besides the project's own.")
@click.option(
    "--distributed", type=click.IntRange(2, 64), metavar="N", help="Run the distributed tier too: in N processes of this machine, through gloo."
)
@click.option("--orders", type=click.IntRange(1, 2), default=1, show_default=True, help="2: second derivatives must be right.")
@click.option(
    "--baseline", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="Leave out what this JSON report holds."
)
@click.option(
    "--write-tests",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write one pytest file for each Function, with its samples.",
)
@click.pass_context
def check(ctx: click.Context, targets: tuple[str, ...], **given: Any) -> None:
    """Check whether every backward in FILE_OR_MODULE is right, and say why if not.

    Files are imported (as pytest imports them), so check only code that you trust enough to run; `pullback lint` imports nothing.
    Each custom Function runs in a process of its own: a crash, a hang or sys.exit in one is a finding, and the rest goes on.

    Sample inputs come from pullback_cases() in the file or in --cases FILE; where there are none they are searched for.

    \b
    pullback check kernels.py                       every Function defined in a file
    pullback check kernels.py::FusedNorm            one of them
    pullback check mypackage --select PB6           one family of checks in a package
    pullback check run.pbrec                        what `pullback record` kept
    torchrun --nproc-per-node 2 -m pullback check mypackage     the work shared by processes; rank 0 reports
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("pullback check needs PyTorch, which is not installed: pip install 'pullback[torch]'")
    modules, sharing = given.pop("modules"), Sharing.from_environment()
    try:
        if any(target.endswith(".pbrec") for target in targets):
            ctx.exit(_check_recordings(ctx, targets, modules, **given))
        ctx.exit(_run(ctx, parse_targets(targets), sharing, **given))
    except (TargetError, WorkerError) as error:
        if sharing and sharing.rank and isinstance(error, TargetError):
            ctx.exit(2)
        raise click.UsageError(clean(error, keep_newlines=True)) from error


def _check_recordings(ctx: click.Context, targets: Sequence[str], modules: tuple[str, ...], **given: Any) -> int:
    """Check files that `pullback record` wrote, several as one."""
    from .record import check_files

    for target in targets:
        if not target.endswith(".pbrec"):
            raise click.UsageError(f"{target!r} is not a recording: check recordings and code by a command each")
        if not Path(target).is_file():
            raise click.UsageError(f"no file {target!r}")
    settings = {key: given[key] for key in ("seed", "orders", "thorough", "select", "ignore")}
    how = {"output_format": given["output_format"], "report_file": given["output"], "fail_on": given["fail_on"]}
    return check_files(tuple(map(Path, targets)), ctx.meta["pullback.declare"], modules=modules, **settings, **how)


def _run(
    ctx: click.Context,
    targets: Sequence[Target],
    sharing: Sharing | None,
    *,
    list_only: bool,
    output_format: str,
    output: Path | None,
    write_tests: Path | None,
    **given: Any,
) -> int:
    options = _options(targets, ctx.meta["pullback.declare"], given)
    if sharing is not None:
        jobs = given["jobs"] or max(1, options.jobs // sharing.local)
        options = replace(options, share=(sharing.rank, sharing.world), jobs=jobs)
    start = time.perf_counter()
    interrupted = 0
    with progress() if sharing is None or sharing.rank == 0 else contextlib.nullcontext(lambda subject, at: None) as watch, _ended_by_signals():
        try:
            outcomes = (list_targets if list_only else check_targets)(targets, options, watch=watch)
        except Interrupted as error:
            outcomes, interrupted = error.outcomes, _status_of(error)
    if interrupted:
        click.echo(f"interrupted: {len(outcomes)} Function{'s' * (len(outcomes) != 1)} done until then", err=True)
        if sharing is not None or not outcomes:
            return interrupted
    if sharing is not None:
        gathered = sharing.gather(outcomes)
        if gathered is None:
            return 0
        outcomes = gathered
    if list_only:
        _print_list(outcomes, output_format, output)
        return 0 if any(outcome.found for outcome in outcomes) else 2
    if not interrupted:
        _require_case(outcomes, options.only)
    report = _one_report(outcomes, given, time.perf_counter() - start)
    if interrupted:
        write(replace(report, environment={**report.environment, "interrupted": True}), output_format, output)
        return interrupted
    if not report.subjects:
        click.echo(f"no custom Function, op or case is defined in {', '.join(clean(target.spec) for target in targets)}", err=True)
    if output_format == "html":
        write_page(report, outcomes, options, output)
    else:
        write(report, output_format, output)
    if write_tests is not None:
        _write_tests(targets, replace(options, share=(0, 1)), write_tests)
    return exit_status(report, outcomes, fail_on=given["fail_on"], strict=given["strict"])


def _write_tests(targets: Sequence[Target], options: Options, folder: Path) -> None:
    """Write a test file for each Function that has samples; what is there already is left as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    with _ended_by_signals():
        outcomes = written_tests(targets, options, folder)
    for outcome in outcomes:
        if outcome.found is None:
            continue
        name = clean(outcome.found.short)
        if not outcome.page:
            click.echo(f"no test for {name}: {'it has no samples' if not outcome.samples else 'it cannot be imported by its name'}", err=True)
            continue
        path = folder / f"{outcome.samples[0]}.py"
        if path.exists():
            click.echo(f"{path} is there already and was left as it is: delete it to have it written anew", err=True)
            continue
        path.write_text(outcome.page, encoding="utf-8")
        click.echo(f"wrote {path}", err=True)


def _status_of(error: Interrupted) -> int:
    """Return the exit status by which a shell knows the signal that ended a command."""
    code = getattr(error.__cause__, "code", None)
    return code if isinstance(code, int) else 128 + signal.SIGINT


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that workers and their temporary folders go too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _options(targets: Sequence[Target], declare: Any, given: dict[str, Any]) -> Options:
    settings = {key: given[key] for key in ("seed", "orders", "thorough", "dtype", "device")}
    settings |= {"distributed": given["distributed"] or 0, "select": sorted(given["select"]), "ignore": sorted(given["ignore"])}
    one = len(targets) == 1 and len(targets[0].names) == 1
    jobs = given["jobs"] or (1 if one else os.cpu_count() or 1)
    return Options(settings, given["cases"], declare, given["case"], given["timeout"], jobs)


def _one_report(outcomes: Sequence[Outcome], given: dict[str, Any], seconds: float) -> Report:
    reports, suppressed = [], 0
    for outcome in outcomes:
        report = _chosen(outcome.report, given["select"], given["ignore"])
        if outcome.found is not None:
            report, count = suppress(report, outcome.found.name, outcome.found.location)
            suppressed += count
        reports.append(report)
    report = Report().merge(*reports)
    if given["baseline"] is not None:
        report, count = known_before(report, _read_baseline(given["baseline"]))
        suppressed += count
    samples: dict[str, Any] = {o.found.name: o.samples for o in outcomes if o.found}
    searched = [o.found.name for o in outcomes if o.found and o.origin == "searched"]
    extra = {"suppressed": suppressed, "skipped_tiers": _skipped_tiers(given), "samples": samples, "searched": searched, "seconds": round(seconds, 3)}
    return replace(report, environment={**report.environment, **extra})


def _chosen(report: Report, select: frozenset[str], ignore: frozenset[str]) -> Report:
    """Return the report without ignored codes. What the tool itself has to say is selected with everything."""
    return report.filter(lambda f: f.code not in ignore and (not select or f.code in select or f.code.startswith("PB0")))


def _skipped_tiers(given: dict[str, Any]) -> list[str]:
    tiers = [] if given["thorough"] else ["thorough (--thorough)"]
    if not (given["device"] or "").startswith("cuda"):
        tiers.append("gpu (--device cuda)")
    return tiers if given["distributed"] else [*tiers, "distributed (--distributed N)"]


def _read_baseline(path: Path) -> tuple[Finding, ...]:
    try:
        return Report.from_json(path.read_text(encoding="utf-8")).findings
    except (ValueError, OSError, TypeError, KeyError) as error:
        raise click.UsageError(f"--baseline {path}: {error}. Write one with --output-format json --output {path}") from error


def _require_case(outcomes: Sequence[Outcome], case: int | None) -> None:
    counts = {o.found.name: len(o.samples) for o in outcomes if o.found}
    if case is not None and counts and all(count <= case for count in counts.values()):
        names = short_names(counts)
        have = ", ".join(f"{clean(names[name])} has {count}" for name, count in list(counts.items())[:5])
        raise click.UsageError(f"there is no sample {case} (they are numbered from 0): {have}. `--list` shows them.")


def exit_status(report: Report, outcomes: Sequence[Outcome], *, fail_on: str, strict: bool) -> int:
    """Return 2 where nothing could be imported, 1 for findings at or above `fail_on` or where nothing was checked, else 0."""
    if outcomes and not any(outcome.imported for outcome in outcomes):
        return 2
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]  # type: ignore[arg-type]
    if any(f.severity in grave for f in report.findings) or (strict and any(f.code == "PB004" for f in report.findings)):
        return 1
    return 0 if any(run.status in RAN for run in report.checks) else 1


def _print_list(outcomes: Sequence[Outcome], output_format: str, output: Path | None) -> None:
    if output_format == "json":
        rows = [
            {"name": o.found.name, "path": o.found.path, "line": o.found.line, "skip": o.found.skip, "samples": o.samples}
            for o in outcomes
            if o.found
        ]
        text = json.dumps(rows, indent=1)
    else:
        text = "\n".join(line for outcome in outcomes for line in _list_lines(outcome))
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")
        return
    click.echo(text)


def _list_lines(outcome: Outcome) -> list[str]:
    problems = [f"  {clean(f.code)} {clean(f.message)}" for f in outcome.report.findings]
    if outcome.found is None:
        return [*(clean(subject) for subject in outcome.report.subjects), *problems]
    found = outcome.found
    place = f"   {clean(found.path)}:{found.line}" if found.path else ""
    skip = [f"  not checked: {clean(found.skip)}"] if found.skip else []
    return [f"{clean(found.target.spec)}::{clean(found.short)}{place}", *(f"  {i}  {s}" for i, s in enumerate(outcome.samples)), *skip, *problems]
