"""A setting and a size at once: what is right with either of them, and wrong with both (a last window, a padded tail, an odd stride)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from .branches import other_settings
from .evaluate import UserCodeError
from .probe import Probe
from .refusals import blames_torch
from .size_sweep import Sweep
from .sizes import Resizer, Symbol, symbols
from .value import InputVerdict
from .variants import Variant, other_branches, other_numbers

BUDGET = 0.4
SIZES = (7, 17)
"""Odd ones just above and below usual small blocks, which sweeps of the sample's own setting have found right."""
NUMBERS = (2, 3)
MOST = 8


@dataclass(frozen=True, slots=True)
class Together:
    """The call with another setting at another size.

    Args:
        variant: The setting.
        symbol: What changed its size.
        size: To what.
        value: The worst input's verdict, where it is wrong.
        error: What backward raised.
    """

    variant: Variant
    symbol: Symbol
    size: int
    value: InputVerdict | None = None
    error: UserCodeError | None = None


def settings_at_sizes(probe: Probe, sweep: Sweep) -> Iterator[Together]:
    """Yield what goes wrong, once for every setting, where the setting alone and the size alone are right."""
    end = time.thread_time() + BUDGET
    for variant in _settings(probe):
        found = next((t for t in _at_sizes(probe, sweep, variant, end) if _alone_right(probe, sweep, t)), None)
        if found is not None:
            yield found
        if time.thread_time() > end:
            return


def _settings(probe: Probe) -> Iterator[Variant]:
    """Flags, words and small whole numbers that say neither which axis nor how large one is."""
    taken = 0
    sizes = {n for leaf in probe.exact.leaves for n in leaf.template.shape}
    for variant in chain(other_branches(probe), other_settings(probe), other_numbers(probe)):
        value = variant.value
        steps = type(value) is int and value in NUMBERS and dict(probe.exact.named).get(variant.path) not in sizes
        if (isinstance(value, (bool, str)) or steps) and not variant.guessed:
            taken += 1
            yield variant
        if taken == MOST:
            return


def _at_sizes(probe: Probe, sweep: Sweep, variant: Variant, end: float) -> Iterator[Together]:
    if sweep.judge(variant.evaluator)[0] != "right":
        return
    resizer = Resizer(variant.evaluator)
    for symbol in symbols(variant.evaluator):
        for size in SIZES:
            evaluator = resizer.resized(symbol, size) if size != symbol.size and time.thread_time() < end else None
            if evaluator is None:
                continue
            verdict, error, value, _ = sweep.judge(evaluator)
            if verdict == "wrong" or (verdict == "crash" and error is not None and not blames_torch(error)):
                yield Together(variant, symbol, size, value, error)


def _alone_right(probe: Probe, sweep: Sweep, together: Together) -> bool:
    """Whether the size is right with the sample's setting, and wrong with the other one however its contents are drawn."""
    plain = Resizer(probe.exact).resized(together.symbol, together.size)
    if plain is None or sweep.judge(plain)[0] != "right":
        return False
    resizer = Resizer(together.variant.evaluator)
    again = [resizer.resized(together.symbol, together.size) for _ in range(2)]
    return all(e is not None and sweep.judge(e)[0] in ("wrong", "crash") for e in again)
