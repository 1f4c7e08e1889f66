"""Axes that can change although others of their size do not: one of two equal axes of a tensor, and axes of size 1."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations

from torch import Tensor

from .evaluate import Evaluator, UserCodeError
from .sizes import Resizer, Symbol, main_leaf, resizable_leaves
from .tensors import differentiable

FEWEST, MOST = 3, 6
"""Of how many axes of one size pairs are tried."""


def lone_symbols(evaluator: Evaluator) -> Iterator[Symbol]:
    """Yield the changes that make square inputs rectangular, and those that give axes of size 1 more entries.

    Every tensor that has two such axes is changed in its last one, or else in its first one; once as it is, and once with the single axes of that
    size in other tensors changed along. Axes of size 1 grow together where all tensors of the largest rank have them there,
    and then in the largest alone, for the others to be broadcast; it is alone as well where only it has them.
    """
    leaves = resizable_leaves(evaluator)
    main = main_leaf(leaves)
    if main is None:
        return
    for size in sorted({n for n in main.template.shape if n > 1 and list(main.template.shape).count(n) > 1}):
        where = [(leaf.path, [d for d, n in enumerate(leaf.template.shape) if n == size]) for leaf in leaves]
        once = tuple((path, dims[0]) for path, dims in where if len(dims) == 1)
        own = next(dims for path, dims in where if path == main.path)
        for moved, kept in ((-1, 0), (0, -1)):
            twice = tuple(sorted(((path, dims[moved]) for path, dims in where if len(dims) > 1), key=lambda axis: axis[0] != main.path))
            stays = f"{main.path}.shape[{own[kept]}] stays {size}"
            yield Symbol(size, twice, joint=False, stays=stays)
            if once:
                yield Symbol(size, twice + once, joint=False, stays=stays)
    same_rank = [leaf for leaf in leaves if leaf.template.dim() == main.template.dim()]
    for dim in range(1, main.template.dim()):
        if all(leaf.template.shape[dim] == 1 for leaf in same_rank):
            paths = sorted((leaf.path for leaf in same_rank), key=lambda path: path != main.path)
            yield Symbol(1, tuple((path, dim) for path in paths), joint=False, stays="not 1, as in the sample")
            if len(paths) > 1:
                yield Symbol(1, ((main.path, dim),), joint=False, stays=f"{paths[1]}.shape[{dim}] stays 1")
        elif main.template.shape[dim] == 1:
            yield Symbol(1, ((main.path, dim),), joint=False, stays="not 1, as in the sample")


def single_axes(evaluator: Evaluator) -> Iterator[Symbol]:
    """Yield, for each axis but the leading one of a tensor, the change of it alone, where axes of other tensors have its size.

    Sizes may be equal by chance, as the width of queries and of values. Such a change counts only where the outputs' shapes follow it.
    """
    leaves = [leaf for leaf in resizable_leaves(evaluator) if differentiable(leaf.template)]
    for leaf in leaves:
        shape = list(leaf.template.shape)
        for dim, size in enumerate(shape):
            others = [other.path for other in leaves if other is not leaf and size in other.template.shape]
            if dim and size > 1 and shape.count(size) == 1 and others:
                yield Symbol(size, ((leaf.path, dim),), joint=False, stays=f"that of {others[0]} stays {size}")


def shapes_follow(evaluator: Evaluator, there: Evaluator | None, size: int, new: int) -> bool:
    """Return whether forward takes another call, in which one axis of `size` has become `new`, and an axis of its outputs has done so too."""
    if there is None:
        return False
    try:
        here, then = ([y.shape for y in e.values()] for e in (evaluator, there))
    except UserCodeError:
        return False
    changed = [(a, b) for a, b in zip(here, then, strict=False) if a != b]
    return bool(changed) and all(len(a) == len(b) and [p for p in zip(a, b, strict=True) if p[0] != p[1]] == [(size, new)] for a, b in changed)


def shared_symbols(evaluator: Evaluator, single: Collection[str]) -> Iterator[Symbol]:
    """Yield, where the code asks whether an axis has size 1, each leading axis that gets it alone while another tensor keeps the size.

    Args:
        evaluator: The call.
        single: The names of which the code asks for one entry; a vector counts only by its own.
    """
    leaves = resizable_leaves(evaluator)
    wanted = [leaf for leaf in leaves if leaf.wanted]
    for leaf in wanted if len(wanted) > 1 else ():
        asked = leaf.path in single
        size = leaf.template.shape[0]
        if size == 1 or not (asked or (single and leaf.template.dim() > 1)):
            continue
        same = [(other.path, dim) for other in leaves if other is not leaf for dim, n in enumerate(other.template.shape) if n == size]
        same = [(path, dim) for path, dim in same if dim == 0 or leaf.template.dim() == 1]
        if same:
            path, dim = same[0]
            yield Symbol(size, ((leaf.path, 0),), joint=False, stays=f"{path}.shape[{dim}] stays {size}", asked=asked)


def tied_pairs(resizer: Resizer) -> Iterator[Symbol]:
    """Yield pairs of axes of two tensors that forward takes only together, while others that are as long by chance stay as they are.

    Two lists of indices, each with its rows; the inner axes of a product of square matrices.
    """
    evaluator = resizer.evaluator
    axes: dict[int, list[tuple[str, int]]] = {}
    for leaf in resizable_leaves(evaluator):
        for dim, size in enumerate(leaf.template.shape):
            axes.setdefault(size, []).append((leaf.path, dim))
    for size, places in axes.items():
        if size < 2 or not FEWEST <= len(places) <= MOST:
            continue
        stuck = [axis for axis in places if not _takes(resizer.resized(Symbol(size, (axis,), joint=False), 2 * size))]
        for pair in combinations(stuck, 2):
            symbol = Symbol(size, pair, joint=False, stays=_staying(places, pair, size))
            if pair[0][0] != pair[1][0] and _takes(resizer.resized(symbol, 2 * size)):
                yield symbol


def _staying(places: list[tuple[str, int]], pair: tuple[tuple[str, int], ...], size: int) -> str:
    path, dim = next(axis for axis in places if axis not in pair)
    return f"{path}.shape[{dim}] stays {size}"


def _takes(there: Evaluator | None) -> bool:
    if there is None:
        return False
    try:
        return bool(there.forward().outputs)
    except UserCodeError:
        return False


def keeps_outputs(evaluator: Evaluator, there: Evaluator | None) -> bool:
    """Return whether forward takes another call and returns outputs of the same shapes."""
    if there is None:
        return False
    try:
        return [y.shape for y in evaluator.values()] == [y.shape for y in there.values()]
    except UserCodeError:
        return False


def counts_as_input(resizer: Resizer, symbol: Symbol, size: int) -> bool:
    """Return whether forward takes a larger size and does not leave out what was added: where it does, it was never meant to get it."""
    evaluator = resizer.resized(symbol, size)
    if evaluator is None:
        return False
    beyond: dict[str, Tensor] = {}
    for path, dim in symbol.axes:
        template = next(leaf.template for leaf in evaluator.leaves if leaf.path == path)
        if differentiable(template) and template.shape[dim] > symbol.size:
            moved = template.detach().clone()
            moved.narrow(dim, symbol.size, template.shape[dim] - symbol.size).mul_(1.25).add_(0.125)
            beyond[path] = moved
    try:
        here, there = evaluator.values(), evaluator.values(beyond)
    except UserCodeError:
        return False
    return bool(beyond) and any(a.shape == b.shape and not a.equal(b) for a, b in zip(here, there, strict=False))
