"""Check a recording: make each recorded call again and run the battery on it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..battery.evaluate import UserCodeError
from ..battery.outcomes import Found, Options, Progress, told
from ..battery.probe import Probe
from ..battery.session import environment, run_case
from ..battery.settings import Settings
from ..battery.targets import Target
from ..capture.calls import resolve_target
from ..capture.case import Case
from ..capture.recorded import FunctionRecord, Recording, Signature, StoredCall, Unreplayable, dtype_named, rebuild, unpack
from ..declare import Declaration, DeclarationError, declaration_of, read_configuration
from ..report import codes
from ..report.clean import clean
from ..report.finding import CheckRun, Evidence, Finding
from ..report.report import RAN, Report
from .as_recorded import AsRecorded, recorded_layouts
from .naming import is_own
from .resolve import NotFoundError, Resolver
from .storing import is_constant, moved_off

CASES = 6
"""Calls of one derivative that are checked: the first of each kind of layout, dtype and context, then others."""

LARGEST = 1 << 22
"""Elements of a call, together, beyond which it is not made again."""


def check_recording(
    recording: Recording,
    *,
    resolver: Resolver | None = None,
    modules: Sequence[str] = (),
    command: Callable[[str], str] | None = None,
    configured: dict[str, Any] | None = None,
    seed: int = 0,
    orders: int = 1,
    thorough: bool = False,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Report:
    """Return the report of the battery on every derivative of a recording.

    Args:
        recording: What a program did.
        resolver: Finds the code of a recording that was read from a file; without one the recorded objects themselves are called.
        modules: Packages whose derivatives are checked besides those of the project.
        command: Returns the command that shows the finding of a code again; None: that of Python.
        configured: `[tool.pullback.declare]`; None: that of the working directory.
        seed: Chooses directions and cotangents.
        orders: 2 where second derivatives must be right.
        thorough: Whether the slow tier runs too.
        select: Codes, names or families to run; empty: all.
        ignore: Codes, names or families to leave out.
    """
    declared = configured if configured is not None else read_configuration(Path.cwd())[1].get("declare", {})
    settings = Settings(seed=seed, orders=orders, thorough=thorough, select=codes.resolve(select), ignore=codes.resolve(ignore))
    start = time.perf_counter()

    def again(code: str) -> str:
        return f"run.report(select=[{code!r}], seed={seed})"

    reports = [
        _Checked(record, resolver, command or again, declared, settings).report() if is_own(record, modules) else _foreign(record)
        for record in recording.functions
        if record.calls
    ]
    report = Report(environment=environment(settings)).merge(*reports, _compiled(recording))
    samples: Any = {record.name: [text(s) for s in chosen(record)] for record in recording.functions}
    extra: dict[str, Any] = {"samples": samples, "seconds": round(time.perf_counter() - start, 3), "recorded": dict(recording.environment)}
    return replace(report, environment={**report.environment, **extra})


def _foreign(record: FunctionRecord) -> Report:
    package = record.module.partition(".")[0]
    reason = f"code of others: `--module {package}` checks it"
    return Report((), (CheckRun("PB004", record.name, "skipped", reason),), (record.name,))


def _compiled(recording: Recording) -> Report:
    """Return what was traced into compiled graphs, where nothing is wrapped."""
    seen = {record.name for record in recording.functions}
    names = [name for name in recording.compiled if name not in seen and not name.startswith("torch.")]
    runs = tuple(CheckRun("PB004", name, "skipped", "compiled: not recorded") for name in names)
    return Report(checks=runs, subjects=tuple(names))


def first_case(record: FunctionRecord, resolver: Resolver | None = None, *, seed: int = 0) -> Case | None:
    """Return the first recorded call of a derivative that can be made again, its code found by the resolver; None where there is none."""
    checked = _Checked(record, resolver, str, {}, Settings(seed=seed))
    for index, signature in enumerate(chosen(record)):
        with contextlib.suppress(NotFoundError, *_NOT_MADE):
            return checked.case(checked._target(), Declaration(), signature, index)
    return None


class _Checked:
    """One derivative: its code, its calls, and what the battery says of them."""

    def __init__(
        self,
        record: FunctionRecord,
        resolver: Resolver | None,
        command: Callable[[str], str],
        configured: dict[str, Any],
        settings: Settings,
    ) -> None:
        self.record = record
        self.resolver = resolver
        self.command = command
        self.configured = configured
        self.settings = settings

    def report(self) -> Report:
        try:
            target = self._target()
            declaration = declaration_of(target, configured=self.configured, subject=self.record.name)
        except NotFoundError as error:
            return self._skipped(str(error))
        except DeclarationError as error:
            return self._tool("PB005", str(error))
        progress = Progress(origin="recorded")
        for i, signature in enumerate(chosen(self.record)):
            progress.reports[i] = self._one(target, declaration, signature, i)
        if not progress.reports:
            return self._skipped(self._why_no_calls())
        return _without_known_skips(told(self._as_found(), Options(), progress))

    def _target(self) -> Any:
        if self.resolver is not None:
            return self.resolver.find(self.record)
        if self.record.live is None:
            raise NotFoundError(f"{self.record.name} is made anew for each structure of its arguments; such calls are counted only")
        return self.record.live

    def _why_no_calls(self) -> str:
        reasons = Counter(s.no_call or "it was not stored" for s in self.record.signatures)
        reasons.update({f"it ran only {where}": count for where, count in self.record.elsewhere.items()} if not self.record.signatures else {})
        return "; ".join(dict(reasons.most_common(3)))

    def _one(self, target: Any, declaration: Declaration, signature: Signature, index: int) -> Report:
        """Return the report on one recorded call, told as what the program did."""
        try:
            case = self.case(target, declaration, signature, index)
        except _NOT_MADE as error:
            return self._skipped(clean(error, limit=200))
        report = run_case(case, self.settings)
        if signature.gradients and not any(f.code == "PB604" for f in report.findings):
            report = report.merge(Report(tuple(recorded_layouts(case, signature, self.settings))))
        return replace(
            report,
            findings=tuple(self._told(f, signature, index) for f in report.findings),
            checks=tuple(replace(run, subject=self.record.name) for run in report.checks),
            subjects=(self.record.name,),
        )

    def case(self, target: Any, declaration: Declaration, signature: Signature, index: int) -> Case:
        """Return a recorded call as a sample.

        Raises:
            Unreplayable: where it cannot be made again, or another of `_NOT_MADE`.
        """
        args, kwargs = _arguments(signature.call, self.settings.seed)
        return Case(_runnable(target, args, kwargs, signature), args, kwargs, declaration, origin="recorded", index=index)

    def _told(self, finding: Finding, signature: Signature, index: int) -> Finding:
        stored = {t.how for t in signature.call.tensors} - {"whole"} if signature.call else set()
        moved = ["constant values moved a little"] if signature.call and any(is_constant(t) for t in signature.call.tensors) else []
        ways = [*sorted(_HOW[kind] for kind in stored), *moved]
        how = f" ({', '.join(ways)})" if ways else ""
        seen = Evidence(f"recorded call {index}: {text(signature)}{how}")
        severity = "note" if finding.code in _COSTS and _frozen(signature.call) else finding.severity
        return replace(finding, severity=severity, subject=self.record.name, evidence=(*finding.evidence, seen), repro=self.command(finding.code))

    def _as_found(self) -> Found:
        path = self.record.path or self.record.name
        return Found(Target(path, path), self.record.name, self.record.qualname, self.record.path or None, self.record.line or None)

    def _skipped(self, reason: str) -> Report:
        return Report((), (CheckRun("PB004", self.record.name, "skipped", clean(reason, limit=300)),), (self.record.name,))

    def _tool(self, code: str, message: str) -> Report:
        finding = Finding(code, codes.name_of(code), codes.registry()[code].severity, "fail", self.record.name, message)
        return Report((finding,), (CheckRun(code, self.record.name, "skipped", message),), (self.record.name,))


_NOT_MADE = (Unreplayable, ValueError, OverflowError, RuntimeError)
"""What is raised where a recorded call cannot be made again."""

_COSTS = ("PB901",)
"""What is in vain where an argument is frozen may be needed by other calls: no fault of the op."""


def _frozen(call: StoredCall | None) -> bool:
    return call is not None and any(not t.requires_grad and _carries_gradients(t.layout.dtype) for t in call.tensors)


def _carries_gradients(dtype: str) -> bool:
    return dtype_named(dtype).is_floating_point or dtype_named(dtype).is_complex


_HOW = {"sampled": "first rows only", "distribution": "values drawn anew from the recorded distribution"}


def _without_known_skips(report: Report) -> Report:
    """Leave out that one call could not be made again where another could."""
    if not any(run.status in RAN for run in report.checks):
        return report
    return replace(report, checks=tuple(run for run in report.checks if run.code != "PB004" or run.status != "skipped"))


def chosen(record: FunctionRecord) -> list[Signature]:
    """Return the signatures whose calls are made again: one of each kind first, those with a graph before those without.

    What an op is like is told by dtypes, numbers of dimensions, order of strides, who requires grad, autocast and checkpointing; not by sizes.
    """
    able = [s for s in record.signatures if s.call is not None and not too_large(s.call)]
    able = [s for s in able if s.grad] or able
    kinds: dict[Any, Signature] = {}
    for signature in able:
        kinds.setdefault(_kind(signature), signature)
    first = list(kinds.values())
    rest = [s for s in able if all(s is not f for f in first)]
    return [*first, *rest][:CASES]


def too_large(call: StoredCall) -> bool:
    """Whether a call is not made again because of its size."""
    return sum(torch.Size(t.dense_shape).numel() for t in call.tensors) > LARGEST


def _kind(signature: Signature) -> Any:
    call = signature.call
    tensors = call.tensors if call else []
    shapes = tuple((t.layout.dtype, len(t.layout.shape), _order(t.layout.strides), t.layout.packed, t.requires_grad, t.device) for t in tensors)
    layouts = frozenset(tuple(None if g is None else (g.packed, _order(g.strides)) for g in grads) for grads in signature.gradients)
    return (shapes, signature.autocast, layouts, "checkpoint" in signature.where)


def _order(strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda i: -strides[i]))


def text(signature: Signature) -> str:
    """Return a call as one line for the list of samples."""
    parts = [", ".join(signature.arguments) or "no arguments"]
    parts += [f"autocast {signature.autocast}"] if signature.autocast else []
    parts += list(signature.where)
    return "; ".join(parts)


def _arguments(call: StoredCall | None, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if call is None:
        raise Unreplayable("the call was not stored")
    made: dict[int, Any] = {}

    def tensor(number: int) -> Any:
        if number not in made:
            stored = call.tensors[number]
            made[number] = rebuild(moved_off(stored, seed + number) if is_constant(stored) else stored, seed=seed + number)
        return made[number]

    return tuple(unpack(arg, tensor) for arg in call.args), {name: unpack(value, tensor) for name, value in call.kwargs.items()}


def _runnable(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], signature: Signature) -> Any:
    """Return the target itself, or, where it only runs as the program ran it, the target under the recorded autocast."""
    if not signature.autocast:
        return target
    probe = Probe(Case(target, args, kwargs, origin="recorded"))
    try:
        probe.native.forward()
    except UserCodeError:
        return AsRecorded(resolve_target(target), signature.autocast)
    return target


__all__ = ["check_recording", "chosen", "first_case", "text"]
