"""The same call with arguments of another rank: one more axis, in front or at the end, or one less where the code asks how many there are."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .code_text import own_text
from .edges import Edge, failures
from .evaluate import Evaluator, Leaf, UserCodeError
from .guards import right_for_symmetric, verdict_on_symmetric
from .probe import Probe
from .refusals import blames_torch, refuses
from .sizes import main_leaf, resizable_leaves
from .tensors import differentiable

BUDGET = 0.3
_ASKED = re.compile(
    r"\b(\w+)\.(?:dim\(\)|ndim\b|ndimension\(\))|len\((\w+)\.(?:shape|size\(\))\)|\b(\w+)\.(?:view|reshape)\(-1, ?[^-)]|\b(\w+)\.shape\[:-1\]"
)
_FOLDED = (
    r"\b{0}\.(?:(?:view|reshape)\([^)]*, ?-1\)|flatten\([12]|shape\[2:\])"
    r"|\[1\] ?\* ?\(?{0}\.(?:dim\(\)|ndim) ?- ?2|\brange\(2, ?{0}\.(?:dim\(\)|ndim)"
)
"""How forward folds the last axes of an argument, or lays a vector along its second of any number of axes.

Only then is one more there meant, since indexing takes any number of them.
"""
_COMPARED = re.compile(r"(?:\b(\w+)\.(?:dim\(\)|ndim|ndimension\(\))|len\((\w+)\.shape\)) *(==|!=|<=|<|>=|>) *(\d)")
"""A rank that is asked for by its number: only then may an argument have an axis less than in the sample."""
_BETWEEN = re.compile(r"\b(\w+)\.(?:dim\(\)|ndim) *(?:==|!=|<=|<|>=|>|,) *(\w+)\.(?:dim\(\)|ndim)")
"""Two ranks that are compared with each other, or of which the larger is taken."""
_FROM_THE_END = re.compile(r"\[\.\.\.|\bdim1=-2\b")
"""How code says that any number of axes may come before those that it works on."""


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
    text = own_text(probe.target.described)
    wanted = {leaf.path for leaf in probe.exact.wanted}
    batches = _FROM_THE_END.search(own_text(probe.target.described, backward=False)) is not None
    symmetric = symmetric_only(probe)
    asked = {name for names in _ASKED.findall(text) for name in names if name}
    told: set[str] = set()
    for paths, change in _changes(probe.exact, text):
        if time.thread_time() > end:
            return
        leaves = {leaf.path: leaf for leaf in probe.exact.leaves}
        if not asked & set(paths) and _splits_a_pair(leaves, paths):
            continue
        evaluator = probe.exact.variant({path: change(leaves[path].template) for path in paths})
        usual = leaves[paths[0]].template.dim()
        rank = change(leaves[paths[0]].template).dim()
        if change in (_in_front, _at_end) and not _taken(probe, evaluator, leading=change is _in_front):
            continue
        try:
            edges = [*failures(probe, evaluator), *(e for path in symmetric if (e := _off_among_symmetric(probe, evaluator, path)) is not None)]
        except UserCodeError as error:
            own = error.stage == "backward" and not refuses(error) and not blames_torch(error)
            named = {path for path in paths if path in asked and not (rank > usual > _highest(text, path))}
            meant = bool(named) or (batches and change is _in_front and wanted <= set(paths))
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


def _changes(evaluator: Evaluator, text: str) -> Iterator[tuple[tuple[str, ...], Callable[[Tensor], Tensor]]]:
    leaves = resizable_leaves(evaluator)
    main = main_leaf(leaves)
    if main is None:
        return
    for paths in _together(main, leaves):
        yield paths, _in_front
        if re.search(_FOLDED.format(re.escape(main.path)), text):
            yield paths, _at_end
    lower = _lower(text)
    arguments = {name for name, _ in evaluator.named}
    # A cotangent, or a tensor that was saved: in most code of the rank of the largest argument.
    others = {rank for name, rank in lower if name not in arguments}
    for leaf in leaves:
        if (leaf.path, leaf.template.dim() - 1) in lower or (leaf is main and leaf.template.dim() - 1 in others):
            for dim in range(leaf.template.dim() - 1):
                yield (leaf.path,), lambda t, dim=dim: t.select(dim, 0).clone()
    yield from _as_large_as_others(leaves, text)
    paired = {path for pair in _BETWEEN.findall(text) for path in pair}
    for leaf in leaves:
        if leaf.wanted and leaf.path in paired:
            yield (leaf.path,), _at_end


def _as_large_as_others(leaves: list[Leaf], text: str) -> Iterator[tuple[tuple[str, ...], Callable[[Tensor], Tensor]]]:
    """An argument of fewer axes in the shape of another, where the code asks whether both have as many (one gate a head, or one a channel)."""
    by_path = {leaf.path: leaf.template for leaf in leaves}
    for one, other in _BETWEEN.findall(text):
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


def _taken(probe: Probe, evaluator: Evaluator, *, leading: bool) -> bool:
    """Whether forward takes one more axis and hands it on to every output; an axis in front as a batch, of which the sample is the first."""
    base = probe.baseline.outcome
    if base is None:
        return False
    try:
        outcome = evaluator.forward()
    except UserCodeError:
        return False
    if len(outcome.outputs) != len(base.outputs) or not outcome.carrying:
        return False
    for now, then in zip(outcome.outputs, base.outputs, strict=True):
        if now.dim() != then.dim() + 1 or now.numel() != 2 * then.numel() or not bool(torch.isfinite(now).all()):
            return False
        if leading and not (now.shape[1:] == then.shape and torch.allclose(now[0].to(then.dtype), then, rtol=1e-6, atol=1e-6)):
            return False
    return True


def _highest(text: str, name: str) -> float:
    """The highest number that the rank of an argument is compared with; none is higher where it is asked for otherwise."""
    numbers = [int(number) for a, b, _, number in _COMPARED.findall(text) if name in (a, b)]
    return max(numbers, default=float("inf"))


def _lower(text: str) -> set[tuple[str, int]]:
    """The ranks that the code asks names for: three for `b.dim() == 3`, and three and four for `b.dim() < 4`."""
    return {(a or b, rank) for a, b, sign, number in _COMPARED.findall(text) for rank in _told_apart(sign, int(number))}


def _told_apart(sign: str, number: int) -> tuple[int, ...]:
    return (number - 1, number) if sign in ("<", ">=") else (number, number + 1) if sign in (">", "<=") else (number,)
