"""How good a sample is that runs: gradients for all inputs, repeatable, every argument used, usual shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .attempt import Attempt
from .evidence import Evidence
from .moment import has_tensors, on_tensors
from .specs import Spec, State

Run = Callable[[State, int], Attempt]


@dataclass(frozen=True, slots=True)
class Quality:
    """What speaks against a sample.

    Args:
        flags: Sentences about what is degenerate, worst first.
        suspects: Parameters that the flags are about.
        order: Compared as a tuple: larger is better.
    """

    flags: tuple[str, ...]
    suspects: tuple[str, ...]
    order: tuple[float, ...]

    @property
    def good(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.flags


def assess(attempt: Attempt, evidence: Evidence, run_state: Run, seed: int) -> Quality:
    """Return the quality of an attempt that passed; runs it on two more draws, once more in dirtied memory, and once per argument."""
    gradients = _gradient_flags(attempt, evidence)
    draws = _draw_flags(attempt, run_state, seed)
    paths = [] if draws else [*_repeat_flags(attempt, evidence, run_state, seed), *_unused_flags(attempt, evidence, run_state, seed)]
    shapes = _shape_flags(attempt, evidence)
    flags = [*gradients, *draws, *paths, *shapes]
    distance = sum(evidence.traits[slot.name].distance(spec.kind) for spec, slot in zip(attempt.state, evidence.slots, strict=True))
    ranks = [len(spec.shape) for spec in attempt.state if spec.kind == "tensor"]
    order = (
        -float(len(gradients)),
        -float(len(draws)),
        -float(len(paths) + len([text for text, _ in shapes if not (paths and text == CONSTANT)])),  # one fact, and no scalar shows the second
        -distance,
        float(max(ranks, default=2) >= 2),
        float(len(attempt.inputs)),
    )
    return Quality(tuple(text for text, _ in flags), tuple(dict.fromkeys(name for _, name in flags if name)), order)


Flag = tuple[str, str]
DIRTY_BLOCKS = 40
GROUPING = ("counts", "offsets")
CONSTANT = "the outputs are constant"
SMALL = 1e-2  # an epsilon rightly changes nothing


def _gradient_flags(attempt: Attempt, evidence: Evidence) -> list[Flag]:
    flags: list[Flag] = []
    for (path, _), gradient in zip(attempt.inputs, attempt.gradients, strict=True):
        name = path.partition("[")[0]
        if gradient is None:
            flags.append((f"no gradient for `{path}`", name))
        elif not bool((gradient.detach() != 0).any()):
            flags.append((f"the gradient of `{path}` is zero", name))
    return flags


def _draw_flags(attempt: Attempt, run_state: Run, seed: int) -> list[Flag]:
    for other in (seed + 1, seed + 2):
        again = run_state(attempt.state, other)
        if not again.passed:
            return [(f"another draw of the same shapes fails: {again.message}", "")]
    return []


def _repeat_flags(attempt: Attempt, evidence: Evidence, run_state: Run, seed: int) -> list[Flag]:
    """Runs must be bitwise equal although freed memory holds other numbers each time: reading memory never written shows here.

    What says which rows belong to which group is suspected: it may leave some out.
    """
    from ..honesty import nan_in_fresh_memory

    groups = [slot.name for spec, slot in zip(attempt.state, evidence.slots, strict=True) if spec.draw in GROUPING]
    like = [*attempt.outputs, *(g for g in attempt.gradients if g is not None)]
    for number in (3.7e7, -1.9e5):
        _dirty_freed_memory(like, number)
        if not same_results(attempt, run_state(attempt.state, seed)):
            return [("two runs with the same seed differ", next(iter(groups), ""))]
    with nan_in_fresh_memory():
        again = run_state(attempt.state, seed)
    return [("two runs with the same seed differ where fresh memory is filled", next(iter(groups), ""))] if again.stage == "not-finite" else []


def _dirty_freed_memory(like: Sequence[torch.Tensor], number: float) -> None:
    """Fill blocks of these sizes with a number and free them: enough of them that some are left once the arguments are built."""
    blocks = [torch.full(t.shape, number, dtype=torch.float64).to(t.dtype) for t in like for _ in range(DIRTY_BLOCKS)]
    del blocks


def same_results(a: Attempt, b: Attempt) -> bool:
    """Return whether two attempts returned the same outputs and gradients bit for bit (NaN equals NaN)."""
    if a.stage != b.stage or len(a.outputs) != len(b.outputs) or len(a.gradients) != len(b.gradients):
        return False
    return all(_equal(x, y) for x, y in zip((*a.outputs, *a.gradients), (*b.outputs, *b.gradients), strict=True))


def _equal(x: torch.Tensor | None, y: torch.Tensor | None) -> bool:
    if x is None or y is None:
        return x is y
    x, y = (t.detach().to_dense() if t.is_sparse else t.detach() for t in (x, y))
    return x.shape == y.shape and x.dtype == y.dtype and torch.equal(torch.nan_to_num(x, nan=1.2345), torch.nan_to_num(y, nan=1.2345))


def _unused_flags(attempt: Attempt, evidence: Evidence, run_state: Run, seed: int) -> list[Flag]:
    flags: list[Flag] = []
    for i, (spec, slot) in enumerate(zip(attempt.state, evidence.slots, strict=True)):
        if (other := _different(spec)) is None:
            continue
        again = run_state((*attempt.state[:i], other, *attempt.state[i + 1 :]), seed)
        if same_results(attempt, again):
            flags.append((f"the value of `{slot.name}` changes nothing", slot.name))
    return flags


def _different(spec: Spec) -> Spec | None:
    if spec.kind == "float" and abs(spec.value) <= SMALL:
        return None
    if spec.kind == "float":
        return spec.with_(value=spec.value * 1.7 + 0.11)
    return on_tensors(spec, lambda one: one.with_(variant=1)) if has_tensors(spec) else None


def _shape_flags(attempt: Attempt, evidence: Evidence) -> list[Flag]:
    flags: list[Flag] = []
    for spec, slot in zip(attempt.state, evidence.slots, strict=True):
        for one in _tensors(spec):
            if one.kind == "index" and (one.value or 3) <= 1:
                flags.append((f"`{slot.name}` holds the index 0 only", slot.name))
            elif one.kind == "tensor" and 1 in one.shape:
                flags.append((f"`{slot.name}` has a size of 1", slot.name))
    outputs = [o.detach() for o in attempt.outputs if o.numel() > 1 and not o.is_sparse]
    if outputs and all(bool((o == o.flatten()[0]).all()) for o in outputs):
        flags.append((CONSTANT, ""))
    if sum(math.prod(o.shape) for o in attempt.outputs) == 0:
        flags.append(("the outputs are empty", ""))
    return flags


def _tensors(spec: Spec) -> Sequence[Spec]:
    return (spec,) if spec.is_tensor else [one for item in spec.items for one in _tensors(item)]
