"""What every picture is drawn with: one font, a few colours, texts and rectangles; no style sheet, no script, no identifiers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
ADVANCE = 0.62
TITLE, TEXT = 13, 11
MARGIN = 24.0
INK, FAINT, KEEPS, PAPER, ALARM = "#1f2328", "#656d76", "#6b3fa0", "#ffffff", "#b3261e"


def width(text: str, size: int) -> float:
    """Return how wide a text is at most in a monospaced font."""
    return sum(2.0 if unicodedata.east_asian_width(c) in "WF" else 1.0 for c in text) * ADVANCE * size


def text(x: float, y: float, content: str, size: int, color: str, *, anchor: str = "start", bold: bool = False) -> str:
    """Return a text whose baseline begins (or has its middle or end) at a place."""
    weight = ' font-weight="600"' if bold else ""
    where = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}'
    return f'<text {where} xml:space="preserve">{escape(content)}</text>'


def rectangle(x: float, y: float, wide: float, high: float, radius: float, paint: str) -> str:
    """Return a rectangle; `paint` holds its fill and stroke as attributes."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="{radius:.1f}" {paint}/>'


def picture(wide: float, high: float, title: str, body: Iterable[str]) -> list[str]:
    """Return the lines of a whole picture; `body` begins at the margin."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" viewBox="0 0 {wide:.0f} {high:.0f}"'
    font = f'font-family={quoteattr(FONT)} role="img" aria-label={quoteattr(title)}'
    paper = f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>'
    return [f"{opening} {font}>", paper, f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">', *body, "</g>", "</svg>"]
