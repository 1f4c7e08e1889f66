"""Findings about values on searched inputs: is the Function wrong, or were its arguments outside of what it is meant for?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..report.finding import Finding
from ..trees import map_leaves
from . import numeric
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .search.domains import ladder
from .settled import right_when_settled, unsettled
from .tensors import differentiable
from .value import InputVerdict, ValueTest

VALUE_CODES = frozenset({"PB501", "PB502", "PB510"})
_TRIANGLES = ((torch.triu, 1), (torch.tril, -1))
DEPENDENT_CODES = VALUE_CODES | {"PB503", "PB625"}
_STATISTIC = re.compile(r"(^|_)(mean|mu|var|std|(r|inv)_?(std|var)|lse|logsumexp|max|norm|sum|softmax)(_|$)", re.IGNORECASE)


def guarded(probe: Probe, finding: Finding) -> Finding:
    """Return `finding` as it may be reported: an error about a value is a warning at most where the inputs may be to blame.

    Given and recorded inputs are taken at their word; a symmetric matrix of which forward reads one triangle is meant to be symmetric, and the
    gradient of a loop that ends before it comes to rest may be that of its limit. On searched
    inputs what the search itself may have brought about is a note; an invented callable, module or object makes a value finding a warning, and so do
    a loop of too few steps and a domain of one argument (non-negative, 0/1, rows that sum to one, symmetric, …) inside which the gradient is right.
    """
    if finding.code in DEPENDENT_CODES and finding.severity != "note" and (why := _up_to_the_search(probe, finding)):
        return replace(finding, severity="note", certain=False, cause=why)
    if finding.code not in DEPENDENT_CODES or finding.severity != "error":
        return finding
    place = finding.attachments.get("input")
    if finding.code in VALUE_CODES and isinstance(place, str) and _symmetric(probe, place):
        return replace(
            finding,
            severity="note",
            certain=True,
            message=f"{probe.backward_name_of(place)} returns a gradient for {place} that holds for symmetric matrices only",
            cause=f"forward reads one triangle of {place}, and backward shares the gradient between both: for symmetric changes it is right",
            fix=f"Nothing, if {place} is always symmetric; else return the gradient of the triangle that forward reads.",
        )
    if finding.code == "PB501" and isinstance(place, str) and (steps := right_when_settled(probe, place)):
        fix = "Nothing, if forward is meant to come to rest: take more steps; else differentiate through the steps that were taken."
        return replace(finding, severity="note", certain=True, cause=steps, fix=fix)
    if probe.case.origin != "searched":
        return finding
    if probe.case.invented:
        names = ", ".join(f"`{name}`" for name in probe.case.invented)
        return replace(finding, severity="warning", certain=False, cause=f"the gradient depends on what {names} is, which the search made up")
    if finding.code == "PB625":
        return replace(finding, severity="warning", certain=False)
    if finding.code not in VALUE_CODES:
        return finding
    steps = unsettled(probe)
    if steps:
        cause = f"forward stops after {steps} steps, before its result settles: the gradient of what it tends to holds only where it has"
        return replace(finding, severity="warning", certain=False, cause=cause)
    if finding.code == "PB502":
        return replace(finding, severity="warning", certain=False)  # the ladder holds at the sample, where the gradient is right anyway
    path = finding.attachments.get("input")
    if isinstance(path, str) and path in probe.value.inputs and probe.value.inputs[path].ok:
        return replace(finding, severity="warning", certain=False)  # wrong with another setting: the ladder says nothing of it either
    contract = contract_of(probe, path) if isinstance(path, str) else None
    if contract is None:
        return finding
    return replace(finding, severity="warning", certain=False, cause=f"right if {contract}: is that the contract?")


def _up_to_the_search(probe: Probe, finding: Finding) -> str:
    """Why a finding on searched inputs may be of the search's own making, so that it is not even a warning; empty where it is not.

    What an invented function does with grad_output is its own; several invented functions (one the inverse of the other, or its derivative) would
    have to fit together; an input that changes no output may count with other arguments; and statistics that are passed along belong to the rest.
    """
    if probe.case.origin != "searched":
        return ""
    names = " and ".join(f"`{name}`" for name in probe.case.invented)
    if finding.code == "PB503" and names:
        return f"the search made up {names}, through which grad_output may go"
    if finding.code in VALUE_CODES and len(probe.case.invented) > 1:
        return f"the search made up {names}, which have to fit together"
    path = finding.attachments.get("input")
    seen = probe.value.inputs.get(path) if isinstance(path, str) else None
    if finding.code == "PB501" and seen is not None and not seen.moves:
        return f"forward gives the same whatever {path} is: its gradient is injected, or it counts with other arguments than the search found"
    if finding.code == "PB501" and (derived := _derived_from_others(probe)):
        names = " and ".join(f"`{name}`" for name in derived)
        return f"right only if {names} depend on the other arguments, as statistics do that are passed along: backward returns no gradient for them"
    return ""


def _derived_from_others(probe: Probe) -> list[str]:
    """Floating arguments that are called statistics, on which forward depends and for which backward has no gradient."""
    found = []
    for leaf in probe.exact.leaves:
        if not differentiable(leaf.template) or leaf.wanted or not _STATISTIC.search(leaf.path):
            continue
        try:
            moved = leaf.template + numeric.scale_of(leaf.template) / 8
            counts = not all(map(torch.equal, probe.exact.values(), probe.exact.values({leaf.path: moved})))
        except UserCodeError:
            continue
        if counts:
            found.append(leaf.path)
    return found


def contract_of(probe: Probe, path: str) -> str | None:
    """Return the domain of an argument inside which the gradient for `path` is right: ``"`mask` is 0/1"``; None where there is none."""
    names = {f"args[{i}]": name for i, (name, _) in enumerate(probe.native.named[: len(probe.case.args)])}
    wrong = probe.value.inputs.get(path)
    share = math.inf if wrong is None else wrong.error / max(abs(wrong.got), abs(wrong.low), abs(wrong.high), 1e-300)
    for domain, place, function in ladder(probe.case, probe.target.name):
        evaluator = _inside(probe.exact, place, function)
        try:
            inside = ValueTest(evaluator, seed=probe.settings.seed).careful(path)
            if inside.ok and not inside.unseen > share / 2:
                return f"`{names.get(place, place)}` is {domain}"
        except (UserCodeError, RuntimeError, StopIteration):
            continue
    return None


def _symmetric(probe: Probe, path: str) -> bool:
    """Whether an argument is symmetric, forward reads one of its triangles, and the gradient is right for symmetric changes."""
    leaf = next((leaf for leaf in probe.exact.wanted if leaf.path == path), None)
    if leaf is None or leaf.template.dim() < 2 or leaf.template.shape[-1] < 2 or leaf.template.shape[-1] != leaf.template.shape[-2]:
        return False
    x = leaf.template
    if not torch.allclose(x, x.mH):
        return False
    try:
        here = probe.exact.values()
        unread = any(all(map(torch.equal, here, probe.exact.values({path: x + half(torch.ones_like(x), at)}))) for half, at in _TRIANGLES)
    except (UserCodeError, RuntimeError):
        return False
    return unread and right_for_symmetric(probe.exact, path, probe.settings.seed)


def right_for_symmetric(evaluator: Evaluator, path: str, seed: int) -> bool:
    """Return whether the gradient of a symmetric matrix is right for changes that keep it symmetric."""
    verdict = verdict_on_symmetric(evaluator, path, seed)
    return verdict is not None and bool(verdict.ok)


def verdict_on_symmetric(evaluator: Evaluator, path: str, seed: int) -> InputVerdict | None:
    """Return what the value test says of a symmetric matrix under changes that keep it symmetric; None where there is none, or the call fails."""
    x = next(leaf.template for leaf in evaluator.wanted if leaf.path == path)
    if x.dim() < 2 or x.shape[-1] < 2 or x.shape[-1] != x.shape[-2] or not torch.allclose(x, x.mH):
        return None
    names = {name: f"args[{i}]" for i, (name, _) in enumerate(evaluator.named[: len(evaluator.args)])}
    try:
        return ValueTest(_inside(evaluator, names.get(path, path), _mean), seed=seed).careful(path)
    except (UserCodeError, RuntimeError, StopIteration):
        return None


def _mean(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mH) / 2


def _inside(evaluator: Evaluator, place: str, function: Callable[[Tensor], Tensor]) -> Evaluator:
    """Return the op composed with `function` on the argument at `place`."""
    target = evaluator.target

    def call(*args: Any, **kwargs: Any) -> Any:
        def put(at: str, leaf: Any) -> Any:
            return function(leaf) if at == place else leaf

        return target.call(*map_leaves(put, args, "args"), **map_leaves(put, kwargs, "kwargs"))

    return evaluator.variant(target=replace(target, call=call))
