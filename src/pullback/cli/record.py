"""`pullback record`: run a program, note what it does with custom derivatives, and check that."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..report.clean import clean
from ..report.finding import SEVERITIES
from ..report.report import RAN, Report
from ._config import ConfiguredCommand
from ._output import formats, write
from ._program import named_program
from ._suppress import suppress as suppress_comments

if TYPE_CHECKING:
    from ..capture.case import Case
    from ..capture.recorded import Recording
    from ..recorder.launch import Program
    from ..recorder.resolve import Resolver
    from ..recorder.run import Run


class ProgramCommand(ConfiguredCommand):
    """A command whose options end where the program begins, so that the program's own options are left to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for i, word in enumerate(args):
            if word == "--":
                break
            if word == "-m" and i + 1 < len(args):
                args = [*args[: i + 2], "--", *args[i + 2 :]]
                break
        return super().parse_args(ctx, args)


@click.command(cls=ProgramCommand, context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, metavar="SCRIPT [ARGUMENT]...")
@click.option("-m", "run_module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.pbrec",
    help="Keep the recording in this file; with --output-format and another ending: the findings.",
)
@click.option(
    "--replay",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.pbrec",
    help="Check a recording instead of running a program; several are merged.",
)
@click.option("--profile", is_flag=True, help="Show calls, times, bytes kept and layouts, and check nothing.")
@click.option("--no-values", is_flag=True, help="Keep shapes, strides and statistics of tensors, not their values.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="Check code of this package too, besides the project's own.")
@click.option("--select", multiple=True, metavar="CODES", help="Run only these: codes, names or families (PB6), separated by commas.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Leave these out.")
@click.option("--fail-on", type=click.Choice(["error", "warning"]), default="warning", show_default=True, help="Least severity for exit status 1.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses directions and grad_outputs.")
@click.option("--thorough", is_flag=True, help="Run the slow tier too.")
@click.option("--orders", type=click.IntRange(1, 2), default=1, show_default=True, help="2: second derivatives must be right.")
@click.option("--output-format", type=click.Choice(formats()), default="text", show_default=True, help="How findings are written.")
@click.option(
    "--report", "report_file", type=click.Path(dir_okay=False, path_type=Path), help="Write findings to this file instead of standard output."
)
@click.pass_context
def record(ctx: click.Context, program: tuple[str, ...], run_module: str | None, replay: tuple[Path, ...], **given: Any) -> None:
    """Run SCRIPT unchanged, note every call of a custom Function, op or torch.library op, and check those with the layouts, dtypes, frozen
    parameters and autocast that the program really has.

    The program's output, exit status and exceptions are its own; if it ends well, findings decide the exit status.

    \b
    pullback record train.py --epochs 1              a script with its arguments
    pullback record -m package.train --epochs 1      a module
    pullback record -- pytest -q                     a console command
    pullback record --output run.pbrec train.py      keep what was seen, for `pullback check run.pbrec`
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("pullback record needs PyTorch, which is not installed: pip install 'pullback[torch]'")
    settings = _settings(ctx, given)
    given |= _files(given)
    if replay:
        if program or run_module:
            raise click.UsageError("--replay checks a recording; it runs no program")
        ctx.exit(check_files(replay, ctx.meta["pullback.declare"], profile=given["profile"], **settings, **_how(given)))
    output = _recording_file(given["output"])
    words = ["-m", run_module, *program] if run_module is not None else ["--", *program]
    ctx.exit(_run(ctx, named_program("record", program, run_module), words, output, settings, given))


def _settings(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    from .check import codes

    chosen = {name: codes(ctx, next(p for p in ctx.command.params if p.name == name), given[name]) for name in ("select", "ignore")}
    return chosen | {name: given[name] for name in ("seed", "orders", "thorough", "modules")}


def _files(given: dict[str, Any]) -> dict[str, Any]:
    """Return the files of the recording and of the findings; --output takes the findings, as in other commands, where it is no .pbrec."""
    output, report_file = given["output"], given["report_file"]
    findings = output is not None and output.suffix != ".pbrec" and given["output_format"] != "text" and report_file is None
    return {"output": None, "report_file": output} if findings else {"output": output, "report_file": report_file}


def _how(given: dict[str, Any]) -> dict[str, Any]:
    return {"output_format": given["output_format"], "report_file": given["report_file"], "fail_on": given["fail_on"]}


def _recording_file(path: Path | None) -> Path | None:
    """Return the file for this rank: ranks of torchrun each write their own."""
    if path is None:
        return None
    if path.suffix != ".pbrec":
        raise click.UsageError(f"--output {path}: a recording is a .pbrec file. Findings go to --report FILE")
    if not path.parent.is_dir():
        raise click.UsageError(f"--output {path}: there is no folder {path.parent}")
    return path.with_suffix(f".rank{_rank()}.pbrec") if _world() > 1 else path


def _rank() -> int:
    return int(os.environ.get("RANK", "0") or 0)


def _world() -> int:
    value = os.environ.get("WORLD_SIZE", "")
    return int(value) if value.isdigit() else 1


def _run(ctx: click.Context, program: Program, words: list[str], output: Path | None, settings: dict[str, Any], given: dict[str, Any]) -> int:
    """Run the program, write and check what was seen, and return the exit status."""
    from ..recorder.children import gathered
    from ..recorder.launch import run_program
    from ..recorder.run import recording

    with _kept_from(), recording(values=not given["no_values"]) as run, gathered(run):
        status = run_program(program)
    if output is not None:
        run.save(output)
    if given["profile"]:
        show_profile(run.recording, given["output_format"], given["report_file"])
        return status
    if _world() > 1:
        _hint(output)
        return status
    command = _again(["record", *words] if output is None else ["check", str(output)], settings)
    report = run.report(**settings, configured=ctx.meta["pullback.declare"], command=command)
    found = _Recorded(run.recording, None, settings["seed"])
    judged = tell(report, run, found, **_how(given))
    return status or judged


@contextmanager
def _kept_from() -> Iterator[None]:
    """Have the folder, the streams and the import path afterwards that there were before, whatever the program made of them."""
    folder, streams, path = os.getcwd(), (sys.stdout, sys.stderr), list(sys.path)
    try:
        yield
    finally:
        with suppress(OSError):  # the program may have removed the folder
            os.chdir(folder)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = streams
        sys.path += [entry for entry in path if entry not in sys.path]


def _again(words: list[str], settings: dict[str, Any]) -> Callable[[str], str]:
    """Return what writes the command that shows a finding again."""
    modules = [part for name in settings.get("modules", ()) for part in ("--module", name)]

    def command(code: str) -> str:
        return shlex.join(["pullback", words[0], "--select", code, "--seed", str(settings["seed"]), *modules, *words[1:]])

    return command


def _hint(output: Path | None) -> None:
    if _rank() == 0:
        name = str(output).replace(".rank0.", ".rank*.") if output else "run.rank*.pbrec"
        keep = "" if output else "--output run.pbrec keeps it; then "
        click.echo(f"pullback: this is one of {_world()} ranks, and is not checked here: {keep}pullback check {name}", err=True)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a page shows calls of: a recording, what finds its code (None: what ran is still there), and a seed."""

    recording: Recording
    resolver: Resolver | None
    seed: int


def tell(report: Report, run: Run | None, found: _Recorded, *, output_format: str, report_file: Path | None, fail_on: str) -> int:
    """Write a report and return the exit status that it stands for."""
    report = _suppressed(report)
    if output_format == "html":
        from ._page import write_page_of_cases

        write_page_of_cases(report, _cases(report, found), found.seed, report_file)
    else:
        write(report, output_format, report_file)
    if run is not None and not report.subjects:
        click.echo("pullback: the program applied no custom Function, op or torch.library op", err=True)
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]  # type: ignore[arg-type]
    if any(finding.severity in grave for finding in report.findings):
        return 1
    return 0 if any(check.status in RAN for check in report.checks) else 1


def _cases(report: Report, found: _Recorded) -> Iterator[Case]:
    """Yield a recorded call of each subject at fault."""
    from ..recorder.replay import first_case

    at_fault = {finding.subject for finding in report.findings if finding.severity != "note"}
    for record in found.recording.functions:
        case = first_case(record, found.resolver, seed=found.seed) if record.name in at_fault else None
        if case is not None:
            yield case


def _suppressed(report: Report) -> Report:
    """Leave out what a comment on a class ignores."""
    kept, count = Report(environment=report.environment), 0
    for subject in report.subjects:
        own = replace(
            report,
            findings=tuple(f for f in report.findings if f.subject == subject),
            checks=tuple(c for c in report.checks if c.subject == subject),
            subjects=(subject,),
        )
        place = next((f.location for f in own.findings if f.location is not None), None)
        own, left_out = suppress_comments(own, subject, place)
        count += left_out
        kept = kept.merge(own)
    return replace(kept, environment={**report.environment, "suppressed": count})


def show_profile(recording: Recording, output_format: str, path: Path | None) -> None:
    """Write the table of a recording."""
    from ..recorder.profile import Profile

    profile = Profile(recording)
    text = json.dumps(profile.to_data(), indent=1) if output_format == "json" else str(profile)
    if path is None:
        click.echo(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")


def check_files(
    paths: tuple[Path, ...],
    declare: dict[str, Any],
    *,
    modules: tuple[str, ...] = (),
    profile: bool = False,
    output_format: str,
    report_file: Path | None,
    fail_on: str,
    **settings: Any,
) -> int:
    """Check recordings, merged into one, and return the exit status."""
    from ..capture.casefile import RecordingError, read_recording
    from ..recorder.replay import check_recording
    from ..recorder.resolve import Resolver

    try:
        first, *others = [read_recording(path) for path in paths]
    except RecordingError as error:
        raise click.UsageError(clean(error)) from error
    merged = first.merge(*others)
    if profile:
        show_profile(merged, output_format, report_file)
        return 0
    command = _again(["check", *map(str, paths)], {**settings, "modules": modules})
    resolver = Resolver(modules)
    report = check_recording(merged, resolver=resolver, modules=modules, command=command, configured=declare, **settings)
    return tell(report, None, _Recorded(merged, resolver, settings["seed"]), output_format=output_format, report_file=report_file, fail_on=fail_on)
