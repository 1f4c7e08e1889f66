"""What a notebook shows: text, a picture, and where the page is there, the picture with the page folded up below it."""

from __future__ import annotations

import html
import importlib
import importlib.util
from collections.abc import Container, Mapping
from typing import Any

PAGE = "pullback.report.render.html"
HEIGHT = 640


def bundle(
    text: str, svg: str, title: str, section: Mapping[str, Any], include: Container[str] | None, exclude: Container[str] | None
) -> dict[str, str]:
    """Return the representations of one output; a frontend shows the richest one that it can, and only that.

    Pictures bear no identifiers, so that two outputs never clash. The page is in a frame of its own: scripts see nothing of the notebook, and the
    picture above it is there where scripts are off.

    Args:
        text: For frontends without pictures.
        svg: The picture.
        title: The page's title.
        section: The page's section.
        include: MIME types to return; None for all.
        exclude: MIME types to leave out.
    """
    found = {"text/plain": text, "image/svg+xml": svg}
    if importlib.util.find_spec(PAGE) is not None and _wanted("text/html", include, exclude):
        found["text/html"] = _framed(svg, title, section)
    return {kind: value for kind, value in found.items() if _wanted(kind, include, exclude)}


def _wanted(kind: str, include: Container[str] | None, exclude: Container[str] | None) -> bool:
    return (not include or kind in include) and not (exclude and kind in exclude)


def _framed(svg: str, title: str, section: Mapping[str, Any]) -> str:
    whole = page_of(title, section)
    frame = f'<iframe sandbox="allow-scripts" loading="lazy" width="100%" height="{HEIGHT}" style="border: 0" srcdoc="{html.escape(whole)}"></iframe>'
    return f'<div style="overflow-x: auto">{svg}</div>\n<details><summary>explore</summary>{frame}</details>'


def page_of(title: str, section: Mapping[str, Any]) -> str:
    """Return the page of one section: one file that needs no network."""
    page = importlib.import_module(PAGE)
    return page.render({"schema": page.SCHEMA, "title": title, "sections": [section]})
