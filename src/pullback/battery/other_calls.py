"""Other calls of the same op, to be made before or after one: with other values, fewer rows, other indices, in other modes of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from ..capture.saved import reachable
from .evaluate import Arguments, Evaluator, Outcome
from .tensors import IMMUTABLE, copy_tensor, differentiable, same

FROZEN = 3
"""How many inputs are in turn the only one that requires grad."""
FLAGS = 2


def other_modes(device: str) -> Iterator[tuple[AbstractContextManager[object], str]]:
    """Yield the modes in which a program may run an op before it trains with it, and how messages name them."""
    yield torch.no_grad(), "torch.no_grad()"
    if torch.amp.is_autocast_available(device):
        yield torch.autocast(device, dtype=torch.bfloat16), "torch.autocast to bfloat16"
    yield torch.inference_mode(), "torch.inference_mode()"


def earlier_calls(evaluator: Evaluator) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield what a program may have run before a call like those of `evaluator`, and how messages name it."""
    for mode, name in other_modes(next((leaf.template.device.type for leaf in evaluator.wanted), "cpu")):
        yield partial(_forward_in, mode, evaluator), f"under {name}"
    paths = [leaf.path for leaf in evaluator.wanted]
    for path in paths[:FROZEN] if len(paths) > 1 else ():
        yield partial(evaluator.forward, requires_grad=(path,)), f"with {path} alone requiring grad"


def _forward_in(mode: AbstractContextManager[object], evaluator: Evaluator) -> Outcome:
    arguments = evaluator.arguments()
    with mode:
        return evaluator.forward(arguments)


def other_inputs(first: Evaluator) -> Iterator[tuple[Evaluator, str]]:
    """Yield the same call with other values, with fewer rows, with other numbers, and with each flag turned round."""
    floating = [leaf for leaf in first.leaves if differentiable(leaf.template) and leaf.template.layout is torch.strided]
    leaves = [leaf for leaf in floating if leaf.wanted]
    yield first.variant({leaf.path: _other(leaf.template) for leaf in floating}), "with other values"
    rows = {leaf.template.shape[0] for leaf in leaves if leaf.template.dim()}
    if len(rows) == 1 and (n := rows.pop()) > 1:
        dense = [leaf for leaf in first.leaves if leaf.template.dim() and leaf.template.layout is torch.strided]
        fewer = {leaf.path: copy_tensor(leaf.template[: n - 1]) for leaf in dense if leaf.template.shape[0] == n}
        yield first.variant(fewer), "of different sizes"
    numbers = {name: value * 1.125 for name, value in first.named if type(value) is float and value}
    if numbers:
        yield first.variant(numbers), "with other numbers"
    flags = [(name, not value) for name, value in first.named if isinstance(value, bool)]
    yield from ((first.variant({name: value}), f"with {name}={value}") for name, value in flags[:FLAGS])


def _other(t: Tensor) -> Tensor:
    """Other values of the same kind: the tensor's own in another order, scaled by an exact factor."""
    moved = t.detach().flatten().roll(1).view(t.shape) if t.numel() > 1 else t.detach()
    return copy_tensor(moved * 1.125, like=t)


def other_entries(first: Evaluator) -> Iterator[tuple[Evaluator, str]]:
    """Yield the same call with the entries of its index arguments in another order, and with other numbers in what is not differentiated."""
    fixed = [leaf for leaf in first.leaves if not leaf.wanted and leaf.template.layout is torch.strided and leaf.template.numel() > 1]
    for leaf in fixed:
        t = leaf.template
        moved = _other(t) if differentiable(t) else copy_tensor(t.roll(1, max(range(t.dim()), key=t.size)), like=t)
        if t.dtype is not torch.bool and not same(moved, t) and (differentiable(t) or not _offsets(t)):
            yield first.variant({leaf.path: moved}), leaf.path


def objects_among(evaluator: Evaluator) -> list[str]:
    """The names of arguments that a caller may hand to call after call and that can hold what a call left there: objects, dicts, lists."""
    wanted = [leaf.path for leaf in evaluator.wanted]
    return [
        name
        for name, value in evaluator.named
        if not isinstance(value, (Tensor, torch.Generator, *IMMUTABLE)) and not callable(value) and not any(_within(path, name) for path in wanted)
    ]


def _within(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}["))


def with_other_tensors(first: Evaluator, kept: Sequence[str]) -> Evaluator | None:
    """The same call with other values of what is differentiated outside of some arguments; None where that is nothing."""
    moved = {leaf.path: _other(leaf.template) for leaf in first.wanted if not any(_within(leaf.path, name) for name in kept)}
    return first.variant(moved) if moved else None


def with_objects_of(evaluator: Evaluator, earlier: Arguments, names: Sequence[str]) -> Arguments:
    """Fresh arguments, but for those of some names: they are the very ones of an earlier call."""
    fresh = evaluator.arguments()
    order = [name for name, _ in evaluator.named][: len(fresh.args)]
    fresh.args = tuple(earlier.args[i] if name in names else value for i, (name, value) in enumerate(zip(order, fresh.args, strict=True)))
    fresh.kwargs |= {name: earlier.kwargs[name] for name in names if name in earlier.kwargs}
    return fresh


def _offsets(t: Tensor) -> bool:
    """Whether an index argument is likely to hold where segments begin: another order is none."""
    return t.dim() == 1 and int(t[0]) == 0 and bool((t.diff() >= 0).all())


def held_tensors(evaluator: Evaluator, arguments: Arguments) -> dict[str, Tensor]:
    """Copies of all tensors that the arguments hold and that are not differentiated."""
    names = [name for name, _ in evaluator.named]
    found = [pair for name, value in zip(names, (*arguments.args, *arguments.kwargs.values()), strict=True) for pair in reachable(value, name)]
    return {path: copy_tensor(t) for path, t in found if not t.requires_grad}


def fixed_cotangents(outcome: Outcome) -> list[Tensor]:
    """Signed cotangents that depend on nothing but the position."""
    made = []
    for y in outcome.live:
        signs = torch.arange(y.numel(), dtype=torch.float64).add(1).mul(2.399963).sin().round(decimals=3)
        made.append(torch.empty_like(y, memory_format=torch.preserve_format).detach().copy_(signs.view(y.shape)))
    return made
