"""The report as a person reads it in a terminal.

Only rich `Text` objects are built, never markup, and every string of the checked program goes through `clean` first.
"""

from __future__ import annotations

import io
import linecache
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..clean import clean
from ..finding import SEVERITIES, Evidence, Finding, Location
from ..report import Report
from .summary import Counts, folded_reasons, searched_samples, short_names, shown_path, smaller_tensors, summary_line, table_rows

LABEL = 11
OUTPUT_LINES = 10
OUTPUT_COLUMNS = 400
_STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_PROOF = re.compile(r"(?P<claim>[^()]+) \((?P<proof>[^()]+)\)\.?")
_COLUMNS = ("subject", "passed", "found", "unsupported", "skipped")


def render(report: Report) -> str:
    """Return the report as plain text of 100 columns."""
    return to_text(report)


def to_text(report: Report, *, width: int = 100, color: bool = False) -> str:
    """Return the report as text, wrapped at `width` columns; with `color`, with ANSI colours.

    Example:
        >>> from pullback import Report
        >>> print(to_text(Report()))
        nothing was checked
    """
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    console.print(renderable(report), soft_wrap=True, end="")
    return file.getvalue().rstrip("\n")


def print_report(report: Report) -> None:
    """Print the report to standard output, as wide as the terminal, with colours where it has them."""
    Console(markup=False, highlight=False, emoji=False).print(renderable(report), soft_wrap=True)


def renderable(report: Report) -> Rendered:
    """Return an object that rich prints at the width of its console."""
    return Rendered(report)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A report that rich can print."""

    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(40, options.max_width)
        for finding, others in folded_notes(in_order(self.report)):
            for line in _finding(finding, others, console, width):
                yield _unwrapped(line)
            yield Text("")
        if self.report.checks:
            for line in _table(self.report, console, width):
                yield _unwrapped(line)
            yield Text("")
        for line in _wrap(_summary(self.report), console, width):
            yield _unwrapped(line)


def in_order(report: Report) -> list[Finding]:
    """Return the findings by subject, and for each subject the gravest first."""
    order = {subject: i for i, subject in enumerate(report.subjects)}
    return sorted(report.findings, key=lambda f: (order.get(f.subject, len(order)), SEVERITIES.index(f.severity)))


def folded_notes(findings: Sequence[Finding]) -> list[tuple[Finding, list[str]]]:
    """Return the findings, each with the subjects of the later ones that it speaks for.

    Notes of one code and one fix are told once, and so is what one fault of torch does to several subjects.
    """
    shown: dict[object, tuple[Finding, list[str]]] = {}
    for finding in findings:
        common = finding.fix is not None and (finding.severity == "note" or finding.upstream is not None)
        key = (finding.code, finding.severity, finding.fix, finding.upstream) if common else id(finding)
        if key in shown:
            shown[key][1].append(finding.subject)
        else:
            shown[key] = (finding, [])
    return list(shown.values())


def _finding(finding: Finding, others: Sequence[str], console: Console, width: int) -> Iterator[Text]:
    yield from _hang(_headline(finding), console, width, 2)
    if finding.location is not None:
        yield _place(finding.location, width)
    for i, evidence in enumerate(finding.evidence):
        yield from _field("evidence" if i == 0 else "", _evidence(evidence), console, width)
    output = finding.attachments.get("output")
    if isinstance(output, str):
        yield from _field("output", _last_lines(output), console, width)
    if finding.cause:
        yield from _field("cause", _cause(finding), console, width)
    if finding.fix:
        yield from _field("fix", Text(_lines(finding.fix), style="green"), console, width)
    if finding.upstream:
        yield from _field("upstream", Text(clean(finding.upstream)), console, width)
    if others:
        yield from _field("also", Text(clean(", ".join(short_names([finding.subject, *others])[subject] for subject in others))), console, width)
    if finding.repro:
        yield _command("repro", clean(finding.repro))
    yield _command("more", f"pullback explain {clean(finding.code)}")


def _headline(finding: Finding) -> Text:
    style = _STYLE[finding.severity]
    grade = "" if finding.severity == "error" else f" ({finding.severity})"
    return Text.assemble(
        (clean(finding.code), style), " ", (clean(finding.name), style.removeprefix("bold ")), (grade, "dim"), ": ", (clean(finding.message), "bold")
    )


def _place(location: Location, width: int) -> Text:
    line = Text.assemble("  ", (f"{clean(shown_path(location.path))}:{location.line}", "blue"))
    source = clean(_source_line(location).strip())
    if source:
        room = width - line.cell_len - 3
        code = Text(source, style="dim")
        if room >= 12:
            code.truncate(room, overflow="ellipsis")
            line = Text.assemble(line, "   ", code)
    return line


def _source_line(location: Location) -> str:
    try:
        return linecache.getline(location.path, location.line) if os.path.isfile(location.path) else ""
    except ValueError:
        return ""


def _evidence(evidence: Evidence) -> Text:
    lines = [_lines(evidence.text)] if evidence.text else []
    lines += [f"{label}{clean(value)}" for label, value in (("got       ", evidence.got), ("expected  ", evidence.expected)) if value]
    if evidence.error is not None or evidence.tolerance is not None:
        lines.append(_measure(evidence))
    return Text("\n".join(lines))


def _measure(evidence: Evidence) -> str:
    parts = []
    if evidence.error is not None:
        parts.append(f"differs by {number(evidence.error)}")
    if evidence.tolerance is not None:
        why = f": {clean(evidence.why_tolerance)}" if evidence.why_tolerance else ""
        tolerance = f"tolerance {number(evidence.tolerance)}{why}"
        parts.append(f"({tolerance})" if parts else tolerance)
    return " ".join(parts)


def number(value: float) -> str:
    """Return a measured number in two digits: ``1.3e+0``, ``2.1e-9``; 0 and small whole numbers as they are."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1000:
        return str(int(value))
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent):+d}" if exponent else mantissa


def _last_lines(output: str) -> Text:
    lines = _lines(output).split("\n")
    more = [f"… {len(lines) - OUTPUT_LINES} lines above, all in the JSON report"] if len(lines) > OUTPUT_LINES else []
    return Text("\n".join([*more, *(line[:OUTPUT_COLUMNS] for line in lines[-OUTPUT_LINES:])]), style="dim")


def _cause(finding: Finding) -> Text:
    text = _lines(finding.cause or "")
    if "(certain" in text or "(likely" in text:
        return Text(text)
    proof = _PROOF.fullmatch(text)
    if finding.certain and proof:
        return Text(f"{proof['claim']} (certain: {proof['proof']})")
    return Text.assemble(text, (f" ({'certain' if finding.certain else 'likely'})", "dim"))


def _lines(text: str) -> str:
    return clean(text, keep_newlines=True).rstrip()


def _field(label: str, text: Text, console: Console, width: int, *, label_width: int = LABEL) -> Iterator[Text]:
    first = Text.assemble("  ", (label.ljust(label_width), "dim"))
    blank = Text(" " * (label_width + 2))
    for i, line in enumerate(_wrap(text, console, width - label_width - 2)):
        whole = Text.assemble(first if i == 0 else blank, line)
        whole.rstrip()
        yield whole


def _command(label: str, command: str) -> Text:
    """A command stays on one line, however long, so that it can be copied."""
    return Text.assemble("  ", (label.ljust(LABEL), "dim"), command)


def _wrap(text: Text, console: Console, width: int) -> list[Text]:
    lines: list[Text] = []
    for paragraph in text.split("\n", allow_blank=True):
        lines += _wrap_paragraph(paragraph, console, width)
    return lines


def _wrap_paragraph(text: Text, console: Console, width: int) -> list[Text]:
    """Wrap one line; what is indented, as code is, keeps its indentation and is folded only where it must be."""
    indent = len(text.plain) - len(text.plain.lstrip())
    lines = list(text.wrap(console, max(20, width), overflow="fold", no_wrap=False))
    for line in lines:
        line.rstrip()
    return [lines[0], *(Text.assemble(" " * indent, line) for line in lines[1:])] if indent and lines else lines


def _hang(text: Text, console: Console, width: int, indent: int) -> list[Text]:
    lines = _wrap(text, console, width - indent)
    return [line if i == 0 else Text.assemble(" " * indent, line) for i, line in enumerate(lines)]


def _unwrapped(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ignore"
    return line


def _table(report: Report, console: Console, width: int) -> Iterator[Text]:
    rows = table_rows(report)
    cells = [tuple(_cell(row, column) for column in _COLUMNS) for row in rows]
    widths = [max(len(name), *(cell[i].cell_len for cell in cells)) for i, name in enumerate(_COLUMNS)]
    widths[0] = min(widths[0], max(20, width - sum(widths[1:]) - 2 * len(widths) + 2))
    yield _row([Text("checked", style="bold"), *(Text(name, style="bold") for name in _COLUMNS[1:])], widths)
    for cell in cells:
        yield _row(list(cell), widths)
    for label, text in folded_reasons(report):
        yield from _field(label, Text(clean(text), style="dim"), console, width, label_width=LABEL + 2)
    smaller = "\n".join(clean(line) for line in smaller_tensors(report))
    if smaller:
        yield from _field("smaller", Text(smaller, style="dim"), console, width, label_width=LABEL + 2)
    searched = "\n".join(clean(line) for line in searched_samples(report))
    if searched:
        yield from _field("searched", Text(searched, style="dim"), console, width, label_width=LABEL + 2)


def _row(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    parts: list[Text] = []
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        cell = cell.copy()
        cell.truncate(width, overflow="ellipsis", pad=False)
        if i in (0, 2):
            cell.pad_right(width - cell.cell_len)
        else:
            cell.pad_left(width - cell.cell_len)
        parts.append(cell)
    line = Text("  ").join(parts)
    line.rstrip()
    return line


def _cell(row: Counts, column: str) -> Text:
    if column == "subject":
        return Text(clean(row.subject))
    if column == "found":
        return _found(row.found)
    count = getattr(row, column)
    return Text(str(count) if count else "–", style="green" if column == "passed" and count else "dim")


def _found(found: Counter[str]) -> Text:
    parts = [Text(_plural(found[s], s), style=_STYLE[s].removeprefix("bold ")) for s in SEVERITIES if found[s]]
    return Text(", ").join(parts) if parts else Text("–", style="dim")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _summary(report: Report) -> Text:
    worst = report.worst()
    style = _STYLE[worst] if worst in ("error", "warning") else "bold green" if report.ok else "bold yellow"
    head, tail = summary_line(report)
    return Text.assemble((head, style), (tail, "dim"))
