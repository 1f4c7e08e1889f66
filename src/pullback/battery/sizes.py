"""Change the sizes of a call's arguments: equal sizes change together, numbers that equal them too, and contents keep their character."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .. import trees
from . import numeric
from .evaluate import Evaluator, Leaf
from .tensors import differentiable

_NO_SIZE = re.compile(
    r"(^|_)(stride|strides|dilation|kernel|padding|pad|dim|dims|axis|ord|order|norm|p|power|degree|iter|iters|iterations|steps|bits|seed)(\b|_|$)",
    re.IGNORECASE,
)
"""Names of numbers that equal a size by chance: a convolution of stride 2048 takes minutes in bfloat16."""

ALONE = 3
"""How many of several equal axes are changed alone, to see whether they are equal by chance."""

MAX_ELEMENTS = 2**19
"""How many elements one argument may get: 400 in each of four tied axes is 25 billion."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that occurs in the arguments, wherever it occurs.

    Args:
        size: Its value in the sample.
        axes: Where: (path of a tensor, dimension).
        numbers: Paths of ints among the arguments that equal it.
        batch: Whether it is the leading axis of the largest-rank differentiated tensor.
        joint: Whether all its occurrences change together.
        step: Of what its values must be multiples, as far as forward shows.
        stays: What stays as in the sample although it had the same size, in words.
        asked: Whether the code asks for the size that it gets.
    """

    size: int
    axes: tuple[tuple[str, int], ...]
    numbers: tuple[str, ...] = ()
    batch: bool = False
    joint: bool = True
    step: int = 1
    stays: str = ""
    asked: bool = False

    @property
    def said(self) -> str:
        """How messages name it: ``x.shape[0]``, ``x.shape[1] (and heads)``."""
        path, dim = self.axes[0]
        return f"{path}.shape[{dim}]" + (f" (and {', '.join(self.numbers)})" if self.numbers else "")

    def without_numbers(self) -> Symbol:
        """The same axes, with the numbers left as they are."""
        return replace(self, numbers=())

    def of_rank(self, ranks: Mapping[str, int]) -> Symbol:
        """Only the axes of tensors of as many dimensions as the first has: an axis of size 1 of the others may be there to be broadcast."""
        rank = ranks[self.axes[0][0]]
        return replace(self, axes=tuple(axis for axis in self.axes if ranks[axis[0]] == rank))

    def parts(self) -> list[Symbol]:
        """The symbol with some of its axes, which may be as long as the others by chance: the leading ones, and each of the first few alone."""
        leading = tuple(axis for axis in self.axes if axis[1] == 0)
        some = dict.fromkeys((leading, *((axis,) for axis in self.axes[:ALONE])))
        return [replace(self, axes=axes) for axes in some if axes and axes != self.axes]

    def split(self) -> list[Symbol]:
        """One symbol for each axis, none of them joint."""
        return [replace(self, axes=(axis,), numbers=(), batch=False, joint=False) for axis in self.axes]


def symbols(evaluator: Evaluator) -> list[Symbol]:
    """Return the sizes of the tensor arguments, the batch size first; a size of 1 counts only as a batch size."""
    leaves = resizable_leaves(evaluator)
    main = main_leaf(leaves)
    found: dict[int, list[tuple[str, int]]] = {}
    for leaf in leaves:
        for dim, size in enumerate(leaf.template.shape):
            found.setdefault(size, []).append((leaf.path, dim))
    numbers = _numbers(evaluator)
    batch = main.template.shape[0] if main is not None else None
    result = []
    for size, axes in found.items():
        is_batch = size == batch and main is not None
        if size == 1 and is_batch and main is not None:
            # One number of shape [1] with a fraction is a parameter, no entry of the batch.
            axes = [
                (leaf.path, 0) for leaf in leaves if leaf.template.shape[0] == 1 and (leaf.template.dim() > 1 or not differentiable(leaf.template))
            ]
            axes = axes if (main.path, 0) in axes else [(main.path, 0)]
        elif size == 1:
            continue
        if is_batch and main is not None:
            axes = sorted(axes, key=lambda axis: axis != (main.path, 0))
        result.append(Symbol(size, tuple(axes), tuple(numbers.get(size, ())) if size > 1 else (), is_batch))
    return sorted(result, key=lambda symbol: not symbol.batch)


def resizable_leaves(evaluator: Evaluator) -> list[Leaf]:
    """Return the tensor arguments whose sizes can be changed."""
    return [leaf for leaf in evaluator.leaves if _resizable(leaf)]


def main_leaf(leaves: Sequence[Leaf]) -> Leaf | None:
    """Return the differentiated tensor of the largest rank."""
    return max((leaf for leaf in leaves if leaf.wanted), key=lambda leaf: leaf.template.dim(), default=None)


def _resizable(leaf: Leaf) -> bool:
    t = leaf.template
    return t.layout is torch.strided and t.dim() > 0 and not t.__dict__


def _numbers(evaluator: Evaluator) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, value in evaluator.named:
        for path, leaf in trees.leaves(value, name):
            if isinstance(leaf, int) and not isinstance(leaf, bool) and not _NO_SIZE.search(path):
                found.setdefault(leaf, []).append(path)
    return found


@dataclass(slots=True)
class Resizer:
    """Builds the same call at another size.

    Args:
        evaluator: The call at the sample's sizes.
        generator: Draws the new contents.
    """

    evaluator: Evaluator
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0x512E))

    def resized(self, symbol: Symbol, size: int) -> Evaluator | None:
        """Return the call with one symbol changed, or None where a tensor would get too large."""
        values: dict[str, Any] = dict.fromkeys(symbol.numbers, size)
        for leaf in self.evaluator.leaves:
            dims = [dim for path, dim in symbol.axes if path == leaf.path]
            if dims:
                shape = [size if dim in dims else n for dim, n in enumerate(leaf.template.shape)]
                if torch.Size(shape).numel() > max(MAX_ELEMENTS, leaf.template.numel()):
                    return None
                values[leaf.path] = refill(leaf.template, shape, symbol.size, size, self.generator)
            elif symbol.joint and not differentiable(leaf.template):
                values[leaf.path] = retargeted(leaf.template, symbol.size, size)
        return self.evaluator.variant(values)


def refill(template: Tensor, shape: Sequence[int], old: int, new: int, generator: torch.Generator) -> Tensor:
    """Return contents for a new shape that keep the character of `template`.

    Entries are drawn from the original ones, floating ones with 5 % of jitter (sign, range, masks of 0 and 1 and whole numbers are kept);
    permutations stay permutations, sorted vectors sorted, offsets monotone, positive definite matrices so, indices below the new size, and rows that
    sum to one do so again.

    Args:
        template: The original tensor.
        shape: The new shape.
        old: The size that changed.
        new: Its new value.
        generator: Draws.
    """
    count = torch.Size(shape).numel()
    flat = template.detach().resolve_conj().resolve_neg().reshape(-1)
    if flat.numel() == 0 or count == 0:
        return torch.zeros(tuple(shape), dtype=template.dtype, device=template.device)
    if template.dim() == 1 and not differentiable(template) and template.dtype is not torch.bool:
        special = _structured(flat, old, new, generator)
        if special is not None:
            return special
    drawn = flat[torch.randint(flat.numel(), (count,), generator=generator).to(flat.device)]
    if differentiable(template):
        drawn = _jittered(drawn, flat, generator)
    elif template.dtype is not torch.bool and not (template.dim() > 1 and int(flat.min()) >= 0 and int(flat.max()) <= 1):
        # Zeros and ones in rows are a mask, also where two of something are counted.
        drawn = _indices(drawn, flat, old, new, generator)
    if template.dim() == 1 and flat.numel() > 2 and not template.is_complex() and template.dtype is not torch.bool and bool((flat.diff() > 0).all()):
        drawn = drawn.sort().values
    made = drawn.reshape(tuple(shape))
    if _sums_to_one(template):
        made = made / made.sum(-1, keepdim=True)
    return _laid_out(numeric.made_definite(made) if len(shape) > 1 and shape[-1] == shape[-2] and numeric.is_definite(template) else made, template)


def _sums_to_one(t: Tensor) -> bool:
    """Whether every row is a distribution: weights of a mixture, probabilities."""
    if not t.is_floating_point() or t.dim() == 0 or t.shape[-1] < 2 or t.numel() == 0 or bool((t < 0).any()) or bool((t == t.round()).all()):
        return False
    sums = t.detach().sum(-1)
    return torch.allclose(sums, torch.ones_like(sums))


def whole_numbers(t: Tensor) -> bool:
    """Whether every entry, or each part of a complex one, is a whole number."""
    real = torch.view_as_real(t.detach().resolve_conj()) if t.is_complex() else t.detach()
    return bool((real == real.round()).all())


def _jittered(drawn: Tensor, flat: Tensor, generator: torch.Generator) -> Tensor:
    if whole_numbers(flat):
        return drawn
    noise = 1 + 0.05 * (2 * torch.rand(drawn.shape, generator=generator, dtype=torch.float64) - 1)
    moved = (drawn * noise.to(drawn.device)).to(drawn.dtype)
    if drawn.is_complex():
        return moved
    # What passes a bound is reflected there: clamped, many entries would be tied at the largest one.
    low, high = flat.min(), flat.max()
    moved = torch.where(moved > high, 2 * high - moved, torch.where(moved < low, 2 * low - moved, moved))
    return moved.clamp(low, high)


def _indices(drawn: Tensor, flat: Tensor, old: int, new: int, generator: torch.Generator) -> Tensor:
    low, high = int(flat.min()), int(flat.max())
    if low >= 0 and high == old - 1:
        return torch.randint(new, drawn.shape, generator=generator).to(drawn)
    return drawn.clamp(max=new - 1) if low >= 0 and high < old else drawn


def _structured(flat: Tensor, old: int, new: int, generator: torch.Generator) -> Tensor | None:
    count = flat.numel()
    if count == old and _is_permutation(flat):
        in_order = torch.equal(flat, torch.arange(count, dtype=flat.dtype, device=flat.device))
        return (torch.arange(new) if in_order else torch.randperm(new, generator=generator)).to(flat)
    if count == old and count > 2 and int(flat[0]) == 0 and bool((flat.diff() >= 0).all()):
        return torch.linspace(0, float(flat[-1]), new).round().to(flat)
    return None


def _is_permutation(flat: Tensor) -> bool:
    return torch.equal(flat.sort().values, torch.arange(flat.numel(), dtype=flat.dtype, device=flat.device))


def retargeted(template: Tensor, old: int, new: int) -> Tensor:
    """Offsets and indices into an axis that changed size, although their own shape did not; a permutation is one of its own axis."""
    flat = template.detach().reshape(-1)
    if template.dtype is torch.bool or flat.numel() == 0 or int(flat.min()) < 0 or (flat.numel() > 1 and _is_permutation(flat)):
        return template
    offsets = template.dim() == 1 and flat.numel() > 1 and int(flat[0]) == 0 and bool((flat.diff() >= 0).all()) and int(flat[-1]) == old
    if offsets:
        return (flat.to(torch.float64) * new / old).round().to(flat.dtype)
    return template.clamp(max=new - 1) if int(flat.max()) < old and new < old else template


def _laid_out(values: Tensor, template: Tensor) -> Tensor:
    if not template.is_contiguous():
        order = sorted(range(template.dim()), key=lambda dim: -template.stride(dim))
        values = values.permute(order).contiguous().permute([order.index(dim) for dim in range(template.dim())])
    return torch.nn.Parameter(values, requires_grad=False) if isinstance(template, torch.nn.Parameter) else values
