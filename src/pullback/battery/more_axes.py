"""The same call with arguments of another rank: one more axis, in front or at the end, or one less where the code asks how many there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .edges import Edge, failures
from .evaluate import Evaluator, Leaf, UserCodeError
from .guards import right_for_symmetric, verdict_on_symmetric
from .probe import Probe
from .rank_questions import RankQuestions, rank_questions
from .refusals import blames_torch, refuses
from .sizes import main_leaf, resizable_leaves
from .tensors import differentiable

BUDGET = 0.3


@dataclass(frozen=True, slots=True)
class Reranked:
    """The call with arguments of another rank, at which backward is wrong or raises.

    Args:
        paths: The arguments.
        rank: How many axes the first of them has.
        usual: How many it has in the sample.
        evaluator: The call.
        edge: What is wrong, or None where backward raises.
        error: What backward raises.
    """

    paths: tuple[str, ...]
    rank: int
    usual: int
    evaluator: Evaluator
    edge: Edge | None = None
    error: UserCodeError | None = None


def other_ranks(probe: Probe) -> Iterator[Reranked]:
    """Yield what goes wrong at another rank that forward takes, once for every input, or for every error.

    Errors of backward count only where the code asks for the rank of what was changed, or where forward counts axes from the end and all that is
    differentiated gets one more in front, for a batch: else forward may take by broadcasting what was never meant.
    """
    end = time.thread_time() + probe.seconds(BUDGET)
    code = rank_questions(probe.target.described)
    wanted = {leaf.path for leaf in probe.exact.wanted}
    symmetric = symmetric_only(probe)
    told: set[str] = set()
    for paths, change in _changes(probe.exact, code):
        if time.thread_time() > end:
            return
        leaves = {leaf.path: leaf for leaf in probe.exact.leaves}
        if not code.asked & set(paths) and _splits_a_pair(leaves, paths):
            continue
        evaluator = probe.exact.variant({path: change(leaves[path].template) for path in paths})
        usual = leaves[paths[0]].template.dim()
        rank = change(leaves[paths[0]].template).dim()
        if change is _in_front and not _taken_as_batch(probe, paths, evaluator):
            continue
        if change is _at_end and _added(probe, evaluator) is None:
            continue
        try:
            edges = [*failures(probe, evaluator), *(e for path in symmetric if (e := _off_among_symmetric(probe, evaluator, path)) is not None)]
        except UserCodeError as error:
            own = error.stage == "backward" and not refuses(error) and not blames_torch(error)
            named = {path for path in paths if path in code.asked and not (rank > usual > code.highest(path))}
            meant = bool(named) or (code.from_the_end and change is _in_front and wanted <= set(paths))
            if own and meant and "" not in told:
                told.add("")
                yield Reranked(paths, rank, usual, evaluator, error=error)
            continue
        for edge in edges:
            if edge.kind != "nan too" and edge.verdict.path not in told:
                told.add(edge.verdict.path)
                yield Reranked(paths, rank, usual, evaluator, edge)


def symmetric_only(probe: Probe) -> list[str]:
    """Return the inputs whose gradient is wrong at the sample, but right for changes that keep them symmetric, as one through a triangle is."""
    wrong = [v.path for v in probe.value.wrong if not probe.deliberate(v.path)]
    return [path for path in wrong if right_for_symmetric(probe.exact, path, probe.settings.seed)]


def _off_among_symmetric(probe: Probe, evaluator: Evaluator, path: str) -> Edge | None:
    """What is wrong with the gradient of an input of `symmetric_only`, for changes that keep it symmetric, as two draws agree."""
    verdicts = [verdict_on_symmetric(evaluator, path, probe.settings.seed + draw) for draw in range(2)]
    return Edge("wrong", verdicts[0]) if verdicts[0] is not None and all(v is not None and v.ok is False for v in verdicts) else None


def _changes(evaluator: Evaluator, code: RankQuestions) -> Iterator[tuple[tuple[str, ...], Callable[[Tensor], Tensor]]]:
    leaves = resizable_leaves(evaluator)
    main = main_leaf(leaves)
    if main is None:
        return
    for paths in _together(main, leaves):
        yield paths, _in_front
        if main.path in code.folded:
            yield paths, _at_end
    lower = code.told_apart()
    arguments = {name for name, _ in evaluator.named}
    # A cotangent, or a tensor that was saved: in most code of the rank of the largest argument.
    others = {rank for name, rank in lower if name not in arguments}
    for leaf in leaves:
        less = leaf.template.dim() - 1
        if (leaf.path, less) in lower or (leaf is main and less in others) or (less > 1 and (leaf.path, less + 1) in code.cases()):
            for dim in range(leaf.template.dim() - 1):
                yield (leaf.path,), lambda t, dim=dim: t.select(dim, 0).clone()
    yield from _as_large_as_others(leaves, code)
    paired = {path for pair in code.between for path in pair}
    for leaf in leaves:
        if leaf.wanted and leaf.path in paired:
            yield (leaf.path,), _at_end


def _as_large_as_others(leaves: list[Leaf], code: RankQuestions) -> Iterator[tuple[tuple[str, ...], Callable[[Tensor], Tensor]]]:
    """An argument of fewer axes in the shape of another, where the code asks whether both have as many (one gate a head, or one a channel)."""
    by_path = {leaf.path: leaf.template for leaf in leaves}
    for one, other in code.between:
        for a, b in ((one, other), (other, one)):
            small, large = by_path.get(a), by_path.get(b)
            if small is not None and large is not None and small.dim() < large.dim() and differentiable(small):
                yield (a,), lambda t, shape=large.shape: _spread(t, shape)


def _spread(t: Tensor, shape: torch.Size) -> Tensor:
    wide = t.reshape(*t.shape, *[1] * (len(shape) - t.dim())) if shape[: t.dim()] == t.shape else t
    try:
        wide = wide.expand(shape)
    except RuntimeError:
        return t
    return wide * torch.linspace(0.75, 1, wide.numel(), dtype=torch.float64).to(t).reshape(shape)


def _together(main: Leaf, leaves: list[Leaf]) -> list[tuple[str, ...]]:
    """The largest argument alone, with those of its shape, and with those of its rank."""
    shape = tuple(leaf.path for leaf in leaves if leaf.template.shape == main.template.shape and leaf is not main)
    rank = tuple(leaf.path for leaf in leaves if leaf.template.dim() == main.template.dim() and leaf is not main)
    return list(dict.fromkeys(((main.path,), (main.path, *shape), (main.path, *rank))))


def _splits_a_pair(leaves: dict[str, Leaf], paths: tuple[str, ...]) -> bool:
    """Whether another argument of the shape of one that changes stays as it is: forward takes that by broadcasting at most."""
    pairs = [leaf for leaf in leaves.values() if differentiable(leaf.template) and leaf.path not in paths]
    return any(leaf.template.shape == leaves[paths[0]].template.shape for leaf in pairs)


def _in_front(t: Tensor) -> Tensor:
    return torch.stack([t, _moved(t)])


def _at_end(t: Tensor) -> Tensor:
    return torch.stack([t, _moved(t)], -1)


def _moved(t: Tensor) -> Tensor:
    """Other entries of the same range; what is symmetric, or positive definite, stays so."""
    if not differentiable(t):
        return t
    square = t.dim() > 1 and t.shape[-1] == t.shape[-2] and torch.allclose(t, t.mH)
    return 0.9 * t + 0.1 * (t.flip(-1, -2) if square else t.flip(0))


def _taken_as_batch(probe: Probe, paths: tuple[str, ...], evaluator: Evaluator) -> bool:
    """Whether forward takes one more axis in front as that of a batch, of which the sample is the first, or reduces over it like over the others."""
    pairs = _added(probe, evaluator)
    if pairs is not None:
        return all(now.shape[1:] == then.shape and _near(now[0], then) for now, then in pairs)
    templates = {leaf.path: leaf.template for leaf in probe.exact.leaves}
    pairs = _outputs(probe, probe.exact.variant({path: torch.stack([templates[path]] * 2) for path in paths}))
    if pairs is None or any(now.dim() or then.dim() for now, then in pairs):
        return False
    return all(_near(now, then) for now, then in pairs) or all(_near(now, 2 * then) for now, then in pairs)


def _near(now: Tensor, then: Tensor) -> bool:
    return torch.allclose(now.to(then.dtype), then, rtol=1e-6, atol=1e-6)


def _added(probe: Probe, evaluator: Evaluator) -> list[tuple[Tensor, Tensor]] | None:
    """Every output with that of the sample, where forward takes one more axis and hands it on to all of them."""
    pairs = _outputs(probe, evaluator)
    if pairs is None or any(now.dim() != then.dim() + 1 or now.numel() != 2 * then.numel() for now, then in pairs):
        return None
    return pairs


def _outputs(probe: Probe, evaluator: Evaluator) -> list[tuple[Tensor, Tensor]] | None:
    """Every output with that of the sample, where forward takes the call and all are finite."""
    base = probe.baseline.outcome
    if base is None:
        return None
    try:
        outcome = evaluator.forward()
    except UserCodeError:
        return None
    if len(outcome.outputs) != len(base.outputs) or not outcome.carrying or not all(bool(torch.isfinite(y).all()) for y in outcome.outputs):
        return None
    return list(zip(outcome.outputs, base.outputs, strict=True))
