"""PB613."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ... import trees
from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import UserCodeError
from ..keeping import Origin, observe, origins, owner
from ..probe import Probe
from ..words import listed


@dataclass(frozen=True, slots=True)
class _Survival:
    before: bool
    after: bool
    collected: bool


class ReferenceCycle(Check):
    """An output stays alive after its last user is gone, because ctx holds it: output → graph node → ctx → output.

    Why it matters:
        Every call leaves its output, and all that hangs on it, behind until Python's cyclic collector runs, which counts objects and not gigabytes.
        A saved view of an output makes a cycle that the collector does not see: the memory is never freed.

    How it is measured:
        Weak references to the outputs are taken, everything is dropped with the collector off, once before and once after backward; then the
        collector runs on the objects of this call alone. Only outputs that ctx is seen to hold are reported, not those that the op's own cache keeps.

    Example:
        ``ctx.y = y``; ``ctx.save_for_backward(y.view(-1))``.

    Instead:
        ``ctx.save_for_backward(y)`` with the output itself, which torch keeps without a cycle; ``y.detach()`` where a view is wanted.

    References:
        pytorch/pytorch#25340, pytorch/pytorch#94990.
    """

    code = "PB613"
    name = "reference-cycle"
    severity = "warning"
    needs = ("backward",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        holding = [o for call in origins(probe) for o in call if _holds_output(o)]
        if not holding:
            return
        survival = _survival(probe)
        if not survival.before and not survival.after:
            return
        names = list(dict.fromkeys(o.kept.path if not o.kept.saved else o.kept.name for o in holding))
        verb = "is" if len(names) == 1 else "are"
        view = any(o.source == "view of an output" for o in holding)
        when = "also after backward" if survival.after else "until backward runs"
        freed = "the cyclic collector frees it" if survival.collected else "the cyclic collector does not free it: it leaks for good"
        yield self.finding(
            probe,
            f"{owner(probe)}.forward keeps {'a view of ' if view else ''}an output on ctx, a reference cycle",
            location=probe.forward_location,
            evidence=[Evidence(f"the output is alive when its last user is gone, {when}; {freed}", got="alive", expected="freed")],
            cause=f"{listed(names)} {verb} {'a view of the output' if view else 'the output'}: output → its graph node → ctx → output",
            certain=True,
            fix=_fix(holding[0], view),
        )


def _holds_output(origin: Origin) -> bool:
    return origin.source == "view of an output" or (origin.source == "output" and not origin.kept.saved)


def _fix(origin: Origin, view: bool) -> str:
    if view and origin.kept.saved:
        return "save the output itself with save_for_backward and take the view in backward, or save a view of output.detach()"
    return "ctx.save_for_backward(output) with the output itself: torch keeps a saved output without a cycle"


def _survival(probe: Probe) -> _Survival:
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        early, late = _references(probe, backward=False), _references(probe, backward=True)
        before, after = _alive(early), _alive(late)
        gc.collect()
        return _Survival(before, after, not _alive([*early, *late]))
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def _references(probe: Probe, *, backward: bool) -> list[weakref.ref[Tensor]]:
    outcome, calls = observe(probe)
    references = [weakref.ref(t) for call in calls for _, t in trees.leaves(call.returned) if isinstance(t, Tensor) and t.grad_fn is not None]
    if backward:
        with contextlib.suppress(UserCodeError):
            probe.native.vjp(outcome, probe.cotangents(outcome))
    return references


def _alive(references: list[weakref.ref[Tensor]]) -> bool:
    return any(reference() is not None for reference in references)
