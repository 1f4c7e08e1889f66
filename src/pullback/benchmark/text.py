"""A benchmark as a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..report.clean import clean
from ..views import measures
from ..views.text import table
from .result import Bench, Point, Run
from .spread import Spread

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {"head": "bold", "point": "cyan", "columns": "dim", "ours": "bold", "slower": "red", "faster": "green", "note": "dim", "": ""}
NAME = 24

Line = tuple[str, str]
"""A line and its kind, a key of `STYLES`."""


def table_text(bench: Bench) -> str:
    """Return the table: medians, and the quartiles of the whole and of its ratio."""
    return "\n".join(line for line, _ in _lines(bench))


def renderable(bench: Bench) -> Text:
    """Return the table in colours: green where the op is faster than a contender in three rounds of four, red where it is slower."""
    from rich.text import Text

    text = Text(no_wrap=True)
    for line, kind in _lines(bench):
        text.append(f"{line}\n", STYLES[kind])
    text.rstrip()
    return text


def duration(seconds: float) -> str:
    """Return a time with three digits: ``"2.33 µs"``, ``"120 ms"``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns"


def factor(spread: Spread) -> str:
    """Return a ratio with its quartiles: ``"1.46 (1.45–1.47)"``."""
    return f"{_digits(spread.median)} ({_digits(spread.low)}–{_digits(spread.high)})"


def rate(per_second: float, unit: str) -> str:
    """Return a rate: ``"21.2 GB/s"``."""
    return f"{_digits(per_second / 1e9)} G{unit}/s"


def _digits(value: float) -> str:
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    value = float(f"{value:.3g}")
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))}f}"


def _lines(bench: Bench) -> Iterator[Line]:
    others = ", ".join(clean(name, limit=NAME) for name in bench.names[1:])
    threads = bench.environment.get("threads")
    about = [str(bench.environment.get("device", "")), measures.count(threads, "thread") if isinstance(threads, int) else ""]
    about.append(f"torch {bench.environment['torch']}" if "torch" in bench.environment else "")
    yield f"{clean(bench.subject, limit=80)}{f' against {others}' if others else ''}", "head"
    yield ", ".join(clean(part, limit=80) for part in about if part), "note"
    ours = clean(bench.names[0], limit=16)
    rows: list[tuple[str, ...]] = [("", "forward", "backward", "both", "quartiles", "× limit", "kept", "peak", f"{ours} / it" if others else "")]
    rows += [_row(run, point.overhead) for point in bench.points for run in point.runs]
    aligned = table(rows, right=range(1, len(rows[0])))
    columns = next(aligned)
    for point in bench.points:
        yield "", ""
        yield _heading(point), "point"
        yield f"  {columns}", "columns"
        yield from ((f"  {line}", _kind(run)) for run, line in zip(point.runs, itertools.islice(aligned, len(point.runs)), strict=True))
    if bench.notes:
        yield "", ""
        yield from ((clean(note, limit=300), "note") for note in bench.notes)


def _heading(point: Point) -> str:
    parts = ["cost of a call" if point.overhead else measures.count(point.elements, "element"), clean(point.inputs, limit=120)]
    parts.append(measures.count(point.rounds, "round"))
    if point.copy_rate:
        parts.append(f"copy {rate(point.copy_rate, 'B')}")
    if point.product_rate:
        parts.append(f"product {rate(point.product_rate, 'FLOP')}")
    if point.limit:
        parts.append(f"limit {duration(point.limit)}")
    return " · ".join(parts)


def _row(run: Run, overhead: bool) -> tuple[str, ...]:
    return (
        clean(run.name, limit=NAME),
        duration(run.forward.median),
        duration(run.backward.median) if run.backward else "–",
        duration(run.time.median),
        f"{duration(run.time.low)}–{duration(run.time.high)}",
        _digits(run.of_limit.median) if run.of_limit else "",
        "" if overhead else measures.size(run.kept),
        "" if overhead else measures.size(run.peak),
        factor(run.ratio) if run.ratio else "",
    )


def _kind(run: Run) -> str:
    if run.ratio is None:
        return "ours"
    return "slower" if run.ratio.low > 1 else "faster" if run.ratio.high < 1 else ""
