"""Suppressions in source comments: `# noqa: PB203` and `# pullback: ignore[PB203] reason`.

Nothing here is about lint alone: it takes source text and findings, and serves `check` as well.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..report.codes import UnknownCode, name_of, resolve
from ..report.finding import Finding, Location
from .nodes import walk

_IGNORE = re.compile(r"#\s*pullback:\s*ignore(?:\[(?P<codes>[^\]]*)\])?(?P<reason>.*)")
_NOQA = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Za-z]+[0-9]+(?:[,\s]+[A-Za-z]+[0-9]+)*))?", re.IGNORECASE)


@dataclass(eq=False)
class Suppression:
    """One comment.

    Args:
        line: Where it stands.
        first, last: The lines it covers: its own, or the whole class or function on whose head it stands.
        words: Codes, names or families, empty for all.
        codes: The codes they mean.
        reason: The text after the bracket.
        foreign: Whether it is a `noqa`, which other tools read too.
    """

    line: int
    first: int
    last: int
    words: tuple[str, ...]
    codes: frozenset[str]
    reason: str = ""
    foreign: bool = False
    unknown: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)

    def covers(self, finding: Finding) -> bool:
        """Return whether the comment silences a finding of its file."""
        if finding.location is None or not self.first <= finding.location.line <= self.last:
            return False
        return finding.code in self.codes if self.words else True


def suppressions(text: str, tree: ast.Module | None = None) -> list[Suppression]:
    """Return the suppressions in a file's text; `tree` saves parsing it again.

    A comment on the head of a class or function (its decorators included) covers the whole body.
    """
    if "pullback:" not in text and "noqa" not in text.lower():
        return []
    spans = _spans(tree if tree is not None else _parse(text))
    found = []
    for line, comment in _comments(text):
        match, foreign = _IGNORE.search(comment), False
        if match is None:
            match, foreign = _NOQA.search(comment), True
        if match is None:
            continue
        words = tuple(w for w in re.split(r"[,\s]+", match["codes"] or "") if w)
        own = tuple(w for w in words if not foreign or w.upper().startswith("PB"))
        if words and not own:
            continue
        codes, unknown = _resolve(own)
        first, last = spans.get(line, (line, line))
        reason = "" if foreign else match["reason"].strip()
        found.append(Suppression(line, first, last, own, codes, reason, foreign, unknown))
    return found


def apply(findings: Iterable[Finding], comments: list[Suppression]) -> list[Finding]:
    """Return the findings of one file that no comment covers; the comments remember what they silenced."""
    kept = []
    for finding in findings:
        covering = [c for c in comments if c.covers(finding)]
        for comment in covering:
            comment.used.add(finding.code)
        if not covering:
            kept.append(finding)
    return kept


def unused(path: str, subject: str, comments: list[Suppression], ran: frozenset[str]) -> list[Finding]:
    """Return a PB006 finding for each comment, or code in it, that silenced nothing although its code ran.

    Args:
        path: The file.
        subject: What to name as subject.
        comments: After `apply`.
        ran: Codes that were looked for in this run; others cannot be judged.
    """
    found = []
    for comment in comments:
        if not comment.words:
            if not comment.used and not comment.foreign:
                found.append(_unused(path, subject, comment, "suppresses nothing"))
            continue
        idle = [w for w in comment.words if w not in comment.unknown and (codes := resolve([w])) <= ran and not codes & comment.used]
        if idle:
            found.append(_unused(path, subject, comment, f"suppresses nothing: no {', '.join(idle)} here"))
        if comment.unknown and not comment.foreign:
            found.append(_unknown(path, subject, comment))
    return found


def _unknown(path: str, subject: str, comment: Suppression) -> Finding:
    message = f"`# pullback: ignore` names no code: {', '.join(comment.unknown)}"
    return Finding("PB005", name_of("PB005"), "error", "fail", subject, message, Location(path, comment.line), fix="correct the code in the comment")


def _unused(path: str, subject: str, comment: Suppression, what: str) -> Finding:
    spelled = "# noqa" if comment.foreign else "# pullback: ignore"
    return Finding(
        code="PB006",
        name=name_of("PB006"),
        severity="warning",
        status="fail",
        subject=subject,
        message=f"`{spelled}` {what}",
        location=Location(path, comment.line),
        fix="remove the comment or the code from its list",
    )


def _resolve(words: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    codes: frozenset[str] = frozenset()
    unknown = []
    for word in words:
        try:
            codes |= resolve([word])
        except UnknownCode:
            unknown.append(word)
    return codes, tuple(unknown)


def _comments(text: str) -> list[tuple[int, str]]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found.append((token.start[0], token.string))
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def _spans(tree: ast.Module) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    for node in walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            head = max(node.lineno, node.body[0].lineno - 1) if node.body[0].lineno > node.lineno else node.lineno
            for line in range(first, head + 1):
                spans.setdefault(line, (first, node.end_lineno or first))
    return spans


def read_text(path: Path) -> str:
    """Return a file's text as Python reads it, with anything undecodable replaced."""
    data = path.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding, "replace")
    except (SyntaxError, LookupError):
        return data.decode("utf-8", "replace")
