"""PB806."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ...report.clean import clean
from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped, Unsupported
from ..evaluate import Evaluator, UserCodeError
from ..probe import Probe
from ..ranks import RankError, on_ranks, with_group
from ..tensors import differentiable, random_like
from ..value import SIGNED
from ..words import gradient_name

DIRECTIONS = 4
SMOOTH = 1e-4
"""Two difference quotients of a smooth function, of steps h and 2h, agree far better than this; where they do not, a kink lies between."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one process measured.

    Args:
        replicated: For each output, whether all processes hold the same.
        got: ``[output, input, direction]``: the gradient that backward gave here, along the direction.
        quotients: ``[moved, step, output, input, direction]``: how this process's cotangent-weighted output changes when the input of process `moved`
            (the last: of all) moves along the direction.
        scales: ``[output, input]``: the size that these numbers have.
        step: The smaller step.
    """

    replicated: list[bool]
    got: Tensor
    quotients: Tensor
    scales: Tensor
    step: float


class ParallelMismatch(Check):
    """In several processes the gradient is not the derivative of what they compute together.

    Why it matters:
        Synchronised norms, tensor-parallel layers and losses over gathered batches give right outputs and train wrongly; in one process all is right.

    How it is measured:
        With ``--distributed N`` the op runs in N gloo processes, on other values in each, and backward's gradients are compared with difference
        quotients: the input of one process is moved, and the change of the outputs of all counts. Right is this derivative of the sum over processes,
        and also every usual convention: the sum or the mean of it over processes (what DDP would do next), and 1/N of it where all processes hold the
        same output, whose loss counts once.

    Example:
        Forward uses the mean over all processes, backward sums over its own rows only; forward all-gathers, backward takes the first block.

    Instead:
        In backward use the conjugate collective: all_reduce for all_reduce, reduce_scatter for all_gather; all_gather for reduce_scatter.

    Limits:
        The processes run the same code on the same machine; which inputs are sharded is not known, so a gradient that is right for sharded or for
        replicated inputs passes. Ops that forward in one process alone already gets wrong are left to PB501.
    """

    code = "PB806"
    name = "parallel-mismatch"
    severity = "error"
    needs = ()
    stage = 4
    tier = "distributed"

    def run(self, probe: Probe) -> Iterator[Finding]:
        count = probe.settings.distributed
        if count < 2:
            raise Skipped("needs several processes: --distributed 2")
        evaluator = _evaluator(probe)
        seed = probe.settings.seed
        try:
            seen: list[_Seen] = on_ranks(count, lambda rank: _measure(evaluator, rank, count, seed))
        except RankError as error:
            raise Unsupported(clean(error, limit=300)) from None
        for leaf in range(len(evaluator.wanted)):
            found = _mismatch(seen, leaf)
            path = evaluator.wanted[leaf].path
            if found is not None and not probe.explained(path, "PB501", "PB503", "PB509", "PB510"):
                yield self._wrong(probe, path, count, *found)

    def _wrong(self, probe: Probe, path: str, count: int, rank: int, got: float, expected: float, error: float, allowed: float) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} in {count} processes: {gradient_name(path)} is not the derivative of what they compute together",
            evidence=[
                Evidence(
                    f"rank {rank}, along a random direction; neither it, its sum nor its mean over the processes agrees",
                    got=f"{got:.6g}",
                    expected=f"{expected:.6g}",
                    error=error,
                    tolerance=allowed,
                    why_tolerance=tolerance.WHY_DIFFERENCE,
                )
            ],
            cause="backward uses its own process's values where forward used all, or a collective that is not the conjugate of forward's",
            fix="all_reduce in backward the sums that forward reduced; reduce_scatter for all_gather; all_gather for reduce_scatter",
            path=path,
        )


def _evaluator(probe: Probe) -> Evaluator:
    if probe.declaration.deliberate:
        raise Skipped("the gradient is declared to differ from the derivative")
    alone = probe.baseline.forward_error is None and probe.baseline.outcome is not None
    if alone and probe.repeats.forward_draws:
        raise Skipped("draws random numbers")
    evaluator = probe.exact if alone else probe.native.cast(torch.float64)
    dtypes = {leaf.template.dtype for leaf in evaluator.wanted}
    if not dtypes:
        raise Skipped("no input is differentiated")
    if any(dtype.is_complex or tolerance.eps(dtype) > 1e-6 for dtype in dtypes):
        raise Skipped("complex, or too few digits for difference quotients")
    return evaluator


def _measure(given: Evaluator, rank: int, count: int, seed: int) -> _Seen:
    evaluator = with_group(given)
    mine = torch.Generator().manual_seed(seed + 7919 * (rank + 1))
    shared = torch.Generator().manual_seed(seed + 0x806)
    point = {leaf.path: _nearby(leaf.template, mine) for leaf in evaluator.wanted}
    outputs = evaluator.forward(values=point).live
    replicated = _replicated([y.detach() for y in outputs], count)
    cotangents = _cotangents(outputs, replicated, mine, seed)
    directions = [[random_like(leaf.template, shared, SIGNED) for _ in range(DIRECTIONS)] for leaf in evaluator.wanted]
    got = [[_along(g, d) for g, d in zip(_alone(evaluator, point, cotangents, k), directions, strict=True)] for k in range(len(outputs))]
    step = max(tolerance.BASE_STEP, max(tolerance.eps(leaf.template.dtype) for leaf in evaluator.wanted) ** (1 / 3))
    quotients = torch.zeros(count + 1, 2, len(outputs), len(directions), DIRECTIONS, dtype=torch.float64)
    scales = torch.zeros(len(outputs), len(directions), dtype=torch.float64)
    for i, (leaf, own) in enumerate(zip(evaluator.wanted, directions, strict=True)):
        for j, direction in enumerate(own):
            for moved in range(count + 1):
                here = moved in (rank, count)
                for n, h in enumerate((step, 2 * step)):
                    slopes, sizes = _slopes(evaluator, point, cotangents, leaf.path, direction * h if here else None, h)
                    quotients[moved, n, :, i, j] = slopes
                    scales[:, i] = torch.maximum(scales[:, i], sizes)
    return _Seen(replicated, torch.tensor(got, dtype=torch.float64), quotients, scales, step)


def _nearby(template: Tensor, generator: torch.Generator) -> Tensor:
    return template * (0.8 + 0.4 * torch.rand(template.shape, generator=generator, dtype=torch.float64)).to(template.dtype)


def _replicated(outputs: list[Tensor], count: int) -> list[bool]:
    everyone: list[list[Tensor]] = [[] for _ in range(count)]
    dist.all_gather_object(everyone, outputs)
    if len({len(own) for own in everyone}) != 1:
        raise UserCodeError("forward", RuntimeError("the processes have different numbers of outputs"))
    return [all(y.shape == first.shape and torch.equal(y, first) for y in rest) for first, *rest in zip(*everyone, strict=True)]


def _cotangents(outputs: list[Tensor], replicated: list[bool], mine: torch.Generator, seed: int) -> list[Tensor]:
    """Return one cotangent for each output: the same in all processes for what all hold, one of its own for the rest."""
    found = []
    for k, (y, same) in enumerate(zip(outputs, replicated, strict=True)):
        found.append(random_like(y, torch.Generator().manual_seed(seed + k) if same else mine, SIGNED))
    return found


def _alone(evaluator: Evaluator, point: dict[str, Tensor], cotangents: list[Tensor], k: int) -> list[Tensor | None]:
    """Return the gradients of one output: the cotangents of the others are zero, so that every process calls the same collectives."""
    outcome = evaluator.forward(values=point)
    return evaluator.vjp(outcome, [c.clone() if i == k else torch.zeros_like(c) for i, c in enumerate(cotangents)])


def _along(gradient: Tensor | None, directions: list[Tensor]) -> list[float]:
    return [0.0 if gradient is None else float((gradient.detach() * d).sum()) for d in directions]


def _slopes(
    evaluator: Evaluator, point: dict[str, Tensor], cotangents: list[Tensor], path: str, moved: Tensor | None, step: float
) -> tuple[Tensor, Tensor]:
    """Return the difference quotient of each output along its cotangent, and the size of its terms; without `moved` only other processes move."""

    def outputs(sign: int) -> list[Tensor]:
        values = point if moved is None else point | {path: point[path] + sign * moved}
        return [y.detach() for y in evaluator.forward(values=values).live if differentiable(y)]

    changes = [(a - b) / (2 * step) * c for a, b, c in zip(outputs(1), outputs(-1), cotangents, strict=True)]
    slopes = torch.stack([change.sum().double() for change in changes])
    return slopes, torch.stack([change.norm().double() for change in changes])


def _mismatch(seen: list[_Seen], leaf: int) -> tuple[int, float, float, float, float] | None:
    """Return rank, got, expected, error and tolerance of the worst direction under the convention that fits best.

    None where a convention fits, or nothing is known.

    Differences are taken relative to the size of the terms, so that a sum that cancels is not held to its own small size.
    """
    count = len(seen)
    quotients = torch.stack([s.quotients for s in seen]).sum(0)[..., leaf, :]
    worst = None
    for k, same in enumerate(seen[0].replicated):
        scale = float(torch.stack([s.scales[k, leaf] for s in seen]).sum()) or 1.0
        fine, coarse = quotients[:, 0, k], quotients[:, 1, k]
        smooth = ((fine - coarse).abs() <= SMOOTH * scale).all(0)
        if not bool(smooth.any()) or not bool(torch.isfinite(fine).all()):
            continue
        allowed = scale * max(SMOOTH, 64 * seen[0].step ** 2)
        own, total = fine[:count], fine[count].expand(count, -1)
        conventions = [own, total, total / count] + ([own / count, total / count**2] if same else [])
        got = torch.stack([s.got[k, leaf] for s in seen])
        gaps = [torch.where(smooth, torch.nan_to_num((got - expected).abs(), nan=torch.inf), 0.0) for expected in conventions]
        best = min(range(len(gaps)), key=lambda n: float(gaps[n].max()))
        error = float(gaps[best].max())
        if error > allowed and (worst is None or error / allowed > worst[3] / worst[4]):
            rank, j = divmod(int(gaps[best].argmax()), DIRECTIONS)
            worst = (rank, float(got[rank, j]), float(conventions[best][rank, j]), error, allowed)
    return worst
