"""What an op does when one of its tensor arguments is laid out in memory in another way, with the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from . import layouts
from .compare import Gap, by_rounding, gap_between, gradient_scales, largest_gap
from .evaluate import Evaluator, Leaf, Outcome, UserCodeError
from .locate import trusted_eager
from .probe import Probe
from .refusals import inside_torch
from .tensors import copy_tensor, differentiable

Verdict = Literal["same", "refused", "raises", "wrong-output", "wrong-gradient", "torch-too", "unknown"]
LayOut = Callable[[str, Tensor], Tensor]
LIMIT = 8
"""How many tensor arguments are tried; a module with hundreds of parameters learns nothing new from the ninth."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One argument in one layout.

    Args:
        path: The argument.
        shown: The layout with shape and strides.
        verdict: What happened.
        error: What forward (refused) or backward (raises) raised.
        gap: The difference from the argument as given.
    """

    path: str
    shown: str
    verdict: Verdict
    error: UserCodeError | None = None
    gap: Gap | None = None


def trials(probe: Probe) -> list[Trial]:
    """Return one trial for each tensor argument and layout; computed once."""
    return probe.once("input_layouts", lambda: list(_run(probe)))


def _run(probe: Probe) -> Iterator[Trial]:
    evaluator = probe.exact
    tried = [leaf for leaf in evaluator.leaves if leaf.template.layout is torch.strided and leaf.template.numel() > 1][:LIMIT]
    for leaf in tried:
        for layout in layouts.LAYOUTS:
            if layout.lazy or not _tells(leaf.template, layout.apply(layout.values(leaf.template))):
                continue
            yield _try(probe, leaf, layout)


def _tells(given: Tensor, laid_out: Tensor) -> bool:
    """Whether a layout is another one. One number expanded to all elements is left out: torch's own median and batch_norm read past it (2.13)."""
    return (laid_out.stride() != given.stride() or laid_out.storage_offset() != 0) and any(laid_out.stride())


def _try(probe: Probe, leaf: Leaf, layout: layouts.Layout) -> Trial:
    evaluator, path = probe.exact, leaf.path
    values = layout.values(leaf.template)
    shown = layout.describe([layout.apply(values)])

    def lay_out(at: str, tensor: Tensor) -> Tensor:
        if at != path:
            return tensor
        new = layout.apply(tensor)
        return torch.nn.Parameter(new, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else new

    changed = {} if values is leaf.template else {path: values}
    try:
        before = evaluator.forward(values=changed)
        cotangents = probe.cotangents(before)
        expected = _gradients(evaluator, before, cotangents)
    except UserCodeError:
        return Trial(path, shown, "unknown")
    try:
        after = evaluator.forward(values=changed, layout=lay_out)
    except UserCodeError as error:
        return Trial(path, shown, "refused", error)
    gap = _output_gap(before, after)
    if gap is not None:
        chance = by_rounding(probe, gap, cotangents, output=True, values=changed)
        return Trial(path, shown, "unknown" if chance else "wrong-output", gap=gap)
    if len(after.live) != len(before.live):
        return Trial(path, shown, "unknown")
    try:
        got = _gradients(evaluator, after, cotangents)
    except UserCodeError as error:
        if "written-to tensor refers to a single memory location" in str(error.error):
            return Trial(path, shown, "refused", error)
        return Trial(path, shown, "unknown" if inside_torch(error) else "raises", error)
    gap = largest_gap([w.path for w in evaluator.wanted], got, expected, gradient_scales(probe))
    if gap is None or probe.repeats.backward_draws or by_rounding(probe, gap, cotangents, values=changed):
        return Trial(path, shown, "same")
    return Trial(path, shown, "torch-too" if _torch_too(probe, gap.path, changed, lay_out, cotangents) else "wrong-gradient", gap=gap)


def _torch_too(probe: Probe, path: str, values: dict[str, Tensor], lay_out: LayOut, cotangents: list[Tensor]) -> bool:
    """Whether autograd of the forward, right as given, is wrong for this layout as well: then one of torch's own operators is at fault."""
    truth = trusted_eager(probe, path)
    if truth is None:
        return False
    index = next(i for i, leaf in enumerate(truth.wanted) if leaf.path == path)
    try:
        before = _gradients(truth, truth.forward(values=values), cotangents)[index]
        after = _gradients(truth, truth.forward(values=values, layout=lay_out), cotangents)[index]
    except (UserCodeError, ValueError):
        return False
    return gap_between(path, after, before, gradient_scales(probe).get(path, 0.0)) is not None


def _gradients(evaluator: Evaluator, outcome: Outcome, cotangents: list[Tensor]) -> list[Tensor | None]:
    return evaluator.vjp(outcome, [copy_tensor(c.contiguous()) for c in cotangents])


def _output_gap(before: Outcome, after: Outcome) -> Gap | None:
    if before.paths != after.paths:
        return None
    pairs = zip(before.paths, after.outputs, before.outputs, strict=True)
    gaps = [gap_between(path, a, b, _scale(b)) for path, a, b in pairs if a.shape == b.shape]
    return next((g for g in gaps if g is not None), None)


def _scale(tensor: Tensor) -> float:
    return 1.0 if differentiable(tensor) else 0.0
