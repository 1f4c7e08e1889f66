"""PB805."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import _compat
from ...report.clean import clean
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped, Unsupported
from ..compare import Gap, largest_gap
from ..evaluate import Evaluator, Outcome, UserCodeError
from ..keeping import owner
from ..probe import Probe
from ..ranks import RankError, on_ranks, with_group
from ..tensors import copy_tensor, differentiable
from ..words import gradient_name

_MIXED = "mixed torch.Tensor and DTensor"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one process saw under one placement: a difference, in outputs or gradients, or what was raised.

    Args:
        placement: ``"Shard(0)"`` or ``"Replicate()"``.
        stage: ``"forward"`` or ``"backward"``.
        gap: The difference from plain tensors.
        error: What was raised.
        unused: Whether what was raised is the zero that torch makes for an output without a gradient.
    """

    placement: str
    stage: str = ""
    gap: Gap | None = None
    error: str = ""
    unused: bool = False


class DTensorMismatch(Check):
    """On DTensors the op gives other outputs or gradients than on plain tensors.

    Why it matters:
        FSDP2 and tensor parallelism hand DTensors to the op; nothing warns when its result is that of one shard alone.

    How it is measured:
        With ``--distributed N``, in N gloo processes: all inputs sharded along their first dimension, and all replicated; outputs and gradients,
        gathered, against those of plain tensors. Ops that raise on DTensors, or return plain tensors, are unsupported.

    Example:
        ``x.to_local()`` in forward, a sum over the shard, and ``DTensor.from_local`` of it.

    Instead:
        Compute on the DTensor itself, or say what a local computation means by ``torch.distributed.tensor.experimental.local_map`` or
        ``register_sharding``.

    Limits:
        Where an output is not used, torch hands backward a plain zero for it, which does not mix with DTensors: a note that names the torch issue.

    References:
        pytorch/pytorch#173123.
    """

    code = "PB805"
    name = "dtensor-mismatch"
    severity = "error"
    needs = ("backward", "repeats")
    stage = 4
    tier = "distributed"

    def run(self, probe: Probe) -> Iterator[Finding]:
        count = probe.settings.distributed
        if count < 2:
            raise Skipped("needs several processes: --distributed 2")
        if probe.repeats.forward_draws or probe.repeats.backward_draws:
            raise Skipped("draws random numbers, which DTensor orders otherwise")
        _compat.import_dtensor()
        cotangents = probe.baseline.cotangents
        try:
            everyone: list[list[_Seen]] = on_ranks(count, lambda rank: _compare(probe.native, cotangents, count))
        except RankError as error:
            raise Unsupported(clean(error, limit=300)) from None
        seen = everyone[0]
        wrong = next((s for ranks in zip(*everyone, strict=True) for s in ranks if s.gap is not None), None)
        if wrong is not None:
            yield self._wrong(probe, wrong, count)
            return
        unused = next((s for s in seen if s.unused), None)
        if unused is not None:
            yield self._unused(probe, unused)
        elif all(s.error for s in seen):
            raise Unsupported(seen[0].error)

    def _wrong(self, probe: Probe, seen: _Seen, count: int) -> Finding:
        gap = seen.gap
        assert gap is not None
        what = gradient_name(gap.path) if seen.stage == "backward" else "the output" if gap.path == "output" else gap.path
        return self.finding(
            probe,
            f"{owner(probe)}.{seen.stage} on DTensors gives another {what.removeprefix('the ')} than on plain tensors",
            location=probe.forward_location if seen.stage == "forward" else probe.backward_location,
            evidence=[gap.evidence(f"{count} processes, every input {seen.placement}: {what} differs")],
            attachments=gap.picture(what.removeprefix("the ")),
            cause="it computes with one shard what needs them all",
            fix="compute on the DTensor itself, or declare what the local computation means: local_map or register_sharding",
            path=gap.path if seen.stage == "backward" else None,
        )

    def _unused(self, probe: Probe, seen: _Seen) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} raises on DTensors where an output is not used",
            severity="note",
            status="unsupported",
            evidence=[Evidence(f"every input {seen.placement}, one output without a gradient", got=seen.error, expected="a gradient")],
            cause="torch gives backward a plain zero for the unused output",
            certain=True,
            fix="ctx.set_materialize_grads(False), and treat None as no contribution",
            upstream="pytorch/pytorch#173123",
        )


def _compare(given: Evaluator, cotangents: list[Tensor], count: int) -> list[_Seen]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    evaluator = with_group(given)
    mesh = init_device_mesh("cpu", (count,))
    plain = evaluator.forward()
    gradients = evaluator.vjp(plain, [copy_tensor(c) for c in cotangents])
    return [_under(evaluator, mesh, placement, plain, gradients, cotangents) for placement in (Shard(0), Replicate())]


def _under(evaluator: Evaluator, mesh, placement, plain: Outcome, gradients: list[Tensor | None], cotangents: list[Tensor]) -> _Seen:
    name = str(placement) if "(" in str(placement) else repr(placement)
    try:
        outcome = _on_dtensors(evaluator, mesh, placement)
        found = _gap(outcome.paths, [y.detach() for y in outcome.live], [y.detach() for y in plain.live])
        if found is not None:
            return _Seen(name, "forward", found)
        got = evaluator.vjp(outcome, _placed_like(outcome, cotangents, mesh))
        found = _gap([leaf.path for leaf in evaluator.wanted], got, gradients)
        if found is not None:
            return _Seen(name, "backward", found)
        return _one_used(evaluator, mesh, placement, cotangents, name) if len(cotangents) > 1 else _Seen(name)
    except UserCodeError as error:
        zeros = _MIXED in str(error.error) and error.stage == "backward" and len(cotangents) < len(plain.outputs)
        return _Seen(name, error.stage, error=clean(error.short, limit=200), unused=zeros)
    except (_NotPlaced, RuntimeError, NotImplementedError, ValueError) as error:
        return _Seen(name, "forward", error=clean(f"{type(error).__name__}: {error}", limit=200))


def _one_used(evaluator: Evaluator, mesh, placement, cotangents: list[Tensor], name: str) -> _Seen:
    outcome = _on_dtensors(evaluator, mesh, placement)
    first = _placed_like(outcome, cotangents, mesh)[:1]
    try:
        evaluator.vjp(outcome, [*first, *([None] * (len(cotangents) - 1))])
    except UserCodeError as error:
        return _Seen(name, "backward", error=clean(error.short, limit=200), unused=_MIXED in str(error.error))
    return _Seen(name)


class _NotPlaced(Exception):
    """Raised where the op returns plain tensors for DTensors."""


def _on_dtensors(evaluator: Evaluator, mesh, placement) -> Outcome:
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    def distributed(path: str, tensor: Tensor) -> Tensor:
        splits = differentiable(tensor) and tensor.dim() > 0
        return distribute_tensor(tensor, mesh, [placement if splits else Replicate()])

    outcome = evaluator.forward(layout=distributed)
    if not all(isinstance(y, DTensor) for y in outcome.live):
        raise _NotPlaced("returns plain tensors for DTensors")
    return outcome


def _placed_like(outcome: Outcome, cotangents: list[Tensor], mesh) -> list[Tensor]:
    from torch.distributed.tensor import Replicate, distribute_tensor

    if len(cotangents) != len(outcome.live):
        raise _NotPlaced("has other outputs for DTensors")
    placements = [[Replicate() if p.is_partial() else p for p in y.placements] for y in outcome.live]  # type: ignore[attr-defined]
    return [distribute_tensor(copy_tensor(c), mesh, p) for c, p in zip(cotangents, placements, strict=True)]


def _gap(paths: list[str], got: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> Gap | None:
    """Return the largest difference; every process calls this for the same tensors, since gathering them is collective."""
    if len(got) != len(expected):
        raise _NotPlaced("has other outputs for DTensors")
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in got]  # type: ignore[union-attr]
    return largest_gap(paths[: len(got)], [torch.as_tensor(w) if w is not None else None for w in whole], expected)
