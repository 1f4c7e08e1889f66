"""Interleaved timing: every contender takes its turn in every round, A B C, C B A, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .._collector import without_collector
from .result import Run
from .spread import Spread

Times = tuple[float, float]
"""Seconds of one forward and of one backward."""
Probe = Callable[[int], Times]
"""Called with a number of calls, makes that many and returns what one took."""

TURN = 2e-3
"""Seconds that a contender's turn shall last, so that one interruption does not outweigh it."""
MOST_CALLS, LEAST_ROUNDS, MOST_ROUNDS = 500, 5, 101
WARM = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How to spend the time.

    Args:
        rounds: How often every probe takes its turn.
        calls: How many calls each makes in a turn.
    """

    rounds: int
    calls: Mapping[str, int]


def plan(probes: Mapping[str, Probe], seconds: float) -> Plan:
    """Return a plan that takes about `seconds`, but at least five rounds. The probes are warmed up for it."""
    took = {name: min(sum(probe(1)) for _ in range(WARM)) for name, probe in probes.items()}
    calls = {name: max(1, min(MOST_CALLS, math.ceil(TURN / max(once, 1e-9)))) for name, once in took.items()}
    round_seconds = sum(took[name] * calls[name] for name in probes)
    rounds = int(seconds / max(round_seconds, 1e-9))
    return Plan(max(LEAST_ROUNDS, min(MOST_ROUNDS, rounds)), calls)


def interleave(probes: Mapping[str, Probe], plan: Plan) -> dict[str, list[Times]]:
    """Return each probe's times, one a round; the order is turned round every time and the garbage collector waits."""
    found: dict[str, list[Times]] = {name: [] for name in probes}
    order = list(probes)
    gc.collect(1)  # the whole heap takes longer than many a benchmark
    with without_collector():
        for number in range(plan.rounds):
            for name in order if number % 2 == 0 else reversed(order):
                found[name].append(probes[name](plan.calls[name]))
            gc.collect(0)
    return found


def summarise(name: str, times: Sequence[Times], ours: Sequence[Times] | None = None, limit: Sequence[float] = (), *, backward: bool = True) -> Run:
    """Return the run of one contender.

    Args:
        name: The contender.
        times: Its times.
        ours: The benched op's times in the same rounds; None for itself.
        limit: What the limit took in the same rounds; empty where there is none.
        backward: Whether there is a backward.
    """
    both = [sum(t) for t in times]
    of_limit = Spread.of_ratios(both, limit) if limit else None
    run = Run(name, Spread.of(f for f, _ in times), Spread.of(b for _, b in times) if backward else None, Spread.of(both), of_limit=of_limit)
    if ours is None:
        return run
    comparable = backward and all(b for _, b in (*ours, *times))
    return replace(
        run,
        ratio=Spread.of_ratios([sum(t) for t in ours], both),
        forward_ratio=Spread.of_ratios([f for f, _ in ours], [f for f, _ in times]),
        backward_ratio=Spread.of_ratios([b for _, b in ours], [b for _, b in times]) if comparable else None,
    )
