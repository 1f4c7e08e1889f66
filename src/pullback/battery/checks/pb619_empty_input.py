"""PB619."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..evaluate import Evaluator, Outcome, UserCodeError
from ..probe import Probe
from ..refusals import refuses, torch_at_fault
from ..sizes import Resizer, Symbol, symbols
from ..words import gradient_name

_KNOWN = {"torch.pixel_unshuffle": "pytorch/pytorch#192816", "PixelShuffleBackward0": "pytorch/pytorch#192816"}


class EmptyInput(Check):
    """backward raises, or returns garbage, for a batch of size 0 that forward takes.

    Why it matters:
        Empty batches are ordinary: no proposals in an image, no tokens routed to an expert, the last shard of a data set. They stop a
        training run after days, or put uninitialised memory into the gradient of a weight.

    How it is measured:
        The leading axis gets size 0, together with every equal size. If forward takes that, backward must; where all outputs are empty, every
        gradient must be zero.

    Example:
        ``grad.reshape(grad.shape[0], -1)`` (ambiguous for 0 rows); ``torch.empty_like(w)`` filled by a loop over rows.

    Instead:
        Write sizes out (``.reshape(n, w.numel())``), start sums from zeros, or refuse empty input in forward.

    Limits:
        A forward that refuses empty input is right. Where an operator of torch that backward calls returns a wrong shape for empty input, that is
        told, as a note.

    References:
        pytorch/pytorch#192816.
    """

    code = "PB619"
    name = "empty-input"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.explained("", "PB611"):
            raise Skipped("reads an argument's memory behind its back (PB611), so that other inputs cannot be right")
        batch = next((s for s in symbols(probe.exact) if s.batch), None)
        if batch is None:
            raise Skipped("no input has a batch axis")
        for symbol in dict.fromkeys((batch, batch.without_numbers())):
            evaluator = Resizer(probe.exact).resized(symbol, 0)
            if evaluator is None:
                continue
            try:
                outcome = evaluator.forward()
            except UserCodeError:
                continue
            if not outcome.carrying:
                return
            if not _vanishing(probe, outcome, symbol.size):
                raise Skipped("the batch size belongs together with others, which stay")
            if any(bool(torch.isnan(y.detach()).any()) for y in outcome.live):
                raise Skipped("forward of an empty batch is NaN (a mean over no rows)")
            try:
                gradients = evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
            except UserCodeError as error:
                if isinstance(error.error, IndexError) and any(_points_somewhere(leaf.template) for leaf in evaluator.leaves):
                    raise Skipped("an index still points into what is empty") from None
                if any(_runs(Resizer(probe.exact).resized(part, 0)) for part in symbol.parts()):
                    raise Skipped("sizes that are equal by chance would be empty together") from None
                if not refuses(error) and not symbol.numbers:
                    culprit = torch_at_fault(error, probe.exact, evaluator, symbol.size)
                    yield self._raises(probe, symbol, error) if culprit is None else self._torch(probe, symbol, error, culprit)
                return
            if all(y.numel() == 0 for y in outcome.live):
                yield from self._garbage(probe, symbol, [leaf.path for leaf in evaluator.wanted], gradients)
            return
        raise Skipped("forward refuses empty input")

    def _raises(self, probe: Probe, symbol: Symbol, error: UserCodeError) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} raises for an empty batch, which forward takes",
            evidence=[Evidence(f"{symbol.said} = 0", error.short, "a gradient of zeros")],
            cause="a size is worked out from the others with -1, or something is divided by or taken from an empty axis",
            fix="Write sizes out instead of -1, and let sums start from zeros.",
        )

    def _torch(self, probe: Probe, symbol: Symbol, error: UserCodeError, culprit: str) -> Finding:
        return self.finding(
            probe,
            f"{culprit}, which {probe.backward_name} uses, returns a wrong shape for an empty batch",
            severity="note",
            evidence=[Evidence(f"{symbol.said} = 0", error.short, "a gradient of zeros")],
            cause=f"a fault of torch's own operator, not of {probe.backward_name}",
            certain=True,
            fix="Return zeros for an empty batch before that operator is reached, or refuse empty input in forward.",
            upstream=_KNOWN.get(culprit),
        )

    def _garbage(self, probe: Probe, symbol: Symbol, paths: list[str], gradients: list[Tensor | None]) -> Iterator[Finding]:
        for path, gradient in zip(paths, gradients, strict=True):
            if gradient is None or gradient.numel() == 0 or not bool((gradient != 0).any()) or probe.deliberate(path):
                continue
            yield self.finding(
                probe,
                f"{probe.backward_name} returns a {gradient_name(path)} that is not zero for an empty batch",
                evidence=[Evidence(f"{symbol.said} = 0, all outputs are empty: {gradient_name(path)}", f"{float(gradient.abs().max()):.6g}", "0")],
                cause="the gradient is not initialised, or a mean over no rows is taken",
                fix="Start from torch.zeros_like, and treat an empty batch in means.",
                path=path,
            )


def _runs(evaluator: Evaluator | None) -> bool:
    if evaluator is None:
        return False
    try:
        outcome = evaluator.forward()
        return bool(outcome.carrying) and any(g is not None for g in evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live]))
    except UserCodeError:
        return False


def _points_somewhere(t: Tensor) -> bool:
    return t.numel() > 0 and not t.is_floating_point() and not t.is_complex() and t.dtype is not torch.bool


def _vanishing(probe: Probe, outcome: Outcome, size: int) -> bool:
    """Whether the axes of the outputs that are empty now were as long as the batch, or a multiple of it."""
    base = probe.baseline.outcome
    if base is None or len(base.outputs) != len(outcome.outputs):
        return True
    pairs = [(a, b) for y, z in zip(base.outputs, outcome.outputs, strict=True) if y.dim() == z.dim() for a, b in zip(y.shape, z.shape, strict=True)]
    return all(before % size == 0 for before, now in pairs if now == 0 and size)
