"""PB611."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ... import _compat, trees
from ...capture.calls import name_of
from ...capture.captured import Captured, captured_tensors
from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import Outcome
from ..keeping import shown
from ..probe import Probe
from ..tensors import differentiable


class CapturedTensor(Check):
    """forward or backward reads a tensor that was not passed to apply, so that it can get no gradient.

    Why it matters:
        A parameter that is used inside a Function without being an argument silently stays untrained; a global that happens to be the argument of
        one call gives wrong gradients in the next.

    How it is measured:
        Every operator call inside the methods is watched; a tensor whose memory is neither an argument's, nor a cotangent's, nor made by the methods
        was captured. If it requires grad and autograd has no gradient for it, or if it shares memory with an argument that was given, that is an
        error. A constant table is a note. What an inner ``backward()`` accumulates into ``.grad`` (checkpointing a module) counts as a gradient.

    Example:
        ``return x * self.weight`` in forward; a callable argument ``lambda v: torch.tanh(w * v)`` with w in its closure; a global read in backward.

    Instead:
        Pass it to ``apply`` and return its gradient; a constant is detached where it is made.

    Limits:
        Reads through numpy or raw pointers are not seen.

    References:
        rtqichen/torchdiffeq#94.
    """

    code = "PB611"
    name = "captured-tensor"
    severity = "error"
    needs = ("backward",)
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        if not probe.baseline.functions:
            return
        with captured_tensors(*probe.baseline.functions) as found:
            outcome = probe.native.forward()
            gets = _gradients(probe, outcome, found)
        given = {_compat.storage_id(t): path for name, value in probe.native.named for path, t in trees.leaves(value, name) if isinstance(t, Tensor)}
        tables = []
        for item in found:
            twin = given.get(_compat.storage_id(item.tensor))
            if item.requires_grad and differentiable(item.tensor):
                if not gets(item.tensor) and (item.name or item.method != "backward"):
                    yield self._no_gradient(probe, outcome, item, twin)
            elif twin is not None and differentiable(item.tensor):
                yield self._behind(probe, item, twin)
            elif item.name and not _hangs_on_arguments(item):
                tables.append(item)
        if tables:
            yield self._tables(probe, tables)

    def _no_gradient(self, probe: Probe, outcome: Outcome, item: Captured, twin: str | None) -> Finding:
        name = item.name or f"a tensor {shown(item.tensor)}"
        own = next((leaf.path for leaf, t in zip(probe.native.leaves, outcome.arguments.tensors, strict=True) if t is item.tensor), None)
        return self.finding(
            probe,
            f"{name_of(item.function)}.{item.method} reads {name}, which is not passed to apply and so gets no gradient",
            severity="warning" if probe.case.invented else "error",
            location=item.location,
            evidence=[Evidence(f"{name}: {shown(item.tensor)}, requires grad", got="no gradient", expected=f"a gradient for {name}")],
            cause=f"{name} is captured (a global, a closure or an attribute) instead of passed",
            certain=True,
            fix=f"pass {name} to apply as an argument, and return its gradient from backward",
            # What reads an argument behind its back is wrong, for every gradient, as soon as the argument is another.
            path=None if twin else own or name,
        )

    def _behind(self, probe: Probe, item: Captured, twin: str) -> Finding:
        name = item.name or "a tensor"
        return self.finding(
            probe,
            f"{name_of(item.function)}.{item.method} reads {name} itself, not the argument {twin}",
            severity="warning" if probe.case.invented else "error",
            location=item.location,
            evidence=[Evidence(f"{name} shares its memory with the {twin} that was given; a call with another {twin} still reads {name}")],
            cause=f"{name} is captured (a global, a closure or an attribute) instead of taken from the arguments",
            certain=True,
            fix=f"save {twin} with ctx.save_for_backward and read it from ctx.saved_tensors",
        )

    def _tables(self, probe: Probe, tables: list[Captured]) -> Finding:
        names = ", ".join(t.name for t in tables)
        return self.finding(
            probe,
            f"{name_of(tables[0].function)} reads {names}, not passed to apply: right as long as it is constant",
            severity="note",
            location=tables[0].location,
            evidence=[Evidence(f"{t.name}: {shown(t.tensor)}, does not require grad, read in {t.method}") for t in tables],
            fix="nothing, if it never changes and lives on the right device; else pass it to apply",
        )


def _hangs_on_arguments(item: Captured) -> bool:
    return "." in item.name and not item.name.startswith(name_of(item.function))


def _gradients(probe: Probe, outcome: Outcome, found: list[Captured]):
    """Run backward, and return a function that says whether a captured tensor got a gradient from it."""
    roots = outcome.arguments.roots
    own = {id(r) for r in roots}
    extra = [c.tensor for c in found if c.requires_grad and id(c.tensor) not in own and differentiable(c.tensor) and c.tensor.is_leaf]
    before = [(t, t.grad) for t in extra]
    for t in extra:
        t.grad = None
    roots.extend(extra)
    try:
        gradients = probe.native.vjp(outcome, probe.cotangents(outcome))
        got = {id(r) for r, g in zip(roots, gradients, strict=True) if g is not None} | {id(t) for t in extra if t.grad is not None}
    finally:
        for t, grad in before:
            t.grad = grad
        del roots[len(roots) - len(extra) :]
    return lambda tensor: id(tensor) in got
