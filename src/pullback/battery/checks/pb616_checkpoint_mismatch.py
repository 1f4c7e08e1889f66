"""PB616."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped
from ..evaluate import BACKWARD_SEED, Evaluator, UserCodeError
from ..keeping import owner
from ..picture import differences, picture
from ..probe import Probe
from ..randomness import draws_outside_torch
from ..state import pristine
from ..tensors import copy_tensor, same
from ..words import gradient_name, told_apart

_READ_TWICE = "already unpacked once"
_LOST = "the attribute {} of a saved tensor is read; what hooks hand back has the same values and no attributes"
_MORE = "backward depends on more than what {} saves: the identity of a saved tensor, or state that forward leaves behind"


class CheckpointMismatch(Check):
    """With saved-tensor hooks (offloading, compression) or under checkpointing backward raises, or gives another gradient.

    Why it matters:
        Large models are trained with both; the op then fails, or trains differently, in exactly the setting that cannot be debugged.

    How it is measured:
        The same inputs and random state, with saved-tensor hooks that hand back a copy, and with the op inside ``torch.utils.checkpoint``, reentrant
        and not: gradients must be those of the plain call; where an object among the arguments makes forward return something else the second time,
        that is a note. Reading ``ctx.saved_tensors`` twice is a note: non-reentrant checkpointing refuses it.

    Example:
        ``weight.main_grad`` read from a saved tensor: the attribute is not there on a copy.

    Instead:
        Put what is not the tensor's values on ctx in forward; read ``ctx.saved_tensors`` once, into names.

    Limits:
        Checkpointing restores torch's random state alone: an op that draws from numpy, Python or a generator of its own is tried with hooks
        only.

    References:
        pytorch/pytorch#126676.
    """

    code = "PB616"
    name = "checkpoint-mismatch"
    severity = "error"
    compiler = True

    def run(self, probe: Probe) -> Iterator[Finding]:
        if _changes_inputs(probe.native):
            raise Skipped("forward changes its arguments, so that it cannot run twice on them")
        # A running average that many calls with the same inputs have brought to rest would hide that a call moves it.
        with pristine(probe.pristine, probe.target):
            finding = self._first(probe, probe.native)
        if finding is not None:
            yield finding

    def _first(self, probe: Probe, evaluator: Evaluator) -> Finding | None:
        reruns = not draws_outside_torch(evaluator)
        outcome = evaluator.forward()
        cotangents = probe.cotangents(outcome)
        expected = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
        for how, variant, hooks in _ways(evaluator, reruns=reruns):
            try:
                with hooks():
                    outcome = variant.forward()
                got = variant.vjp(outcome, [copy_tensor(c) for c in cotangents], seed=BACKWARD_SEED)
            except UserCodeError as error:
                finding = self._raised(probe, how, error)
            except ValueError:
                continue
            else:
                finding = self._wrong(probe, variant, how, got, expected)
            if finding is not None:
                return _of_forward(finding, owner(probe)) if _moves_arguments_on(evaluator) else finding
        return None

    def _raised(self, probe: Probe, how: str, error: UserCodeError) -> Finding | None:
        text = str(error.error)
        if _READ_TWICE in text:
            return self.finding(
                probe,
                f"{probe.backward_name} reads ctx.saved_tensors more than once, which non-reentrant checkpointing refuses",
                severity="note",
                evidence=[Evidence(how, got=error.short, expected="the gradient")],
                cause="each reading unpacks the saved tensors anew",
                certain=True,
                fix="x, w = ctx.saved_tensors once, at the top of backward",
            )
        if error.stage == "forward" or "none of the inputs have requires_grad" in text or "when use_reentrant" in text.lower():
            return None
        lost = isinstance(error.error, AttributeError)
        return self.finding(
            probe,
            f"{probe.backward_name} raises {how}",
            evidence=[Evidence(how, got=error.short, expected="the gradient, as without")],
            cause="a Python attribute is read from a saved tensor; hooks hand back another object with the same values" if lost else None,
            certain=lost,
            fix="read the attribute in forward and keep what it holds on ctx" if lost else "use nothing of a saved tensor but its values",
        )

    def _wrong(self, probe: Probe, evaluator: Evaluator, how: str, got: list[Tensor | None], expected: list[Tensor | None]) -> Finding | None:
        for leaf, a, b in zip(evaluator.wanted, got, expected, strict=True):
            if same(a, b) or probe.explained(leaf.path, "PB615"):
                continue
            got_shown, expected_shown, error, allowed = _compared(a, b)
            if error <= allowed:
                continue
            attributes = sorted({name for one in evaluator.leaves for name in vars(one.template)})
            return self.finding(
                probe,
                f"{probe.backward_name} gives another {gradient_name(leaf.path)} {how}",
                evidence=[Evidence(f"{gradient_name(leaf.path)} {how}", got_shown, expected_shown, error, allowed, tolerance.WHY_LINEAR)],
                cause=_LOST.format(attributes[0]) if attributes else _MORE.format(owner(probe)),
                fix=f"read {attributes[0]} in forward and keep what it holds on ctx"
                if attributes
                else "let backward use only the values in ctx.saved_tensors and what forward put on ctx",
                path=leaf.path,
                attachments={} if a is None or b is None or a.shape != b.shape else picture(gradient_name(leaf.path), differences(a, b), allowed),
            )
        return None


def _moves_arguments_on(evaluator: Evaluator) -> bool:
    """Whether forward returns something else once more for the same arguments, and the same for copies: an object among them moves on."""
    arguments = evaluator.arguments()
    try:
        once, again, anew = (evaluator.forward(given).outputs for given in (arguments, arguments, evaluator.arguments()))
    except UserCodeError:
        return False
    return not _alike(once, again) and _alike(once, anew)


def _alike(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    return len(a) == len(b) and all(same(x.detach(), y.detach()) for x, y in zip(a, b, strict=True))


def _of_forward(finding: Finding, name: str) -> Finding:
    """The finding as a note about a forward that moves an object among its arguments on, on purpose mostly: running statistics, a scale's history."""
    return replace(
        finding,
        severity="note",
        cause=f"{name}.forward returns something else when it runs again with the same arguments: an object among them moves on",
        fix="let forward leave its arguments as they are, or call it outside of what is checkpointed",
    )


def _compared(a: Tensor | None, b: Tensor | None) -> tuple[str, str, float, float]:
    """Return the entries, or kinds, in which two gradients differ most, by how much, and what is allowed."""
    if a is None or b is None or a.shape != b.shape:
        return _kind(a), f"{_kind(b)}, as without", float("inf"), 0.0
    if not bool(torch.isfinite(b).all()) or not b.numel():
        return "", "", 0.0, 0.0
    gap = torch.nan_to_num((a - b).detach().abs(), nan=torch.inf).flatten()
    at = int(gap.argmax())
    shown = told_apart(*(t.detach().flatten()[at].item() for t in (a, b)))
    return shown[0], f"{shown[1]}, as without", float(gap[at]), tolerance.linear(a.dtype, float(b.detach().abs().max()), a.numel())


def _kind(gradient: Tensor | None) -> str:
    return "None" if gradient is None else f"a tensor {list(gradient.shape)}"


def _ways(evaluator: Evaluator, *, reruns: bool) -> Iterator[tuple[str, Evaluator, Callable[[], AbstractContextManager[Any]]]]:
    yield "with saved-tensor hooks that copy", evaluator, _copying_hooks
    if not reruns:
        return
    # Reentrant checkpointing detaches the arguments, which takes Python attributes off them before forward sees them.
    attributes = any(vars(leaf.template) for leaf in evaluator.leaves)
    for reentrant in (False,) if attributes else (False, True):
        target = evaluator.target
        call = _checkpointed(target.call, reentrant)
        variant = evaluator.variant(target=replace(target, call=call, function=None))
        variant.through_backward = evaluator.through_backward or reentrant
        yield f"under {'reentrant' if reentrant else 'non-reentrant'} checkpointing", variant, contextlib.nullcontext


def _checkpointed(call: Callable[..., Any], reentrant: bool) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if reentrant:
            return checkpoint(lambda *a: call(*a, **kwargs), *args, use_reentrant=True)
        return checkpoint(call, *args, use_reentrant=False, **kwargs)

    return run


def _copying_hooks() -> AbstractContextManager[Any]:
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)


def _changes_inputs(evaluator: Evaluator) -> bool:
    arguments = evaluator.arguments()
    before = [copy_tensor(t) for t in arguments.tensors]
    evaluator.forward(arguments)
    return not all(map(same, (t.detach() for t in arguments.tensors), before))
