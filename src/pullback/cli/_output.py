"""Output formats: every module of `report.render` that is there and renders a report to a string."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import click

from ..report.report import Report

_FORMATS = ("text", "concise", "json", "sarif", "github", "junit", "html")


def formats() -> list[str]:
    """Return the formats that can be written."""
    return [name for name in _FORMATS if importlib.util.find_spec(f"pullback.report.render.{name}")]


def write(report: Report, output_format: str, output: Path | None) -> None:
    """Write a report to a file, or to standard output: text as wide as the terminal, with colours where it has them."""
    if output is None and output_format == "text" and sys.stdout is not None and sys.stdout.isatty():
        from ..report.render.text import print_report

        print_report(report)
        return
    emit(importlib.import_module(f"..report.render.{output_format}", __package__).render(report), output)


def emit(text: str, output: Path | None) -> None:
    """Write a text to a file, or to standard output."""
    if output is None:
        if sys.stdout is None:
            click.echo("standard output is closed: --output FILE writes the report to a file", err=True)
            return
        click.echo(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--output {output}: {error.strerror}") from error
