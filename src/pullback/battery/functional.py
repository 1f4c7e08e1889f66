"""The op as a function of its wanted tensors alone, as torch.func takes functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import trees
from .base import Skipped
from .evaluate import FORWARD_SEED, Evaluator
from .probe import Probe
from .tensors import copy_tensor


@dataclass(slots=True)
class Functional:
    """A pure function of the wanted inputs.

    Args:
        call: Takes one tensor for each of `paths`, returns the outputs that carry gradients as a tuple.
        paths: Names of the inputs.
        points: Where it is evaluated.
        cotangents: One for each output.
        outputs: Shapes of the outputs.
    """

    call: Callable[..., tuple[Tensor, ...]]
    paths: tuple[str, ...]
    points: tuple[Tensor, ...]
    cotangents: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def scalar(self, *inputs: Tensor) -> Tensor:
        """Return the outputs paired with the cotangents and summed, which is what `grad` differentiates."""
        pairs = zip(self.call(*inputs), self.cotangents, strict=True)
        return sum(((y * c).sum() for y, c in pairs), start=self.points[0].new_zeros(()))  # type: ignore[return-value]


def functional(probe: Probe, evaluator: Evaluator | None = None) -> Functional:
    """Return the op as a function of its wanted inputs.

    Raises:
        Skipped: where the op cannot be such a function: it changes its arguments, or gradients are complex.
    """
    evaluator = evaluator or probe.native
    outcome = evaluator.forward()
    if evaluator.nonleaf:
        raise Skipped("forward changes its arguments in place")
    if any(t.is_complex() for t in (*outcome.live, *(leaf.template for leaf in evaluator.wanted))):
        raise Skipped("complex tensors")
    carrying = tuple(outcome.carrying)
    arguments = evaluator.arguments(requires_grad=())
    wanted = {id(t): i for i, t in enumerate(t for t, leaf in zip(arguments.tensors, evaluator.leaves, strict=True) if leaf.wanted)}

    def call(*inputs: Tensor) -> tuple[Tensor, ...]:
        def swap(_: str, leaf: Any) -> Any:
            return inputs[wanted[id(leaf)]] if id(leaf) in wanted else leaf

        args = [trees.map_leaves(swap, a) for a in arguments.args]
        kwargs = {k: trees.map_leaves(swap, v) for k, v in arguments.kwargs.items()}
        result = evaluator.target.call(*args, **kwargs)
        outputs = [result] if isinstance(result, Tensor) else [t for _, t in trees.leaves(result) if isinstance(t, Tensor)]
        return tuple(outputs[i] for i in carrying)

    points = tuple(copy_tensor(leaf.template) for leaf in evaluator.wanted)
    live = tuple(y.detach() for y in outcome.live)
    return Functional(call, tuple(leaf.path for leaf in evaluator.wanted), points, tuple(probe.cotangents(outcome)), live)


def held(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)`` under the random state in which forwards run."""
    torch.default_generator.manual_seed(FORWARD_SEED)
    return function(*args)
