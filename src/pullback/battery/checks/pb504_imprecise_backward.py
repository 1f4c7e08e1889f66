"""PB504."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from ...capture.source import text_of_class
from ...report.finding import Evidence, Finding
from .. import numeric, precision
from ..base import Check, Skipped, Unsupported
from ..evaluate import Evaluator, UserCodeError
from ..locate import trusted_eager
from ..precision import Loss, Place
from ..probe import Probe
from ..words import gradient_name

SERIOUS = 8.0
SLIGHT = 2.0
NO_STICK = "no measuring stick: autograd of the forward is not at hand, and there is no reference"


class ImpreciseBackward(Check):
    """In low precision backward loses more digits than PyTorch's own operators do.

    Why it matters:
        A sum over a thousand rows in bfloat16 stops growing at 256, and a softmax that is rounded before 1 is subtracted has no digits left: the
        formula is right, the gradient is not.

    How it is measured:
        The op runs in bfloat16 and in float32, at the sample, with 2048 rows, with rows of 1024 entries, and where the class that an index argument
        points at dominates. The error against float64 at the same rounded inputs, by norms, may not exceed 8 times that of autograd through the
        forward (or the reference) in the same precision; from 2 times on it is a note. It must show for two draws.

    Example:
        ``acc = torch.zeros(n, dtype=x.dtype)`` in backward, to which one row after another is added.

    Instead:
        Accumulate in float32, and round once, at the end.

    Limits:
        Without a measuring stick (autograd of the forward that agrees with differences, or a reference) nothing is claimed. Code that never speaks of
        dtypes, with a sample in float32 or float64, promises nothing about bfloat16: a loss there is a note.
    """

    code = "PB504"
    name = "imprecise-backward"
    severity = "warning"

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.declaration.deliberate or probe.nonlinearity is not None or probe.value.wrong:
            raise Skipped("the gradient is not the forward's derivative")
        if probe.repeats.forward_draws:
            raise Skipped("the op draws random numbers, which differ between dtypes")
        if probe.declaration.reference is None and all(trusted_eager(probe, leaf.path) is None for leaf in probe.exact.wanted):
            raise Skipped(NO_STICK)
        worst: dict[str, tuple[Loss, str]] = {}
        refusal: UserCodeError | None = None
        measured = False
        for place in precision.places(probe):
            for dtype in _dtypes(probe)[: 1 if place.long and measured else 2]:
                try:
                    found = _both(probe, place, dtype)
                except UserCodeError as error:
                    refusal = error
                    continue
                measured = measured or bool(found)
                for loss in found:
                    if loss.path not in worst or loss.ratio > worst[loss.path][0].ratio:
                        worst[loss.path] = (loss, place.name)
        for loss, where in worst.values():
            if SLIGHT <= loss.ratio < float("inf") and loss.error > 2 * torch.finfo(loss.dtype).eps:
                yield self._lost(probe, loss, where)
        if not measured:
            if refusal is not None:
                raise Unsupported(f"lower precision is refused: {refusal.short}")
            raise Skipped(NO_STICK)

    def _lost(self, probe: Probe, loss: Loss, where: str) -> Finding:
        dtype = str(loss.dtype).removeprefix("torch.")
        return self.finding(
            probe,
            f"{probe.backward_name} loses digits in {dtype}: {gradient_name(loss.path)} is {loss.ratio:.0f} times as wrong as PyTorch's own",
            severity="warning" if loss.ratio >= SERIOUS and not probe.case.invented and _promised(probe, loss.dtype) else "note",
            evidence=[
                Evidence(
                    f"{gradient_name(loss.path)} in {dtype} {where}: norm of the error over norm of the gradient",
                    f"{loss.error:.2g}",
                    f"{loss.eager:.2g} by autograd of the forward in {dtype}",
                    loss.error,
                    SERIOUS * loss.stick,
                    f"{SERIOUS:.0f} times the error of the same computation by PyTorch's operators in {dtype}",
                )
            ],
            cause="a sum, or a difference of nearly equal numbers, is taken in low precision",
            fix="Work in float32 inside backward (.float()), and round once, at the end.",
            path=loss.path,
            attachments=loss.picture(SERIOUS),
        )


def _promised(probe: Probe, dtype: torch.dtype) -> bool:
    """Return whether digits in this dtype are promised: it is float32, or the sample's own, or the code speaks of dtypes at all."""
    if dtype == torch.float32 or any(leaf.template.dtype in (torch.bfloat16, torch.float16) for leaf in probe.native.leaves):
        return True
    text = "" if probe.function is None else text_of_class(probe.function)
    return re.search(r"dtype|\bb?float(16|32)|\.float\(|\.half\(|custom_fwd|type_as", text) is not None


def _dtypes(probe: Probe) -> list[torch.dtype]:
    widest = max((leaf.template.dtype for leaf in probe.exact.wanted), key=lambda d: -torch.finfo(d).eps, default=torch.float64)
    return [d for d in (torch.bfloat16, torch.float32) if torch.finfo(d).eps >= torch.finfo(widest).eps]


def _both(probe: Probe, place: Place, dtype: torch.dtype) -> list[Loss]:
    """Return the smaller loss of two draws for each input; the larger of signed and constant cotangents, or constant ones alone for many rows."""
    generator = torch.Generator().manual_seed(probe.settings.seed + 0xDD)
    by_path: dict[str, list[list[Loss]]] = {}
    base, moved = place.evaluator, _jittered(place.evaluator, generator)
    for draw in (torch.ones_like,) if place.long else (torch.ones_like, precision.signed(generator)):
        pair = [precision.losses(probe, evaluator, dtype, draw) for evaluator in (base, moved)]
        for first, second in zip(*pair, strict=False):
            by_path.setdefault(first.path, []).append([first, second])
    return [max((min(pair, key=lambda loss: loss.ratio) for pair in pairs), key=lambda loss: loss.ratio) for pairs in by_path.values()]


def _jittered(place: Evaluator, generator: torch.Generator) -> Evaluator:
    def moved(x: torch.Tensor) -> torch.Tensor:
        a, b = (torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x) for _ in range(2))
        return x * (1 + 0.02 * a) + 0.01 * numeric.scale_of(x) * b

    values = {leaf.path: moved(leaf.template) for leaf in place.wanted if not leaf.template.is_complex()}
    new = place.variant(values)
    new.hold_everything = place.hold_everything
    return new
