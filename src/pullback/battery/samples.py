"""The numbered samples of one subject: given by its author, else found by the search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..capture.calls import resolve_target
from ..capture.case import Case
from ..declare import Declaration, DeclarationError
from ..report.clean import clean
from ..report.codes import name_of, registry
from ..report.finding import CheckRun, Finding, Location
from ..report.report import Report
from ..trees import leaves
from .discover import CasesError, Loaded, Subject, cases_for, declared


def collect(loaded: Loaded, subject: Subject, seed: int) -> tuple[list[Case], Report | None]:
    """Return the samples to check, and a report of what was wrong with them or with the declaration.

    Without samples the report says why, and nothing counts as checked.
    """
    try:
        cases = cases_for(loaded, subject, seed)
        declaration = declared(loaded, subject)
    except CasesError as error:
        return [], tool_report(subject, error.code, str(error), Location(error.path or "", error.line or 1))
    except DeclarationError as error:
        return [], tool_report(subject, "PB005", str(error), _location(subject))
    if cases:
        return cases, _unreasoned(subject, [case.declaration for case in cases])
    from .searched import searched_cases

    cases, problem = searched_cases(subject.target, declaration, seed)
    return [replace(case, index=i) for i, case in enumerate(cases)], problem or _unreasoned(subject, [declaration])


def tool_report(subject: Subject, code: str, message: str, location: Location | None) -> Report:
    """Return a report with one finding of the tool's own, and nothing checked."""
    finding = Finding(code, name_of(code), registry()[code].severity, "skipped", subject.name, message, location)
    return Report((finding,), (CheckRun(code, subject.name, "skipped", _reason(message)),), (subject.name,))


def _reason(message: str) -> str:
    return message.partition(":")[0]


def _unreasoned(subject: Subject, declarations: list[Declaration]) -> Report | None:
    """Return the note that a deliberate gradient is declared without saying why."""
    if not any(d.deliberate and not d.reason.strip() for d in declarations):
        return None
    finding = Finding(
        "PB007",
        name_of("PB007"),
        registry()["PB007"].severity,
        "declared",
        subject.name,
        f"{subject.short} is declared as deliberately different from its derivative, without a reason",
        _location(subject),
        fix='add reason="…" to the declaration',
    )
    return Report((finding,), (), (subject.name,))


def _location(subject: Subject) -> Location | None:
    return Location(subject.path, subject.line or 1) if subject.path else None


def describe(case: Case) -> str:
    """Return a sample as one line: ``x: float64[3, 4], eps=1e-06``."""
    names = resolve_target(case.target).positional(len(case.args))
    parts = [
        f"{name}: {show_value(arg)}" if isinstance(arg, torch.Tensor) else f"{name}={show_value(arg)}"
        for name, arg in zip(names, case.args, strict=True)
    ]
    parts += [f"{name}={show_value(value)}" for name, value in case.kwargs.items()]
    return ", ".join(parts) or "no arguments"


def show_value(value: Any) -> str:
    """Return an argument in a few words: dtype and shape of a tensor, the value of a number, the name of an object's type."""
    tensors = [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
    if isinstance(value, torch.Tensor):
        layout = "" if value.layout != torch.strided or value.is_contiguous() else f" strides {tuple(value.stride())}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{layout}"
    if tensors:
        return f"{type(value).__name__} of {len(tensors)} tensors"
    if callable(value):
        return clean(getattr(value, "__name__", type(value).__name__), limit=40)
    if type(value).__module__ not in ("builtins", "torch"):
        return clean(type(value).__name__, limit=40)
    text = clean(value if not isinstance(value, str) else repr(value), limit=200)
    return text if len(text) <= 40 else f"{text[:38]}…"
