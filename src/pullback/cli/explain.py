"""`pullback explain`: a code's page, all codes, or the contract of a Function."""

from __future__ import annotations

import importlib.util
import os
import shutil
import textwrap
from collections.abc import Iterator

import click

from ..battery.outcomes import Options
from ..battery.pool import describe_targets
from ..battery.targets import TargetError, parse_targets
from ..battery.workers import WorkerError
from ..report.clean import clean
from ..report.codes import FAMILIES, Code, UnknownCode, registry, resolve
from ._config import ConfiguredCommand
from ._progress import progress

FULL_LINE = 100
_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command(cls=ConfiguredCommand)
@click.argument("subjects", nargs=-1, metavar="[CODE | FILE_OR_MODULE[::NAME]]...")
@click.option("--cases", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Take pullback_cases() from this file too.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses searched samples.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds for one call.")
@click.pass_context
def explain(ctx: click.Context, subjects: tuple[str, ...], cases: str | None, seed: int, timeout: float) -> None:
    """Explain a code (PB604, strided-grad-output, PB6), or print the contract of a Function (FILE::NAME) as Markdown.

    Without an argument all codes are listed.
    """
    if not subjects:
        click.echo("\n".join(_families()))
        return
    targets = [subject for subject in subjects if _is_target(subject)]
    pages = ["\n".join(_page(entry)) for word in subjects if word not in targets for entry in _entries(word)]
    if targets:
        pages += _contracts(ctx, targets, Options({"seed": seed}, cases, ctx.meta["pullback.declare"], None, timeout))
    click.echo("\n\n".join(pages))


def _is_target(subject: str) -> bool:
    return "::" in subject or subject.endswith(".py") or os.path.exists(subject)


def _entries(word: str) -> list[Code]:
    try:
        return [registry()[code] for code in sorted(resolve([word]))]
    except UnknownCode as error:
        raise click.UsageError(f"{error} The contract of a Function is printed for FILE::NAME.") from error


def _families() -> Iterator[str]:
    entries = registry()
    for family, title in FAMILIES.items():
        own = [entry for code, entry in entries.items() if code.startswith(family)]
        if own:
            yield click.style(f"{family}xx  {title}", bold=True)
            yield from (f"  {entry.code}  {_severity(entry, 7)}  {entry.name.ljust(30)} {_first_sentence(entry)}".rstrip() for entry in own)
            yield ""
    yield "pullback explain PB604 tells what a code finds, why it matters and how it is measured."


def _severity(entry: Code, width: int = 0) -> str:
    return click.style(entry.severity.ljust(width), fg=_COLORS[entry.severity])


def _first_sentence(entry: Code) -> str:
    sentence = " ".join(entry.doc.partition("\n\n")[0].split())
    return textwrap.shorten(sentence, max(30, _width() - 52), placeholder=" …")


def _page(entry: Code) -> Iterator[str]:
    yield click.style(f"{entry.code} {entry.name}", bold=True) + f" ({_severity(entry)})"
    yield ""
    for line in _rejoined(entry.doc.splitlines()):
        if line.endswith(":") and not line.startswith(" "):
            yield click.style(line.removesuffix(":"), bold=True)
        else:
            yield from _wrapped(line)


def _rejoined(lines: list[str]) -> list[str]:
    """Join lines that were broken only because a source line was full; code and short lines stay as they are."""
    joined: list[str] = []
    full = False
    for line in lines:
        text = line.strip()
        if full and text:
            joined[-1] += f" {text}"
        else:
            joined.append(line)
        full = len(line) > FULL_LINE and not line.lstrip().startswith(">>>")
    return joined


def _wrapped(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    hang = indent + ("  " if line.lstrip().startswith(("- ", "* ")) else "")
    return textwrap.wrap(line, _width(), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False) or [""]


def _width() -> int:
    return min(110, shutil.get_terminal_size((100, 24)).columns)


def _contracts(ctx: click.Context, targets: list[str], options: Options) -> list[str]:
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("the contract of a Function needs PyTorch, which is not installed: pip install 'pullback[torch]'")
    try:
        with progress() as watch:
            described = describe_targets(parse_targets(targets), options, watch=watch)
    except (TargetError, WorkerError) as error:
        raise click.UsageError(clean(error, keep_newlines=True)) from error
    failures = [finding for outcome in described for finding in outcome.report.findings]
    for finding in failures:
        click.echo(f"{finding.code} {finding.name}: {clean(finding.message)}", err=True)
        for evidence in finding.evidence:
            click.echo(f"  {clean(evidence.text)}", err=True)
    pages = [outcome.page for outcome in described if outcome.page]
    if not pages:
        ctx.exit(2)
    return pages
