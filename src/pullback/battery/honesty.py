"""Experiments that tell a kernel from one that agrees with its reference only as long as it is looked at in a certain way.

Each returns what the op does instead of its work, or None. None of them has anything against caches as such: what is kept under a key that holds all
that the result depends on stays right.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..report.finding import Evidence
from . import tolerance
from .against import Against, as_plain, difference
from .evaluate import Arguments, Evaluator, Outcome, UserCodeError
from .growth import Growth
from .paths import Path, follow
from .probe import Probe
from .sizes import Resizer, Symbol, symbols
from .state import pristine
from .tensors import copy_tensor, differentiable, random_like, same
from .unseen import unseen
from .value import SIGNED
from .words import gradient_name

SIZES = (7, 129, 1025)
"""A part of a small block, and just above the usual block sizes."""
FEW_DIGITS = 1e-4
"""Rounding above this is that of bfloat16 and float16."""


@dataclass(frozen=True, slots=True)
class Trick:
    """What an op does instead of its work.

    Args:
        said: The end of a sentence that begins with the op's name: ``".forward returns memory that it never wrote"``.
        cause: What it does, and how that was proved.
        fix: What to write instead.
        evidence: What was seen.
        path: The input whose gradient is concerned; None for the forward.
        harmless: Whether results are right all the same.
    """

    said: str
    cause: str
    fix: str
    evidence: Evidence
    path: str | None = None
    harmless: bool = False


@contextmanager
def nan_in_fresh_memory() -> Iterator[None]:
    """Let torch fill the memory of new tensors with NaN (integers: the largest value)."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    setting: Any = torch.utils.deterministic
    filled = setting.fill_uninitialized_memory
    _compat.use_deterministic_algorithms(True, warn_only=True)
    setting.fill_uninitialized_memory = True
    try:
        yield
    finally:
        setting.fill_uninitialized_memory = filled
        _compat.use_deterministic_algorithms(before[0], warn_only=before[1])


def unwritten(probe: Probe, against: Against) -> Trick | None:
    """Find outputs and gradients that are returned as `torch.empty` made them."""
    op = against.op
    with nan_in_fresh_memory():
        outcome = op.forward()
        got = [as_plain(y).clone() for y in outcome.outputs]
        cotangents = [random_like(y, torch.Generator().manual_seed(probe.settings.seed), SIGNED) for y in outcome.live]
        try:
            gradients = op.vjp(outcome, against.shared(outcome, cotangents)) if cotangents else []
        except UserCodeError:
            gradients = []
    expected = against.truth.forward().outputs
    for path, mine, want in zip(outcome.paths, got, expected, strict=False):
        count = _nans(mine, want)
        if count:
            return _never_written(".forward", path, count, mine.numel(), None)
    wanted = against.gradients(outcome, cotangents) if gradients else None
    for leaf, mine, want in zip(op.wanted, gradients, wanted or (), strict=False):
        count = 0 if mine is None or want is None else _nans(as_plain(mine), want)
        if count:
            return _never_written(".backward", gradient_name(leaf.path), count, leaf.template.numel(), leaf.path)
    return None


def _nans(got: Tensor, want: Tensor) -> int:
    if got.shape != want.shape or not differentiable(got) or not differentiable(want):
        return 0
    return int((torch.isnan(got) & torch.isfinite(want.detach())).sum())


def _never_written(method: str, what: str, count: int, total: int, path: str | None) -> Trick:
    return Trick(
        f"{method} returns memory that it never wrote",
        f"{what} is made by torch.empty or one of its kind, and {'nothing' if count == total else 'not all of it'} is written afterwards",
        "Write every element (look at the last block and at masks), or begin with torch.zeros.",
        Evidence(
            f"{what} where fresh memory is filled with NaN first", f"{count} of {total} elements are NaN", "numbers, as the reference gives them"
        ),
        path,
    )


def independent(probe: Probe, against: Against) -> Trick | None:
    """Find an op that returns the same outputs, bit for bit, for other inputs, where the reference's differ."""
    op, values = against.op, moved(against.op, 1)
    if not values:
        return None
    first = _outputs(op.forward())
    second = _outputs(op.forward(values=values))
    if not first or len(first) != len(second) or not all(map(same, first, second)) or not any(y.numel() for y in first):
        return None
    here = [y.detach() for y in against.truth.forward().outputs]
    there = [y.detach() for y in against.truth.forward(values=values).outputs]
    gaps = (difference("output", b.to(a.dtype), a, against.dtype) for a, b in zip(here, there, strict=False) if a.shape == b.shape)
    gap = next((g for g in gaps if g is not None), None)
    if gap is None:
        return None
    with pristine(probe.pristine, probe.target):
        again = _outputs(op.forward(values=values))
    names = ", ".join(values)
    if not all(map(same, first, again)):
        cause = f"the result of the first call is kept and returned again: its key (the shape, say) leaves out the values of {names}"
    elif all(not bool(y.any()) for y in first):
        cause = f"it returns zeros whatever the values of {names} are"
    else:
        cause = f"it returns a constant, or a result kept from an earlier call: nothing depends on the values of {names}"
    evidence = Evidence(
        f"outputs after all of {names} moved by up to 1/8", "the same, bit for bit", f"a change of {gap.error:.2g}, as in the reference"
    )
    return Trick(".forward does not depend on its inputs", cause, "Compute the result from the values of the arguments at each call.", evidence)


def moved(op: Evaluator, number: int) -> dict[str, Tensor]:
    """Return other values for the differentiated inputs: each entry grows by 1/16 to 1/8 of itself, so that signs, zeros and order of size stay."""
    generator = torch.Generator().manual_seed(0xC0FFEE + number)
    values: dict[str, Tensor] = {}
    for leaf in op.wanted:
        growth = 1 + (1 + torch.rand(leaf.template.shape, generator=generator, dtype=torch.float64)) / 16
        other = copy_tensor((leaf.template.detach().cpu() * growth).to(leaf.template.dtype).to(leaf.template.device), like=leaf.template)
        if not same(other, leaf.template.detach()):
            values[leaf.path] = other
    return values


def _outputs(outcome: Outcome) -> list[Tensor]:
    return [as_plain(y).clone() for y in outcome.outputs]


def stale(probe: Probe, against: Against) -> Trick | None:
    """Find results that are kept under the address of an input, after its values were changed in place, as an optimizer does."""
    op, values = against.op, moved(against.op, 2)
    if op.nonleaf or not values:
        return None
    arguments = op.arguments()
    first = op.forward(arguments)
    old = _outputs(first)
    if not _change(op, arguments, values):
        return None
    second = op.forward(arguments)
    new = _outputs(second)
    evidence = against.outputs(values, outcome=second)
    names = ", ".join(values)
    how = f"the second call with the same {names}, changed in place in between"
    if evidence is not None and against.outputs(values) is None:
        kept = all(map(same, old, new))
        return Trick(
            ".forward returns a stale result after its input was changed in place",
            f"what is kept under the address (data_ptr) or identity of {names} is {'returned' if kept else 'used'} although the values there changed",
            "Make x._version and x.data_ptr() part of the key and keep x alive, or keep nothing between calls.",
            replace(evidence, text=f"{how}: {evidence.text}"),
        )
    return _stale_gradient(probe, against, second, values, how) if evidence is None else None


def _change(op: Evaluator, arguments: Arguments, values: Mapping[str, Tensor]) -> bool:
    """Write the new values into the tensors that were passed; False where forward has changed them itself."""
    before = {leaf.path: leaf.template for leaf in op.leaves}
    tensors = dict(zip(before, arguments.tensors, strict=True))
    if not all(same(tensors[path].detach(), before[path].detach()) for path in before):
        return False
    with torch.no_grad():
        for path, value in values.items():
            tensors[path].copy_(value)
    return True


def _stale_gradient(probe: Probe, against: Against, second: Outcome, values: Mapping[str, Tensor], how: str) -> Trick | None:
    op = against.op
    if not second.carrying or probe.declaration.deliberate:
        return None
    cotangents = [random_like(y, torch.Generator().manual_seed(probe.settings.seed), (1.0,)).abs() for y in second.live]
    got = op.vjp(second, [copy_tensor(c) for c in cotangents])
    fresh = op.forward(values=values)
    expected = op.vjp(fresh, [copy_tensor(c) for c in cotangents])
    for leaf, a, b in zip(op.wanted, got, expected, strict=True):
        gap = None if a is None or b is None else difference(gradient_name(leaf.path), a.detach(), b.detach(), against.dtype)
        if gap is not None:
            return Trick(
                ".backward returns a stale gradient after its input was changed in place",
                "what is kept under the address (data_ptr) or identity of an input is used although the values there changed",
                "Keep what backward needs on ctx: save_for_backward.",
                replace(gap, text=f"{how}: {gap.text}"),
                leaf.path,
            )
    return None


def watched(probe: Probe, against: Against) -> Trick | None:
    """Find an op that computes something else where no checker is among its callers and among the loaded modules."""
    op, values = against.op, moved(against.op, 3)
    if any(leaf.template.device.type != "cpu" for leaf in op.leaves):
        return None
    open_outcome = op.forward(values=values)
    alone_outcome = _alone(op).forward(values=values)
    for path, a, b in zip(open_outcome.paths, _outputs(open_outcome), _outputs(alone_outcome), strict=False):
        gap = _other_result(path, a, b, against.dtype)
        if gap is not None:
            return _knows(".forward", gap, None)
    return _knows_in_backward(probe, against, values) if open_outcome.carrying and not op.through_backward else None


def _knows_in_backward(probe: Probe, against: Against, values: Mapping[str, Tensor]) -> Trick | None:
    op = against.op
    if probe.repeats.backward_draws:
        return None
    seen, hidden = op.forward(values=values), op.forward(values=values)
    cotangents = [random_like(y, torch.Generator().manual_seed(probe.settings.seed), (1.0,)).abs() for y in seen.live]
    roots = hidden.arguments.roots
    alone = unseen(torch.autograd.grad, hidden.live, roots, [copy_tensor(c) for c in cotangents], allow_unused=True)
    for leaf, a, b in zip(op.wanted, op.vjp(seen, [copy_tensor(c) for c in cotangents]), alone, strict=True):
        gap = None if a is None or b is None else _other_result(gradient_name(leaf.path), a.detach(), b.detach(), against.dtype)
        if gap is not None:
            return _knows(".backward", gap, leaf.path)
    return None


def _alone(op: Evaluator) -> Evaluator:
    call = op.target.call
    return op.variant(target=replace(op.target, call=lambda *args, **kwargs: unseen(call, *args, **kwargs)))


def _other_result(path: str, seen: Tensor, alone: Tensor, dtype: torch.dtype) -> Evidence | None:
    if seen.shape != alone.shape or not differentiable(alone) or alone.numel() == 0:
        return None
    finite = torch.isfinite(alone)
    scale = float(alone[finite].abs().max()) if bool(finite.any()) else 0.0
    gap = torch.where(finite, (seen - alone).abs(), 0.0).nan_to_num(nan=torch.inf)
    error, allowed = float(gap.max()), tolerance.linear(dtype, scale, alone.numel())
    if error <= allowed:
        return None
    at = int(gap.argmax())
    text = f"{path} in a thread without this package on the stack, hidden in sys.modules"
    return Evidence(
        text, f"{alone.flatten()[at].item():.6g}", f"{seen.flatten()[at].item():.6g}, as when checked", error, allowed, tolerance.WHY_LINEAR
    )


def _knows(method: str, gap: Evidence, path: str | None) -> Trick:
    return Trick(
        f"{method} computes something else when it is not being checked",
        "it looks for a checker (in its callers, in sys.modules or in the environment) and takes another path when it finds one",
        "Compute the same for every caller.",
        gap,
        path,
    )


def skipped_work(against: Against) -> Trick | None:
    """Find an op that runs fewer of its lines for values that it has seen before, in other tensors: it compares or hashes contents."""
    op = against.op
    alive: list[Any] = []
    paths: list[Path] = []
    for number in (4, 5, 5, 6, 6):
        values = moved(op, number)
        if not values:
            return None
        arguments = op.arguments(values)
        outcome, path = follow(lambda arguments=arguments: op.forward(arguments))
        alive += [outcome, arguments]
        paths.append(path)
    if not all(path.complete for path in paths):
        return None
    _, first, again, other, once_more = (path.lines for path in paths)
    left_out = first - again
    if not left_out or left_out != other - once_more:
        return None
    code, line = min(left_out, key=lambda place: (place[0].co_filename, place[1]))
    return Trick(
        ".forward skips its work for values that it has seen before",
        "it compares its inputs with those of earlier calls and returns what it kept: a benchmark that repeats its inputs measures nothing",
        "Compute at each call, and leave caches to the caller.",
        Evidence(
            f"lines that do not run when the same values come again in other tensors: {len(left_out)}", f"{code.co_name}, line {line}, is left out"
        ),
        harmless=True,
    )


def calls_reference(against: Against, reference: Callable[..., Any]) -> Trick | None:
    """Find an op whose output is what its reference, a Python function, returned to it."""
    outcome, path = follow(against.op.forward)
    codes = _codes(against, reference)
    for code, tensor in path.returned:
        if code in codes and any(same(as_plain(tensor), as_plain(y)) for y in outcome.outputs):
            return Trick(
                ".forward calls its reference and returns what that gives",
                f"`{code.co_name}` at line {code.co_firstlineno} is the reference: it was compared with itself, and no kernel of its own was checked",
                "Check where the kernel runs (--device), or give a reference that the op does not use.",
                Evidence(f"while forward ran, `{code.co_name}` ran too, and returned the op's output"),
                harmless=True,
            )
    return None


def _codes(against: Against, reference: Callable[..., Any]) -> set[Any]:
    """The code of the reference, and of the function to which a lambda leaves everything."""
    code = getattr(reference, "__code__", None)
    if code is None:
        return set()
    outcome, path = follow(against.truth.forward)
    return {code, *(c for c, tensor in path.returned if any(tensor is y for y in outcome.outputs))}


def other_sizes(against: Against, seconds: float) -> Iterator[tuple[str, Evidence, str | None]]:
    """Yield where outputs differ from the reference's at other sizes: the size in words, what differs, and the cause where it is known.

    Fresh memory is filled with NaN. It ends after some seconds, and leaves out sizes that take too much memory. Ops of two
    or three digits are left alone at large sizes: long sums lose them.
    """
    sizes = SIZES if tolerance.eps(against.dtype) < FEW_DIGITS else SIZES[:1]
    end = time.perf_counter() + seconds
    resizer = Resizer(against.op)
    for symbol in symbols(against.op):
        growth = Growth(functools.partial(_passes, against, symbol))
        for size in sizes:
            if size == symbol.size or time.perf_counter() >= end or not growth.bears(size):
                continue
            op = resizer.resized(symbol, size)
            try:
                found = None if op is None else _at_size(against.at(op))
            except UserCodeError:
                break
            if found is not None:
                yield (f" when {symbol.said} is {size}", *found)
                break


def _passes(against: Against, symbol: Symbol, size: int) -> list[Evaluator]:
    op = Resizer(against.op).resized(symbol, size)
    return [] if op is None else [op, against.at(op).truth]


def _at_size(against: Against) -> tuple[Evidence, str | None] | None:
    with nan_in_fresh_memory():
        outcome = against.op.forward()
    got, expected = [as_plain(y) for y in outcome.outputs], against.truth.forward().outputs
    if [y.shape for y in expected] != [y.shape for y in got][: len(expected)]:
        return None
    evidence = against.outputs(outcome=outcome)
    if evidence is None:
        return None
    nans = sum(map(_nans, got, expected))
    return evidence, "a part of the output is never written: where fresh memory is filled with NaN first, NaN is returned" if nans else None
