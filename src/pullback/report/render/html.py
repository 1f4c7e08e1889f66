"""One self-contained page: the built script, the style sheet and the data in one HTML file that asks the network for nothing.

Strings of the checked program reach the page as base64 of JSON only, never as markup. The policy lets the two built texts run, named by their
hashes, and nothing else: no style or script that a string could smuggle in, no request. ``worker-src blob:`` is there because graphs are laid out
in a worker, whose only source can be a blob in a page that may fetch nothing; the blob is the page's own script once more.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import linecache
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from ..clean import clean
from ..codes import registry
from ..finding import JSON, Finding
from ..report import Report
from .summary import shown_path

SCHEMA = 1
AROUND = 3
TITLE = "pullback"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><noscript>This page draws itself with JavaScript, which is off. The text format says the same.</noscript></div>
<script type="text/plain" id="data">{data}</script>
<script type="text/plain" id="licenses">
{licenses}
</script>
<script>{script}</script>
</body>
</html>"""


def render(page: Report | Mapping[str, Any]) -> str:
    """Return the page as one HTML text that needs no other file.

    Args:
        page: A report, or a page: ``{"schema": 1, "title": …, "sections": […]}`` with sections as `findings_section` and the views return them.

    Raises:
        ValueError: if a page has another schema, or no list of sections.
    """
    data = page_of(page) if isinstance(page, Report) else dict(page)
    if data.get("schema") != SCHEMA or not isinstance(data.get("sections"), list):
        raise ValueError(f"a page has the schema {SCHEMA} and a list of sections; got schema {data.get('schema')!r}, keys {sorted(data)}")
    script, style = _built("page.js"), _built("page.css")
    return _PAGE.format(
        policy=_policy(script, style),
        title=html.escape(clean(data.get("title", TITLE), limit=200)),
        style=style,
        script=script,
        licenses=_built("LICENSES.txt"),
        data=base64.b64encode(json.dumps(cleaned(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()).decode(),
    )


def page_of(report: Report, sections: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the page of a report: its findings, then other sections."""
    return {"schema": SCHEMA, "title": _title(report), "sections": [findings_section(report), *sections]}


def findings_section(report: Report) -> dict[str, Any]:
    """Return a report as a section: with the source around each finding, and what each code is about."""
    known = registry()
    codes = dict.fromkeys(finding.code for finding in report.findings)
    return {
        "kind": "findings",
        "report": json.loads(report.to_json()),
        "sources": [_source(finding) for finding in report.findings],
        "codes": {code: known[code].doc for code in codes if code in known},
    }


def cleaned(data: Any) -> JSON:
    """Return JSON data whose strings are printable, whose numbers are finite or strings that name them, and whose paths are short."""
    if isinstance(data, str):
        return clean(data, keep_newlines=True)
    if isinstance(data, float):
        return data if data - data == 0 else str(data)
    if isinstance(data, Mapping):
        short = {"path": shown_path(data["path"])} if "line" in data and isinstance(data.get("path"), str) else {}
        return {clean(key): cleaned(value) for key, value in {**data, **short}.items()}
    if isinstance(data, (list, tuple)):
        return [cleaned(value) for value in data]
    return data


def _title(report: Report) -> str:
    subjects = len(report.subjects)
    about = report.subjects[0].rpartition(".")[2] if subjects == 1 else f"{subjects} subjects"
    found = len(report.findings)
    return f"{TITLE}: {found} finding{'' if found == 1 else 's'} in {about}"


def _source(finding: Finding) -> list[list[int | str]]:
    place = finding.location
    if place is None or not os.path.isfile(place.path):
        return []
    lines = linecache.getlines(place.path)
    first = max(1, place.line - AROUND)
    return [[number, text.rstrip("\n")] for number, text in enumerate(lines[first - 1 : place.line + AROUND], first)]


@functools.cache
def _built(name: str) -> str:
    text = files("pullback.report").joinpath("_web", name).read_text(encoding="utf-8").strip()
    if "</script" in text or "</style" in text:
        raise ValueError(f"_web/{name} holds the end of its own element: build it anew with `make web`")
    return text


def _policy(script: str, style: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "worker-src blob:",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types pullback",
        )
    )


@functools.cache
def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
