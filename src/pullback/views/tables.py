"""Traces and saved memory as SVG pictures: rows in aligned columns, with bars for times and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import ink, measures
from .labels import short

if TYPE_CHECKING:
    from .saved_memory import Saved
    from .trace import Trace

ROW = 19.0
GAP = 14.0
BAR = 150.0
CELL = 96
COLUMN = 1.8 * ink.TEXT
SHOWN = 60
TIME, OWN, ANYWAY, WARNED = "#3b6fc9", "#8a5cc2", "#c4ccd5", "#fdecea"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a picture.

    Args:
        cells: Its texts, column by column.
        title: What stands alone, in bold, instead.
        share: How long its bar is, from 0 to 1; None for no bar.
        color: The bar's colour.
        warned: Whether something is remarkable about it.
    """

    cells: tuple[str, ...] = ()
    title: str = ""
    share: float | None = None
    color: str = TIME
    warned: bool = False


def trace_svg(traced: Trace) -> str:
    """Return the picture of a trace: its steps call by call, times as bars, marked steps in red."""
    from .trace import GRADIENTS, blocks, gradient_cells, no_function, outside

    longest = max((step.seconds for step in traced.steps if step.seconds), default=1.0)
    rows: list[Row] = [] if traced.steps else [Row(title=no_function(traced))]
    for title, steps in blocks(traced):
        rows.append(Row(title=title))
        for step, cells in steps:
            share = step.seconds / longest if step.seconds is not None else None
            rows.append(Row(cells[1:], share=share, warned=cells[0] == "!"))
    if traced.gradients:
        rows.append(Row(title=GRADIENTS))
        rows += [Row(("", "", *cells), warned=bool(mark)) for mark, *cells in gradient_cells(traced)]
    if outside(traced):
        rows.append(Row((f"raised {traced.error}",), warned=True))
    return _drawn(rows, f"trace of {traced.subject}")


def saved_svg(kept: Saved) -> str:
    """Return the picture of what is kept: a bar for each block of memory, grey where it lives anyway, and who keeps it."""
    from .saved_memory import sentence

    largest = max((block.bytes for block in kept.blocks), default=1) or 1
    rows: list[Row] = []
    for block in kept.blocks[:SHOWN]:
        about = f"lives anyway: {block.anyway}" if block.anyway else "would be free without this graph"
        rows.append(Row((measures.size(block.bytes), about), share=block.bytes / largest, color=ANYWAY if block.anyway else OWN))
        rows += [Row(("", sentence(holder, block))) for holder in block.holders]
    if len(kept.blocks) > SHOWN:
        rest = kept.blocks[SHOWN:]
        rows.append(Row((measures.size(sum(block.bytes for block in rest)), f"in {measures.count(len(rest), 'smaller block')}")))
    rows.append(Row(title=_total(kept)))
    return _drawn(rows, _total(kept))


def _total(kept: Saved) -> str:
    if not kept.blocks:
        return "nothing is kept for backward"
    return f"{measures.size(kept.bytes)} kept for backward, of which {measures.size(kept.extra)} would be free without this graph"


def _drawn(rows: Sequence[Row], title: str) -> str:
    shown = [tuple(short(cell, CELL) for cell in row.cells) for row in rows]
    columns = max(map(len, shown), default=0)
    widths = [max((ink.width(cells[i], ink.TEXT) for cells in shown if len(cells) > max(i, 1)), default=0.0) for i in range(columns)]
    barred = any(row.share is not None for row in rows)
    body: list[str] = []
    y = wide = 0.0
    right = sum(widths) + COLUMN * max(columns - 1, 0)
    for row, cells in zip(rows, shown, strict=True):
        if row.title:
            y += GAP if y else 0
            body.append(ink.text(0, y + 13, row.title, ink.TITLE, ink.INK, bold=True))
            wide = max(wide, ink.width(row.title, ink.TITLE))
        else:
            body += _row(row, cells, widths, y, right)
            wide = max(wide, right + (COLUMN + BAR if barred else 0), *(ink.width(cell, ink.TEXT) for cell in cells[:1]))
        y += ROW
    return "\n".join(ink.picture(wide + 2 * ink.MARGIN, y + 2 * ink.MARGIN, title, body))


def _row(row: Row, cells: Sequence[str], widths: Sequence[float], y: float, right: float) -> Iterator[str]:
    if row.warned:
        yield ink.rectangle(-8, y, right + 16, ROW, 4, f'fill="{WARNED}"')
    x = 0.0
    for i, (cell, wide) in enumerate(zip(cells, widths, strict=False)):
        color = ink.ALARM if row.warned else ink.FAINT if i < len(cells) - 2 else ink.INK
        if cell:
            yield ink.text(x, y + 13, cell, ink.TEXT, color)
        x += wide + COLUMN
    if row.share is not None:
        yield ink.rectangle(right + COLUMN, y + 4, max(2.0, BAR * row.share), 11, 2, f'fill="{row.color}"')
