"""A benchmark as charts: sections for the page, and one SVG picture drawn here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ..report.clean import clean
from ..views import measures
from .result import Bench, Point, Run
from .spread import Spread
from .text import duration

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
COLORS = ("#c9701a", "#3b6fc9", "#3d8b57", "#6b3fa0", "#b42f5a", "#0f7f8a", "#8a6d1f", "#57606a")
INK, FAINT, GRID, PAPER = "#1f2328", "#656d76", "#e4e8ec", "#ffffff"
WIDTH, HEIGHT, GAP, MARGIN = 460.0, 300.0, 28.0, 24.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 44.0, 46.0
LEADING, SQUARE = 18.0, 10.0
HEAD = 34.0
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Section = dict[str, Any]


def sections(bench: Bench) -> list[Section]:
    """Return the charts: seconds of both, of forward and of backward, the ratios, and bytes, over the number of elements."""
    points = bench.sizes
    if not points:
        return []
    threads = bench.environment.get("threads")
    where = [str(bench.environment.get("device", "")), measures.count(threads, "thread") if isinstance(threads, int) else ""]
    note = f"{', '.join(part for part in where if part)}; the band is the middle half of the rounds"
    limit = _limit(points)
    timed = [
        ("Forward and backward", lambda run: run.time, [limit] if limit else []),
        ("Forward", lambda run: run.forward, []),
        ("Backward", lambda run: run.backward, []),
    ]
    found = [_chart(title, note, "seconds", True, [*_bands(bench, pick), *more]) for title, pick, more in timed]
    found.append(_chart(f"Time of {bench.names[0]} over theirs", note, "ratio", True, _bands(bench, lambda run: run.ratio)))
    kept, peak = _lines(bench, lambda run: run.kept), _lines(bench, lambda run: run.peak)
    found.append(_chart("Kept for backward", "beside arguments, parameters and outputs", "bytes an element", False, kept))
    found.append(_chart("Most in use at once", "beyond what was in use before", "bytes an element", False, peak))
    return [chart for chart in found if chart["series"]]


def picture(bench: Bench) -> str:
    """Return all charts as one SVG picture with one legend."""
    charts = sections(bench)
    columns = min(3, len(charts)) or 1
    rows = -(-len(charts) // columns)
    names = list(dict.fromkeys(series["name"] for chart in charts for series in chart["series"]))
    color = {name: COLORS[i % len(COLORS)] for i, name in enumerate(n for n in names if n != "limit")} | {"limit": FAINT}
    width = 2 * MARGIN + columns * WIDTH + (columns - 1) * GAP
    height = 2 * MARGIN + HEAD + LEADING * 2 + rows * HEIGHT + max(0, rows - 1) * GAP
    title = f"{clean(bench.subject, limit=80)} against {', '.join(clean(n, limit=24) for n in bench.names[1:])}".removesuffix(" against ")
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'{opening} font-family="{FONT}" role="img" aria-label={quoteattr(title)}>',
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        _text(MARGIN, MARGIN + 14, title, 16, INK, bold=True),
        *_legend(names, color),
    ]
    for i, chart in enumerate(charts):
        x = MARGIN + i % columns * (WIDTH + GAP)
        y = MARGIN + HEAD + 2 * LEADING + i // columns * (HEIGHT + GAP)
        parts += [f'<g transform="translate({x:.1f} {y:.1f})">', *_Panel(chart, color).draw(), "</g>"]
    return "\n".join([*parts, "</svg>"])


def _chart(title: str, note: str, label: str, logarithmic: bool, series: list[Section]) -> Section:
    x = {"label": "elements", "log": True}
    return {"kind": "chart", "title": title, "note": note, "x": x, "y": {"label": label, "log": logarithmic}, "series": series}


def _bands(bench: Bench, pick: Callable[[Run], Spread | None]) -> list[Section]:
    found = []
    for name in bench.names:
        seen = [(point.elements, spread) for point in bench.sizes if (run := point.run(name)) and (spread := pick(run))]
        if seen:
            x = [elements for elements, _ in seen]
            low, middle, high = ([getattr(spread, key) for _, spread in seen] for key in ("low", "median", "high"))
            found.append({"name": name, "x": x, "y": middle, "low": low, "high": high})
    return found


def _lines(bench: Bench, pick: Callable[[Run], int]) -> list[Section]:
    found = []
    for name in bench.names:
        seen = [(point.elements, pick(run) / max(1, point.elements)) for point in bench.sizes if (run := point.run(name))]
        found.append({"name": name, "x": [x for x, _ in seen], "y": [y for _, y in seen], "low": None, "high": None})
    return found


def _limit(points: Sequence[Point]) -> Section | None:
    seen = [(point.elements, point.limit) for point in points if point.limit]
    return {"name": "limit", "x": [x for x, _ in seen], "y": [y for _, y in seen], "low": None, "high": None} if seen else None


class _Scale:
    """Values to positions, and the values worth a line."""

    def __init__(self, values: Sequence[float], logarithmic: bool, start: float, end: float) -> None:
        self._log = logarithmic
        self._start, self._end = start, end
        if logarithmic:
            low, high = math.log10(min(values)), math.log10(max(values))
            pad = max(0.04 * (high - low), 0.06)
            self._low, self._high = low - pad, high + pad
        else:
            self._low, self._high = 0.0, max(values) * 1.06 or 1.0

    def at(self, value: float) -> float:
        value = math.log10(value) if self._log else value
        return self._start + (value - self._low) / (self._high - self._low) * (self._end - self._start)

    def ticks(self) -> list[float]:
        if not self._log:
            step = _nice((self._high - self._low) / 4)
            return [i * step for i in range(int(self._high / step) + 1)]
        decades = [10.0**e for e in range(math.ceil(self._low), math.floor(self._high) + 1)]
        if len(decades) >= 3:
            return decades[:: -(-len(decades) // 6)]
        fine = [m * 10.0**e for e in range(math.floor(self._low), math.ceil(self._high) + 1) for m in (1, 2, 5)]
        return [v for v in fine if self._low <= math.log10(v) <= self._high]


class _Panel:
    def __init__(self, chart: Section, color: dict[str, str]) -> None:
        self._chart, self._color = chart, color
        y_log = chart["y"]["log"]
        self._series = [s for s in chart["series"] if s["x"] and not (y_log and min(s["low"] or s["y"]) <= 0)]
        xs = [x for s in self._series for x in s["x"]]
        ys = [y for s in self._series for key in ("y", "low", "high") for y in s[key] or ()]
        ys += [1.0] if chart["y"]["label"] == "ratio" else []
        self._x = _Scale(xs, chart["x"]["log"], LEFT, WIDTH - RIGHT)
        self._y = _Scale(ys, y_log, HEIGHT - BOTTOM, TOP)

    def draw(self) -> Iterator[str]:
        yield _text(LEFT, 18, self._chart["title"], 13, INK, bold=True)
        label = self._chart["y"]["label"]
        if label.startswith("bytes"):
            yield _text(WIDTH - RIGHT, 18, label, 11, FAINT, anchor="end")
        for value in self._y.ticks():
            y = self._y.at(value)
            strong = label == "ratio" and value == 1
            yield f'<path d="M{LEFT:.1f} {y:.1f}H{WIDTH - RIGHT:.1f}" stroke="{FAINT if strong else GRID}"/>'
            yield _text(LEFT - 8, y + 4, _tick(value, label), 11, FAINT, anchor="end")
        for value in self._x.ticks():
            x = self._x.at(value)
            yield f'<path d="M{x:.1f} {TOP:.1f}V{HEIGHT - BOTTOM:.1f}" stroke="{GRID}"/>'
            yield _text(x, HEIGHT - BOTTOM + 17, _tick(value, "elements"), 11, FAINT, anchor="middle")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self._chart["x"]["label"], 11, FAINT, anchor="middle")
        for series in self._series:
            yield from self._band(series)
        for series in reversed(self._series):
            yield from self._line(series)

    def _band(self, series: Section) -> Iterator[str]:
        if not series["low"] or len(series["x"]) < 2:
            return
        upper = [(self._x.at(x), self._y.at(y)) for x, y in zip(series["x"], series["high"], strict=True)]
        lower = [(self._x.at(x), self._y.at(y)) for x, y in zip(series["x"], series["low"], strict=True)]
        outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in (*upper, *lower[::-1]))
        yield f'<path d="M{outline}Z" fill="{self._color[series["name"]]}" fill-opacity="0.16"/>'

    def _line(self, series: Section) -> Iterator[str]:
        color = self._color[series["name"]]
        points = [(self._x.at(x), self._y.at(y)) for x, y in zip(series["x"], series["y"], strict=True)]
        limit = series["name"] == "limit"
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if limit else ""
        yield f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="{1.2 if limit else 2}"{dashes} stroke-linejoin="round"/>'
        if not limit:
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points)
        if series["low"] and len(points) == 1:
            x, low, high = points[0][0], self._y.at(series["low"][0]), self._y.at(series["high"][0])
            yield f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{color}" stroke-width="1.4"/>'


def _legend(names: Sequence[str], color: dict[str, str]) -> Iterator[str]:
    x, y = MARGIN, MARGIN + HEAD + 4
    for name in names:
        text = clean(name, limit=32)
        if name == "limit":
            text = "limit: a plain copy of the bytes that must move, or the products"
            yield f'<path d="M{x:.1f} {y - 4:.1f}h{SQUARE + 8:.1f}" stroke="{FAINT}" stroke-width="1.2" stroke-dasharray="5 4"/>'
        else:
            yield f'<rect x="{x:.1f}" y="{y - SQUARE + 1:.1f}" width="{SQUARE}" height="{SQUARE}" rx="2" fill="{color[name]}"/>'
        x += SQUARE + (14 if name == "limit" else 6)
        yield _text(x, y, text, 12, INK)
        x += 7.2 * len(text) + 22


def _tick(value: float, label: str) -> str:
    if label == "seconds":
        return duration(value).replace(".00", "").replace(".0 ", " ")
    if label == "elements":
        exponent = math.floor(math.log10(value) + 1e-9)
        lead = value / 10**exponent
        if value < 1000:
            return f"{value:g}"
        return f"{'' if abs(lead - 1) < 1e-6 else f'{lead:g}·'}10{str(exponent).translate(SUPERSCRIPT)}"
    return f"{value:g}"


def _nice(step: float) -> float:
    base = 10.0 ** math.floor(math.log10(step))
    return next(m * base for m in (1, 2, 2.5, 5, 10) if m * base >= step * 0.999)


def _text(x: float, y: float, text: str, size: int, color: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(clean(text))}</text>'
