"""A watch as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import measures
from .text import table
from .watch_faults import shown
from .watch_look import Row

if TYPE_CHECKING:
    from .watch import Watch
    from .watch_steps import StepStats

SHOWN_STEPS = 8
WIDTH = 24


def watch_text(watch: Watch) -> str:
    """Return the first and last steps with a bar for the gradient, the last full look, and the faults."""
    return "\n".join(_lines(watch))


def watch_section(watch: Watch) -> dict[str, Any]:
    """Return a watch as JSON data; a number that is not finite is written as text."""
    return {
        "schema": 1,
        "kind": "watch",
        "modules": list(watch.names),
        "steps": [_plain(step._asdict()) for step in watch.steps],
        "looks": [{"step": step, "rows": [_plain(asdict(row)) for row in rows]} for step, rows in watch.looks.items()],
        "faults": [asdict(fault) for fault in watch.faults],
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value if not isinstance(value, float) or abs(value) < float("inf") else str(value) for key, value in fields.items()}


def _lines(watch: Watch) -> Iterator[str]:
    yield f"watch of {', '.join(watch.names)}: " + (measures.count(len(watch.steps), "step") if watch.steps else "no step")
    if not watch.steps:
        yield "  no backward came through the module; of a compiled model, watch what torch.compile returned"
    else:
        yield from _steps(list(watch.steps))
    if watch.looks:
        step = max(watch.looks)
        yield ""
        yield f"step {step} in full, root mean squares"
        yield from _rows(watch.looks[step])
    for fault in watch.faults:
        yield ""
        yield from shown(fault)


def _steps(steps: list[StepStats]) -> Iterator[str]:
    shown = steps if len(steps) <= SHOWN_STEPS else [*steps[: SHOWN_STEPS // 2], None, *steps[-SHOWN_STEPS // 2 :]]
    finite = [step.gradient for step in steps if step.gradient is not None and step.gradient < float("inf")]
    largest = max(finite, default=0.0)
    rows = [("step", "output", "gradient", "")]
    rows += [("…", "", "", "") if s is None else (str(s.step), _number(s.output), _number(s.gradient), _bar(s.gradient, largest)) for s in shown]
    yield from (f"  {line}" for line in table(rows, right=(0, 1, 2)))


def _rows(rows: tuple[Row, ...]) -> Iterator[str]:
    for kind, head in (("module", ("output", "zero", "gradient", "zero")), ("parameter", ("value", "zero", "gradient", "zero"))):
        own = [row for row in rows if row.kind == kind]
        if own:
            cells = [(row.name, _number(row.value), _share(row.zeros), _number(row.gradient), _share(row.gradient_zeros), _note(row)) for row in own]
            yield from (f"  {line}" for line in table([(kind, *head, ""), *cells], right=(1, 2, 3, 4)))


def _note(row: Row) -> str:
    if row.bad:
        return f"! {row.bad:,} NaN or Inf"
    if row.gradient is None:
        return "! no gradient"
    return "! gradient is zero" if row.gradient == 0 else "! output is zero" if row.value == 0 and row.kind == "module" else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _bar(value: float | None, largest: float) -> str:
    if value is None or not largest:
        return ""
    return "█" * max(1, round(WIDTH * value / largest)) if value < float("inf") else "not finite"
