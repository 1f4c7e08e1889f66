"""What the checks for CUDA devices share."""

from __future__ import annotations

import torch
from torch import Tensor

from ..report.clean import clean
from .base import Skipped, Unsupported
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .tensors import copy_tensor

MIXED = ("Expected all tensors to be on the same device", "at least two devices")


def require_cuda(probe: Probe) -> torch.device:
    """Return the CUDA device that is checked.

    Raises:
        Skipped: where there is none, or another kind was asked for.
    """
    if not torch.cuda.is_available():
        raise Skipped("no CUDA device")
    device = torch.device(probe.settings.device or "cuda")
    if device.type != "cuda":
        raise Skipped(f"needs a CUDA device: --device cuda (got {device})")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


def on_cuda(probe: Probe) -> Evaluator:
    """Return the call with its tensors on the CUDA device.

    Raises:
        Skipped: where there is none, or the call does not run or repeat there.
    """
    evaluator = probe.native.to(require_cuda(probe))
    if probe.baseline.forward_error is not None or probe.baseline.backward_error is not None:
        raise Skipped("does not run on these inputs")
    if probe.repeats.forward_draws or probe.repeats.backward_draws or not (probe.repeats.forward and probe.repeats.backward):
        raise Skipped("draws random numbers, or does not repeat bit for bit")
    return evaluator


def both(evaluator: Evaluator, cotangents: list[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return outputs and gradients on the CPU, for cotangents that lie anywhere.

    Raises:
        UserCodeError: if the op raises.
        Unsupported: if it has other outputs than there are cotangents.
    """
    outcome = evaluator.forward()
    if len(outcome.live) != len(cotangents):
        raise Unsupported("has other outputs here than at the base inputs")
    found = evaluator.vjp(outcome, [copy_tensor(c.detach().to(y.device), like=y) for c, y in zip(cotangents, outcome.live, strict=True)])
    return [y.detach().cpu() for y in outcome.live], [None if g is None else g.detach().cpu() for g in found]


def mixes_devices(error: BaseException) -> bool:
    """Return whether an operator was given tensors of several devices."""
    cause = error.error if isinstance(error, UserCodeError) else error
    return any(mark in str(cause) for mark in MIXED)


def refusal(error: BaseException) -> Unsupported:
    """Return what says that the op does not run there."""
    return Unsupported(clean(error, limit=200))
