"""PB615."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor

from ...capture.calls import methods_of
from ...capture.observed_calls import replaced
from ...report.finding import Evidence, Finding
from .. import randomness, tolerance
from ..base import Check, Skipped
from ..evaluate import BACKWARD_SEED, FORWARD_SEED
from ..probe import Probe
from ..randomness import RandomStates
from ..tensors import copy_tensor, same
from ..words import gradient_name

OTHER = 0x0DD


class RandomStateMoved(Check):
    """The op sets the global random state, or its backward draws other random numbers than its forward did.

    Why it matters:
        A seed that is set inside an op makes every later dropout, shuffle and initialisation repeat itself. A backward that draws a mask anew
        differentiates another function than forward computed.

    How it is measured:
        Forward and backward run from two different random states; where the states are equal afterwards, the op set them. A forward that draws
        numbers is held fixed while backward starts from different states: its gradients must not change.

    Example:
        ``torch.manual_seed(0)`` in forward; ``torch.set_rng_state(ctx.state)`` in backward without putting the old one back; dropout recomputed in
        backward.

    Instead:
        ``torch.random.fork_rng()`` around what needs a seed, or a ``torch.Generator`` of one's own; save the mask, or the state and restore it.

    Limits:
        torch's CPU generator, numpy's and Python's global ones.

    References:
        allenai/OLMo-core#828, pytorch/xla#4690.
    """

    code = "PB615"
    name = "random-state-moved"
    severity = "error"
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        first = _ends(probe, FORWARD_SEED, BACKWARD_SEED)
        others = {"forward": _ends(probe, OTHER, BACKWARD_SEED), "backward": _ends(probe, FORWARD_SEED, OTHER)}
        for method, second in others.items():
            overwritten = _overwritten(first[method], second[method])
            if overwritten:
                yield self._sets(probe, method, sorted(overwritten))
        if not probe.repeats.forward_draws and not _forward_draws(first["forward"]):
            return
        if not probe.declaration.exact:
            raise Skipped("declared: the gradient is not the forward's derivative, and may be random")
        gap = _depends(probe)
        if gap is not None:
            yield self._redraws(probe, *gap)

    def _sets(self, probe: Probe, method: str, generators: list[str]) -> Finding:
        owner = probe.backward_name.removesuffix(".backward")
        return self.finding(
            probe,
            f"{owner}.{method} sets the global random state of {' and '.join(generators)}",
            location=probe.forward_location if method == "forward" else probe.backward_location,
            evidence=[Evidence(f"started from two different states, {method} ends in the same one", got="equal states", expected="different states")],
            cause="a seed or state is set and not put back",
            certain=True,
            fix="with torch.random.fork_rng(): around what needs the seed, or a torch.Generator of its own",
            path="",
        )

    def _redraws(self, probe: Probe, path: str, error: float, allowed: float) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} depends on the random state at backward time, though forward drew the numbers",
            evidence=[
                Evidence(
                    f"the same forward, backward from two random states: {gradient_name(path)}",
                    error=error,
                    tolerance=allowed,
                    why_tolerance=tolerance.WHY_LINEAR,
                )
            ],
            cause="backward draws its random numbers again instead of using forward's",
            certain=True,
            fix="save what was drawn (the mask), or save torch.get_rng_state() in forward and set it inside fork_rng in backward",
        )


def _ends(probe: Probe, forward_seed: int, backward_seed: int) -> dict[str, list[tuple[RandomStates, RandomStates]]]:
    """Return the random states before and after every forward and backward method of one evaluation."""
    seen: dict[str, list[tuple[RandomStates, RandomStates]]] = {"forward": [], "backward": []}
    with ExitStack() as stack:
        for function in probe.baseline.functions:
            for name in methods_of(function):
                stack.enter_context(replaced(function, name, _noting(getattr(function, name), seen["forward" if name in _FORWARD else "backward"])))
        outcome = probe.native.forward(seed=forward_seed)
        probe.native.vjp(outcome, probe.cotangents(outcome), seed=backward_seed)
    return seen


_FORWARD = ("forward", "setup_context")


def _noting(method: Callable[..., Any], seen: list[tuple[RandomStates, RandomStates]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _states(seen):
            return method(*args, **kwargs)

    return run


@contextmanager
def _states(seen: list[tuple[RandomStates, RandomStates]]) -> Iterator[None]:
    before = randomness.read()
    yield
    seen.append((before, randomness.read()))


def _overwritten(a: list[tuple[RandomStates, RandomStates]], b: list[tuple[RandomStates, RandomStates]]) -> set[str]:
    found: set[str] = set()
    for (a_before, a_after), (b_before, b_after) in zip(a, b, strict=False):
        moved = a_before.differing(a_after) | b_before.differing(b_after)
        found |= (moved & a_before.differing(b_before)) - a_after.differing(b_after)
    return found


def _forward_draws(seen: list[tuple[RandomStates, RandomStates]]) -> bool:
    return any(before.differing(after) for before, after in seen)


def _depends(probe: Probe) -> tuple[str, float, float] | None:
    evaluator = probe.native
    outcome = evaluator.forward()
    cotangents = probe.cotangents(outcome)
    gradients: list[list[Tensor | None]] = []
    for seed in (BACKWARD_SEED, OTHER):
        fresh = evaluator.forward()
        gradients.append(evaluator.vjp(fresh, [copy_tensor(c) for c in cotangents], seed=seed))
    for leaf, a, b in zip(evaluator.wanted, *gradients, strict=True):
        if same(a, b):
            continue
        if a is None or b is None or a.shape != b.shape:
            return leaf.path, float("inf"), 0.0
        allowed = tolerance.linear(a.dtype, float(b.detach().abs().max()), a.numel())
        error = float((a - b).detach().abs().max())
        if not error <= allowed:
            return leaf.path, error, allowed
    return None
