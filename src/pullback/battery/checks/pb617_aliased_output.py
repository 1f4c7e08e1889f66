"""PB617."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ... import _compat
from ...capture.calls import Function, name_of, resolve_target
from ...capture.library import library_op
from ...capture.observed_calls import ForwardCall, observed_forward
from ...report.finding import Evidence, Finding, Severity
from ..base import Check
from ..evaluate import Evaluator, UserCodeError
from ..probe import Probe
from ..tensors import differentiable
from ..writes import writes

_COLLECTIVES = frozenset(
    [
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all_single",
        "broadcast",
        "get_world_size",
    ]
)

_REFUSED_ALIAS = "may not alias any inputs to this custom operator"


@dataclass(frozen=True, slots=True)
class Alias:
    """An output that shares memory with an argument of forward.

    Args:
        output: Its position among the outputs, or None for a single one.
        argument: The argument's name.
        kind: ``"itself"``, ``"same"`` (a view of the same elements), ``"view"`` (of some, or in another shape), ``"detached"`` (not known as one).
        needs_grad: Whether the argument requires grad.
    """

    output: int | None
    argument: str
    kind: str
    needs_grad: bool

    @property
    def said(self) -> str:
        return "its output" if self.output is None else f"output {self.output}"


class AliasedOutput(Check):
    """An output of forward is an input, or shares memory with one, and is not marked dirty.

    Why it matters:
        torch refuses a later in-place operation on such an output (``relu_``, ``+=``) with an error that blames the user; where the alias is hidden
        by ``detach``, the operation silently changes the input instead, and whoever saved it computes wrong gradients.

    How it is measured:
        What forward returns is looked at before torch wraps it, also with each bool argument flipped: is it an argument, or does it share
        an argument's memory? A custom operator, which torch refuses then, is called with 0 and 1 for each float as well.

    Example:
        ``return x`` where there is nothing to do; ``return x[:, :k]``; ``return x.reshape(-1)``.

    Instead:
        ``return x.clone()``; ``ctx.mark_dirty(x)`` where x was changed in place. In an identity op, ``x.view_as(x)`` says that the
        alias is meant: a note.

    Limits:
        A collective that returns its input in a world of one is a note, and so is an argument that needs no gradient, unless forward has filled it.
    """

    code = "PB617"
    name = "aliased-output"
    severity = "warning"
    needs = ()

    def run(self, probe: Probe) -> Iterator[Finding]:
        seen: set[tuple[type[Function], str]] = set()
        for evaluator, when in _variants(probe):
            try:
                calls, unchanged = _calls(probe, evaluator)
            except UserCodeError as error:
                if _REFUSED_ALIAS in str(error.error):
                    yield self._refused(probe, when, error)
                    return
                continue
            for call in calls:
                for alias in _aliases(call, unchanged):
                    if (call.function, alias.argument) not in seen:
                        seen.add((call.function, alias.argument))
                        yield self._aliased(probe, call.function, alias, when)

    def _refused(self, probe: Probe, when: str, error: UserCodeError) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name} returns one of its arguments, or a view of one{when}, which torch refuses in a custom operator",
            severity="error",
            location=probe.forward_location,
            evidence=[Evidence(f"the call{when}", error.short, "an output of its own")],
            cause="the schema says that outputs are new tensors, and the implementation hands an argument through where there is nothing to do",
            certain=True,
            fix="Return a copy (.clone()) there.",
        )

    def _aliased(self, probe: Probe, function: type[Function], alias: Alias, when: str) -> Finding:
        filled = alias.kind == "itself" and any(write.path == alias.argument for write in writes(probe).in_forward)
        meant = alias.kind == "same" or not (alias.needs_grad or filled) or _collective(function)
        severity: Severity = "note" if meant else "warning"
        what = {
            "itself": f"{alias.argument} itself",
            "same": f"{alias.argument} as a view",
            "view": f"a view of {alias.argument}",
            "detached": f"the memory of {alias.argument}, detached",
        }[alias.kind]
        after = "silently changes the argument" if alias.kind == "detached" else "raises"
        return self.finding(
            probe,
            f"{name_of(function)}.forward returns {what}{when}",
            severity=severity,
            location=probe.forward_location,
            evidence=[Evidence(f"{alias.said} shares memory with {alias.argument}{when}; it is not marked dirty")],
            cause=f"an in-place operation on the output {after}",
            certain=True,
            fix="Return a copy (.clone()), or ctx.mark_dirty(...) what was changed in place.",
        )


def _variants(probe: Probe) -> Iterator[tuple[Evaluator, str]]:
    yield probe.native, ""
    for name, value in probe.native.named:
        if isinstance(value, bool):
            yield probe.native.variant({name: not value}), f" with {name}={not value}"
        elif isinstance(value, float) and library_op(probe.target.call) is not None:
            for neutral in (0.0, 1.0):
                yield probe.native.variant({name: neutral}), f" with {name}={neutral}"


def _calls(probe: Probe, evaluator: Evaluator) -> tuple[list[ForwardCall], set[int]]:
    """The calls of forward, and the ids of tensors that torch handed out as they came in: those marked dirty."""
    handed_out: list[Tensor] = []
    with observed_forward(*probe.baseline.functions) as calls:
        handed_out = evaluator.forward().outputs
    return calls, {id(t) for t in handed_out} | {id(t) for call in calls for t in call.dirty}


def _aliases(call: ForwardCall, dirty: set[int]) -> Iterator[Alias]:
    names = resolve_target(call.function).positional(len(call.arguments))
    given = [(name, t) for name, t in zip(names, call.arguments, strict=True) if isinstance(t, Tensor) and id(t) not in dirty]
    for i, y in enumerate(call.outputs):
        if not isinstance(y, Tensor) or not differentiable(y) or y.numel() == 0:
            continue
        for name, t in given:
            if _compat.storage_id(t) == _compat.storage_id(y):
                yield Alias(i if isinstance(call.returned, tuple) else None, name, _kind(y, t), t.requires_grad)
                break


def _kind(y: Tensor, t: Tensor) -> str:
    if y is t:
        return "itself"
    if _compat.base_of(y) is None:
        return "detached"
    geometry = (y.shape, y.stride(), y.storage_offset(), y.dtype) == (t.shape, t.stride(), t.storage_offset(), t.dtype)
    return "same" if geometry else "view"


def _collective(function: type[Function]) -> bool:
    """Whether forward or backward, or a function of their module that they call, talks to other processes."""
    return any(name in _COLLECTIVES for method in (function.forward, function.backward) for name in _names(method, depth=2))


def _names(method: Any, depth: int) -> Iterator[str]:
    code, scope = getattr(method, "__code__", None), getattr(method, "__globals__", {})
    for name in code.co_names if code is not None else ():
        yield name
        if depth and hasattr(scope.get(name), "__code__"):
            yield from _names(scope[name], depth - 1)
