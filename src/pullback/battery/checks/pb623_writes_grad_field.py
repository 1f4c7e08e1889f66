"""PB623."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ... import trees
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..evaluate import Outcome
from ..probe import Probe


class WritesGradField(Check):
    """backward writes into the `.grad` of an input.

    Why it matters:
        The engine accumulates what backward returns. What is written into ``.grad`` besides comes on top (the gradient counts twice), appears under
        ``torch.autograd.grad`` where nobody asked for it, and escapes hooks, gradient scaling and data parallelism.

    How it is measured:
        The gradient is taken with ``torch.autograd.grad``, which leaves ``.grad`` alone; afterwards no argument may have one.

    Example:
        ``y.backward(grad_output)`` inside backward, where y was computed from a saved input that was not detached; ``x.grad = ...``.

    Instead:
        ``torch.autograd.grad(y, x, grad_output)`` inside backward, on a detached copy of x, and return the result.

    Limits:
        Only arguments are looked at, and the parameters of modules among them: a note, since functions that recompute a module (reentrant
        checkpointing) mean it so, at the price of working only under ``.backward()``.
        Functions that refuse ``torch.autograd.grad`` are skipped.
    """

    code = "PB623"
    name = "writes-grad-field"
    severity = "error"
    needs = ("backward",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.native.through_backward:
            raise Skipped("gradients of this op can only be taken by .backward()")
        outcome = probe.native.forward()
        untouched = [(path, p) for path, p in _parameters(probe, outcome) if p.grad is None]
        probe.native.vjp(outcome, probe.cotangents(outcome))
        passed = zip(probe.native.leaves, outcome.arguments.tensors, strict=True)
        written = [leaf.path for leaf, t in passed if t.is_leaf and t.grad is not None]
        roots = zip(probe.native.wanted, outcome.arguments.roots, strict=True)
        written += [leaf.path for leaf, t in roots if t.grad is not None and leaf.path not in written]
        for path in (path for path, p in untouched if p.grad is not None):
            yield self.finding(
                probe,
                f"{probe.backward_name} writes into {path}.grad",
                severity="note",
                evidence=[Evidence(f"{path}.grad after torch.autograd.grad with respect to other inputs", "a tensor", "None")],
                cause="backward() is called inside backward on a graph that leads to the parameters of a module that was passed in",
                fix="Pass the parameters (*module.parameters()) to apply, and return their gradients, taken with torch.autograd.grad.",
            )
        for path in written:
            yield self.finding(
                probe,
                f"{probe.backward_name} writes into {path}.grad",
                evidence=[Evidence(f"{path}.grad after torch.autograd.grad(output, {path}, ...)", "a tensor", "None")],
                cause=f"backward() is called inside backward on a graph that leads to {path}, or {path}.grad is assigned",
                fix="torch.autograd.grad(...) on detached copies inside backward; return the gradients and leave .grad to the engine.",
            )


def _parameters(probe: Probe, outcome: Outcome) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The parameters of the modules among the arguments, which backward gives no gradient of their own."""
    names = probe.target.positional(len(outcome.arguments.args))
    for name, value in (*zip(names, outcome.arguments.args, strict=True), *outcome.arguments.kwargs.items()):
        for path, leaf in trees.leaves(value, name):
            if isinstance(leaf, torch.nn.Module):
                yield from ((f"{path}.{key}", p) for key, p in leaf.named_parameters())
