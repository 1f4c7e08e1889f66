"""What a report comes to: counts per subject, reasons folded, and one line for all."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from ..clean import clean
from ..finding import SEVERITIES
from ..report import RAN, Report

_PASSED = ("pass", "declared", "waste")
_NAMES_SHOWN = 4
_NAMES_COUNTED = 8
_SAMPLES_SHOWN = 12


@dataclass(slots=True)
class Counts:
    """One row of the summary table."""

    subject: str
    passed: int = 0
    unsupported: int = 0
    skipped: int = 0
    found: Counter[str] = field(default_factory=Counter)


def table_rows(report: Report) -> list[Counts]:
    """Return one row for each subject that was looked at, in the report's order, under its shortest unique name."""
    names = short_names(_subjects(report))
    rows = {subject: Counts(name) for subject, name in names.items()}
    for run in report.checks:
        row = rows[run.subject]
        row.passed += run.status in _PASSED
        row.unsupported += run.status == "unsupported"
        row.skipped += run.status in ("skipped", "error")
    for finding in report.findings:
        if finding.subject in rows:
            rows[finding.subject].found[finding.severity] += 1
    return list(rows.values())


def short_names(subjects: Iterable[str]) -> dict[str, str]:
    """Return for each qualified name its shortest dotted ending that no other subject shares."""
    subjects = list(dict.fromkeys(subjects))
    names: dict[str, str] = {}
    for subject in subjects:
        parts = subject.split(".")
        endings = (".".join(parts[-n:]) for n in range(1, len(parts) + 1))
        names[subject] = next((e for e in endings if sum(s == e or s.endswith("." + e) for s in subjects) == 1), subject)
    return names


def folded_reasons(report: Report) -> Iterator[tuple[str, str]]:
    """Yield ``(label, text)``: each reason for which something did not run, once, with its codes and subjects.

    What concerns every subject that was checked is one text.
    """
    names = short_names(_subjects(report))
    everywhere = {names[run.subject] for run in report.checks if run.status in RAN}
    for status, label in (("unsupported", "unsupported"), ("skipped", "skipped"), ("error", "broke")):
        codes: dict[str, dict[str, None]] = defaultdict(dict)
        subjects: dict[str, dict[str, None]] = defaultdict(dict)
        for run in report.checks:
            if run.status == status and run.reason:
                codes[run.reason][run.code] = None
                subjects[run.reason][names[run.subject]] = None
        alone = len(names) == 1 and status == "skipped"
        common = [reason for reason in codes if alone or (len(names) > 1 and everywhere and everywhere <= set(subjects[reason]))]
        texts = ["; ".join(f"{_fold_codes(codes[reason])}: {reason}" for reason in common)] if common else []
        texts += [f"{_fold_codes(codes[reason])}{_where(subjects[reason], len(names))}: {reason}" for reason in codes if reason not in common]
        for text in texts:
            yield label, text
            label = ""


def _where(subjects: Collection[str], total: int) -> str:
    if len(subjects) > _NAMES_COUNTED:
        return f" ({len(subjects)} of {total})"
    return f" ({_fold(subjects)})" if total > 1 else ""


def searched_samples(report: Report) -> list[str]:
    """Return the samples that the search chose, one a line with its number; where they are many, how to see them."""
    samples, searched = report.environment.get("samples"), report.environment.get("searched")
    if not isinstance(samples, dict) or not isinstance(searched, list):
        return []
    names = short_names(_subjects(report))
    own = [(names.get(str(subject), str(subject)), samples.get(str(subject))) for subject in searched]
    lines = [f"{name} {i}  {sample}" for name, chosen in own if isinstance(chosen, list) for i, sample in enumerate(chosen)]
    if len(lines) > _SAMPLES_SHOWN:
        return [f"{len(lines)} samples of {len(own)} subjects; `pullback check … --list` shows them"]
    return lines


def smaller_tensors(report: Report) -> list[str]:
    """Return for each subject that was checked with smaller tensors than were given what they were, one a line."""
    found = report.environment.get("smaller")
    if not isinstance(found, dict):
        return []
    names = short_names(_subjects(report))
    own = [(name, found[subject]) for subject, name in names.items() if subject in found]
    lines = [f"{name}: {said}" if len(names) > 1 else str(said) for name, said in own]
    return [*lines, "(as given: --thorough, pb.check(..., thorough=True))"] if lines else []


def summary_line(report: Report) -> tuple[str, str]:
    """Return the verdict and what goes with it: subjects, time, tiers that did not run."""
    if not report.checks and not report.findings:
        return "nothing was checked", _skipped_tiers(report)
    counts = Counter(f.severity for f in report.findings)
    found = ", ".join(_plural(counts[s], s) for s in SEVERITIES if counts[s]) or "nothing found"
    return found, _coverage(report) + _time(report) + _suppressed(report) + _skipped_tiers(report)


def _coverage(report: Report) -> str:
    subjects = _subjects(report)
    if not subjects:
        return ""
    checked = {run.subject for run in report.checks if run.status in RAN and run.code != "PB001"}
    return f" · {len(checked)} of {len(subjects)} checked" if checked else " · nothing could be checked"


def _subjects(report: Report) -> list[str]:
    return list(dict.fromkeys([*report.subjects, *(run.subject for run in report.checks)]))


def _fold(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN + 1 else ""
    return ", ".join(names[:_NAMES_SHOWN] if more else names) + more


def _fold_codes(codes: Iterable[str]) -> str:
    """Return codes with runs of consecutive ones written as a range: ``PB601–PB604, PB703``."""
    codes = sorted(codes)
    runs: list[list[str]] = []
    for code in codes:
        if runs and code[2:].isdigit() and runs[-1][-1][2:].isdigit() and int(code[2:]) == int(runs[-1][-1][2:]) + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]}–{run[-1]}" for run in runs)


def _time(report: Report) -> str:
    measured = report.environment.get("seconds")
    seconds = measured if isinstance(measured, (int, float)) else sum(run.seconds for run in report.checks)
    return f" · {seconds:.1f} s" if seconds else ""


def _suppressed(report: Report) -> str:
    count = report.environment.get("suppressed")
    return f" · {count} suppressed" if isinstance(count, int) and count else ""


def _skipped_tiers(report: Report) -> str:
    tiers = report.environment.get("skipped_tiers")
    return f" · not run: {', '.join(clean(tier) for tier in tiers)}" if isinstance(tiers, list) and tiers else ""


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def shown_path(path: str) -> str:
    """Return the path relative to the working directory where it lies below it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return path
    return path if relative.startswith("..") else relative
