"""Linting files into a `Report`: read, parse, facts, rules, suppressions."""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from .._collector import without_collector
from ..report.codes import name_of, registry
from ..report.finding import Evidence, Finding, Location
from ..report.report import CheckRun, Report
from . import rules, suppress
from .discover import excluded
from .facts import ClassFacts, classes
from .project import Project
from .rule import Hit, Rule
from .source import Source, Unreadable, parse

_METHOD = re.compile(rb"def\s+(?:forward|setup_context)\b")
_COMMENT = re.compile(rb"pullback:\s*ignore|noqa:[^\n]*PB", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Settings:
    """What to look for and where not.

    Args:
        codes: The rules to run.
        per_file: Glob pattern to codes that are ignored in matching files.
        exclude: Glob patterns of files that are not read when a folder is given.
        declared: `[tool.pullback.declare]`: qualified name to declaration.
    """

    codes: frozenset[str] = field(default_factory=lambda: default_codes())
    per_file: tuple[tuple[str, frozenset[str]], ...] = ()
    exclude: tuple[str, ...] = ()
    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """What linting one file gave."""

    findings: list[Finding] = field(default_factory=list)
    checks: list[CheckRun] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    suppressed: int = 0


@functools.cache
def all_rules() -> dict[str, Rule]:
    """Return one instance of every rule, by code."""
    found: dict[str, Rule] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(rules.__path__)):
        loaded = importlib.import_module(f"{rules.__name__}.{module}")
        for value in vars(loaded).values():
            if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == loaded.__name__:
                found[value.code] = value()
    return found


def default_codes() -> frozenset[str]:
    """Return the codes of the rules that run without being selected."""
    return frozenset(code for code, rule in all_rules().items() if rule.default)


def facts_of(path: Path, data: bytes | None = None, project: Project | None = None) -> list[ClassFacts]:
    """Return the facts of every Function class in a file.

    Raises:
        Unreadable: if the file cannot be parsed.
        OSError: if it cannot be read.
    """
    source = parse(path, path.read_bytes() if data is None else data)
    project = project or Project()
    project.add(source)
    return classes(source, project)


def lint(paths: Iterable[Path], settings: Settings | None = None) -> Report:
    """Lint files and return the report.

    A file that cannot be read becomes a PB001 finding, a rule that breaks a PB008 finding; the rest goes on.

    Args:
        paths: Files, as from `discover.files`.
        settings: What to look for; the default rules where None.

    Example:
        >>> report = lint([])
        >>> report.findings
        ()
    """
    settings = settings or Settings()
    with without_collector():
        total, count = _lint_all(paths, settings)
    environment = {"pullback": __version__, "files": count, "suppressed": total.suppressed, "rules": sorted(settings.codes)}
    return Report(tuple(total.findings), tuple(total.checks), tuple(dict.fromkeys(total.subjects)), environment)  # type: ignore[arg-type]


def _lint_all(paths: Iterable[Path], settings: Settings) -> tuple[Result, int]:
    project = Project()
    total, count = Result(), 0
    for path in paths:
        count += 1
        result = lint_file(path, settings, project)
        total.findings += result.findings
        total.checks += result.checks
        total.subjects += result.subjects
        total.suppressed += result.suppressed
    return total, count


def lint_file(path: Path, settings: Settings, project: Project | None = None, data: bytes | None = None) -> Result:
    """Lint one file; `data` in place of its content where given."""
    try:
        data = path.read_bytes() if data is None else data
        if not is_candidate(data):
            return Result()
        source = parse(path, data)
    except Unreadable as error:
        return Result([_unreadable(path, str(error), error.line)])
    except OSError as error:
        return Result([_unreadable(path, error.strerror or str(error), 1)])
    project = project or Project()
    project.add(source)
    return _lint_source(source, settings, project)


def is_candidate(data: bytes) -> bool:
    """Return whether a file may define a Function, from its text alone."""
    own = b"def backward" in data or b"def vjp" in data
    return own or b"register_autograd" in data or (b"Function" in data and _METHOD.search(data) is not None)


def _lint_source(source: Source, settings: Settings, project: Project) -> Result:
    result = Result()
    ignored = frozenset(c for pattern, codes in settings.per_file if excluded(source.path, [pattern]) for c in codes)
    chosen = [rule for code, rule in all_rules().items() if code in settings.codes - ignored]
    try:
        found = classes(source, project)
    except Exception as error:
        return Result([_broke(source, source.module, "PB008", error, source.tree)])
    for facts in found:
        _configure(facts, settings)
        result.subjects.append(facts.subject)
        for rule in chosen:
            _run(rule, facts, result)
        for method in facts.methods:
            method.record.clear()
    for facts in found:
        facts.siblings = []
    result.findings = _unique(result.findings)
    _suppress(source, settings.codes - ignored, result)
    result.findings.sort(key=lambda f: (f.location.line, f.location.column, f.code) if f.location else (0, 0, f.code))
    return result


def _configure(facts: ClassFacts, settings: Settings) -> None:
    for name, declaration in settings.declared.items():
        if facts.subject == name or facts.subject.endswith(f".{name}"):
            facts.declared |= set(declaration)


def _run(rule: Rule, facts: ClassFacts, result: Result) -> None:
    before = len(result.findings)
    try:
        for hit in rule.find(facts):
            result.findings.append(_finding(rule, facts, hit))
    except Exception as error:
        result.findings.append(_broke(facts.source, facts.subject, rule.code, error, facts.node))
        result.checks.append(CheckRun(rule.code, facts.subject, "error", f"{type(error).__name__}: {error}"))
        return
    result.checks.append(CheckRun(rule.code, facts.subject, "fail" if len(result.findings) > before else "pass"))


def _finding(rule: Rule, facts: ClassFacts, hit: Hit) -> Finding:
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        status="fail",
        subject=facts.subject,
        message=hit.message,
        location=_location(facts.source, hit.node),
        evidence=tuple(Evidence(text) for text in hit.seen),
        cause=hit.cause,
        certain=False,
        fix=hit.fix,
        edits=hit.edits,
        repro=f"pullback lint {facts.source.path} --select {rule.code}",
    )


def _location(source: Source, node: ast.AST) -> Location:
    line = getattr(node, "lineno", 1)
    return Location(str(source.path), line, getattr(node, "col_offset", 0) + 1, getattr(node, "end_lineno", None))


def _unique(findings: Sequence[Finding]) -> list[Finding]:
    seen: dict[tuple[str, Location | None], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.code, finding.location), finding)
    return list(seen.values())


def _suppress(source: Source, ran: frozenset[str], result: Result) -> None:
    if not result.findings and _COMMENT.search(source.data) is None:
        return
    text = source.data.decode("utf-8", "replace") if source.utf8 else suppress.read_text(source.path)
    comments = suppress.suppressions(text, source.tree)
    if not comments:
        return
    kept = suppress.apply(result.findings, comments)
    result.suppressed = len(result.findings) - len(kept)
    inside = [c for c in comments if not c.foreign or c.words]
    result.findings = kept + suppress.unused(str(source.path), source.module, inside, ran)


def _unreadable(path: Path, message: str, line: int) -> Finding:
    return Finding(
        "PB001",
        name_of("PB001"),
        registry()["PB001"].severity,
        "fail",
        str(path),
        f"{path} could not be read: {message}",
        Location(str(path), max(1, line)),
    )


def _broke(source: Source, subject: str, code: str, error: Exception, node: ast.AST) -> Finding:
    what = f"reading {subject}" if code == "PB008" else f"rule {code} on {subject}"
    return Finding(
        "PB008",
        name_of("PB008"),
        registry()["PB008"].severity,
        "error",
        subject,
        f"pullback failed in {what}: {type(error).__name__}: {error}",
        _location(source, node),
    )
