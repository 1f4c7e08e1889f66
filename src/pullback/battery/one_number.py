"""The same call with an argument of one number as a tensor without dimensions instead of one of shape [1], and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .evaluate import UserCodeError
from .probe import Probe
from .refusals import blames_torch, refuses


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The call with one argument in another shape, in which forward gives the same and backward raises.

    Args:
        path: The argument.
        shape: Its shape there.
        usual: Its shape in the sample.
        error: What backward raises.
    """

    path: str
    shape: tuple[int, ...]
    usual: tuple[int, ...]
    error: UserCodeError


def refused_shapes(probe: Probe) -> Iterator[Reshaped]:
    """Yield where backward raises although forward returns the same, bit for bit: both shapes are usual for a learned scale."""
    base = probe.baseline
    if base.outcome is None or base.backward_error is not None:
        return
    for leaf in probe.native.wanted:
        if leaf.template.numel() != 1 or leaf.template.dim() > 1:
            continue
        shape = () if leaf.template.dim() else (1,)
        evaluator = probe.native.variant({leaf.path: leaf.template.reshape(shape)})
        try:
            outcome = evaluator.forward()
            if [t.shape for t in outcome.outputs] != [t.shape for t in base.outcome.outputs] or not all(
                map(torch.equal, outcome.outputs, probe.native.forward().outputs)
            ):
                continue
            evaluator.vjp(outcome, probe.cotangents(outcome))
        except UserCodeError as error:
            if error.stage == "backward" and not refuses(error) and not blames_torch(error):
                yield Reshaped(leaf.path, shape, tuple(leaf.template.shape), error)
