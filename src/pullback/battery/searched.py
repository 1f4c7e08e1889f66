"""Sample inputs of a Function for which none are given, as cases ready to check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..authoring.keeping import Sample
from ..capture.calls import resolve_target
from ..capture.case import Case
from ..declare import Declaration, DeclarationError
from ..report import codes
from ..report.clean import clean
from ..report.finding import CheckRun, Evidence, Finding
from ..report.report import Report
from .search import find_inputs
from .state import Snapshot


def searched_cases(target: Any, declaration: Declaration, seed: int) -> tuple[list[Case], Report | None]:
    """Return the samples found for `target` with its declaration laid on them, or a report that says why there are none (PB004).

    Args:
        target: A Function subclass, its apply, or an op with a `function`.
        declaration: What the author declares.
        seed: Chooses the values.
    """
    resolved = resolve_target(target)
    if declaration.samples is not None:
        return [replace(c, declaration=_over(declaration, c.declaration), index=i) for i, c in enumerate(_sampled(target, declaration))], None
    function = resolved.function or resolved.described
    if function is None:
        return [], _nothing(target, "sample inputs are searched for Functions only; pass inputs for a callable", "")
    found_in = Snapshot(resolved)
    result = find_inputs(function, seed=seed)
    found_in.restore()
    found = list(result.cases)
    if result.severed is not None:
        found.append(replace(result.severed, only=("PB509",)))
    if "proved" in result.flags and result.attempted is not None:
        found.append(result.attempted)
    if found:
        return [replace(c, target=target, declaration=declaration, index=i) for i, c in enumerate(found)], None
    return [], _nothing(target, result.last_error or result.reason or "no call runs", result.skeleton)


def _sampled(target: Any, declaration: Declaration) -> list[Case]:
    drawn = (declaration.samples() if declaration.samples is not None else None) or ()
    return [_as_case(target, declaration, item) for item in drawn]


def _as_case(target: Any, declaration: Declaration, item: Any) -> Case:
    if isinstance(item, Case):
        return item
    if isinstance(item, tuple):
        return Case(target, item, {}, declaration, origin="case")
    if isinstance(item, Sample):
        return Case(target, item.args, dict(item.kwargs), declaration, origin="case")
    name = resolve_target(target).name
    raise DeclarationError(f"the samples of {name} yielded a {type(item).__name__}; they must yield pb.sample(*arguments) or a tuple of arguments")


def _over(base: Declaration, own: Declaration) -> Declaration:
    return base if own == Declaration() else own


def _nothing(target: Any, reason: str, skeleton: str) -> Report:
    resolved = resolve_target(target)
    finding = Finding(
        "PB004",
        codes.name_of("PB004"),
        "note",
        "skipped",
        resolved.subject,
        f"no sample inputs for {resolved.name}: it was not checked",
        resolved.location,
        evidence=(Evidence("the search's last error", got=clean(reason, limit=500)),),
        fix=f"Put this into the file and mend the call:\n{skeleton}" if skeleton else "Pass inputs: pb.check(op, (x, ...)).",
    )
    run = CheckRun("PB004", resolved.subject, "skipped", "no inputs found")
    return Report((finding,), (run,), (resolved.subject,))
