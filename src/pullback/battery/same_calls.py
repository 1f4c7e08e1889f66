"""Calls that say the same in another way: an axis counted from the other end, indices of 32 bits, a scale with the axes that the code asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .rank_questions import rank_questions
from .sizes import main_leaf, resizable_leaves
from .tensors import all_same

_AXIS = re.compile(r"(^|_)(dim|axis)\d?$", re.IGNORECASE)
_OTHER_BITS = {torch.int64: torch.int32, torch.int32: torch.int64}


@dataclass(frozen=True, slots=True)
class SameCall:
    """A call with which forward returns bit for bit what it returns for the sample.

    Args:
        name: How messages name it.
        usual: How the sample says it.
        evaluator: The call.
        cause: What is wrong with a backward that is wrong there.
        fix: What to write.
        meant: Whether such calls are sure to be meant.
    """

    name: str
    usual: str
    evaluator: Evaluator
    cause: str
    fix: str
    meant: bool = True


def same_calls(probe: Probe) -> Iterator[SameCall]:
    """Yield the calls that say the same as the sample's, as far as forward agrees."""
    for call in (*_other_ends(probe), *_other_bits(probe), *_masks_of_bytes(probe), *_other_ranks(probe)):
        if _same(probe.exact, call.evaluator):
            yield call


def _other_ends(probe: Probe) -> Iterator[SameCall]:
    exact = probe.exact
    rank = max((leaf.template.dim() for leaf in exact.wanted), default=0)
    for name, value in exact.named:
        if not _AXIS.search(name) or type(value) is not int or not -rank <= value < rank:
            continue
        others = [n for n in range(rank) if n != value % rank]
        if others and _same(exact, exact.variant({name: others[0]})):
            continue
        other = value - rank if value >= 0 else value + rank
        yield SameCall(
            f"{name}={other}",
            f"{name}={value}",
            exact.variant({name: other}),
            "backward takes an axis that is counted from the end for another one, or for none",
            f"ctx.{name} = {name} % x.dim() in forward",
        )


def _other_bits(probe: Probe) -> Iterator[SameCall]:
    exact = probe.exact
    for leaf in exact.leaves:
        other = _OTHER_BITS.get(leaf.template.dtype)
        if other is not None and leaf.template.layout is torch.strided:
            names = [str(d).removeprefix("torch.") for d in (other, leaf.template.dtype)]
            yield SameCall(
                f"{leaf.path} of {names[0]}",
                names[1],
                exact.variant({leaf.path: leaf.template.to(other)}),
                f"forward indexes with {names[0]}, and an operator of backward does not",
                f"{leaf.path}.long() in backward, or refuse {names[0]} in forward",
                meant=False,
            )


def _masks_of_bytes(probe: Probe) -> Iterator[SameCall]:
    """A mask of whole numbers 0 and 1 in one byte each, in which differences and negatives wrap around."""
    exact = probe.exact
    for leaf in exact.leaves:
        t = leaf.template
        whole = t.dtype in _OTHER_BITS and t.layout is torch.strided and t.numel() > 2
        if whole and bool(((t == 0) | (t == 1)).all()):
            usual = str(t.dtype).removeprefix("torch.")
            yield SameCall(
                f"{leaf.path} of uint8",
                usual,
                exact.variant({leaf.path: t.to(torch.uint8)}),
                f"backward calculates with {leaf.path} in its own dtype, in which 0 - 1 is 255",
                f"{leaf.path}.to(grad_output.dtype) before anything is taken from it, or {leaf.path}.bool() with torch.where",
                meant=False,
            )


def _other_ranks(probe: Probe) -> Iterator[SameCall]:
    """A vector as long as the channels, of the rank that the code asks for it."""
    exact = probe.exact
    main = main_leaf(resizable_leaves(exact))
    leaves = {leaf.path: leaf for leaf in exact.wanted if leaf.template.dim() == 1}
    for name, sign, rank in rank_questions(probe.target.described).compared:
        leaf = leaves.get(name) if sign in ("==", "!=") else None
        if leaf is None or main is None or rank != main.template.dim() or rank < 2:
            continue
        for dim in (d for d in range(rank) if main.template.shape[d] == len(leaf.template)):
            shape = [len(leaf.template) if d == dim else 1 for d in range(rank)]
            yield SameCall(
                f"{leaf.path} of shape {tuple(shape)}",
                f"shape {tuple(leaf.template.shape)}",
                exact.variant({leaf.path: leaf.template.reshape(shape)}),
                f"backward returns a gradient of another shape than that of {leaf.path}",
                f"return grad.view({leaf.path}.shape)",
            )


def _same(here: Evaluator, there: Evaluator) -> bool:
    try:
        return all_same(here.values(), there.values())
    except (UserCodeError, RuntimeError):
        return False
