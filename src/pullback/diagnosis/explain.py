"""Rank the hypotheses on a mismatch and test the winners on fresh inputs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from .mismatch import Fit, Guess, Mismatch

REPLAYS = 2
TRIES = 8
UNEXPLAINED = 1e-3
ROUNDING = 1e-11
ROUNDINGS = 16
"""How many units of a narrow dtype two right gradients may lie apart."""
Replay = Callable[[int], Mismatch | None]
"""Returns the n-th fresh mismatch of the same gradient: new inputs of the same shapes, new cotangents. None where that cannot be had."""


class Hypothesis:
    """One way in which gradients go wrong. Subclasses live one to a file in `hypotheses/`.

    Attributes:
        name: The vocabulary's word; the file's name with hyphens.
        rank: Simpler explanations have lower ranks and win ties.
    """

    name: ClassVar[str]
    rank: ClassVar[int]

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        """Yield concrete forms of the fault that could explain the mismatch; each is checked against it by the caller."""
        raise NotImplementedError


@cache
def hypotheses() -> tuple[Hypothesis, ...]:
    """Return one instance of every hypothesis, simplest first."""
    from . import hypotheses as package

    found: list[Hypothesis] = []
    for module in pkgutil.iter_modules(package.__path__):
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        found.extend(
            value()
            for value in vars(loaded).values()
            if isinstance(value, type) and issubclass(value, Hypothesis) and value.__module__ == loaded.__name__ and not module.name.startswith("_")
        )
    return tuple(sorted(found, key=lambda h: (h.rank, h.name)))


def explain(mismatch: Mismatch, replay: Replay, resized: Callable[[], Sequence[Mismatch]] = tuple) -> tuple[Guess, ...]:
    """Return the causes that reproduce the wrong gradient, best first.

    A guess is certain when its prediction, fixed on the first mismatch, also gives what backward returned on `REPLAYS` fresh ones, on each of which
    it differs from the right gradient; one that rests on a number must hold at other sizes as well. Guesses that a replay refutes are dropped.

    Args:
        mismatch: The wrong gradient.
        replay: Gives fresh mismatches of the same gradient.
        resized: Gives mismatches of the same gradient at other sizes of the arguments.
    """
    fresh: list[Mismatch] | None = None
    others: Sequence[Mismatch] | None = None
    likely: list[Guess] = []
    for hypothesis in hypotheses():
        for fit in hypothesis.fit(mismatch):
            if not _explains(fit, mismatch):
                continue
            if fresh is None:
                fresh = _fresh(replay)
            if not fresh:
                likely.append(Guess(hypothesis.name, fit.text, fit.fix, mend=fit.mend))
                break
            if len(fresh) < REPLAYS or not all(_explains(fit, m) for m in fresh):
                continue
            if fit.sized and others is None:
                others = [m for m in resized() if visible(m)]
            if fit.sized and not all(_explains(fit, m) for m in others or ()):
                likely.append(Guess(hypothesis.name, f"{fit.text} at the sample's sizes, and not at others", fit.fix))
                continue
            if fit.ambiguous and not others:
                likely.append(Guess(hypothesis.name, f"{fit.text}; a size of the sample equals that number, and forward takes no other", fit.fix))
                continue
            return (Guess(hypothesis.name, fit.text, fit.fix, certain=True, mend=fit.mend), *likely)
    return tuple(likely)


def _fresh(replay: Replay) -> list[Mismatch]:
    """Return up to `REPLAYS` fresh mismatches in which the fault shows: |grad_output| is right wherever grad_output happens to be positive."""
    found: list[Mismatch] = []
    for n in range(TRIES):
        mismatch = replay(n)
        if mismatch is not None and visible(mismatch):
            found.append(mismatch)
        if len(found) == REPLAYS:
            break
    return found


def visible(mismatch: Mismatch) -> bool:
    """Return whether what backward returned differs from the right gradient here at all."""
    got, expected = mismatch.got, mismatch.expected
    return got.numel() > 0 and float((got - expected).abs().max()) > _rounding(got) * float(expected.abs().max())


def _rounding(got: Tensor) -> float:
    return max(ROUNDING, ROUNDINGS * torch.finfo(got.dtype).eps)


def _explains(fit: Fit, mismatch: Mismatch) -> bool:
    """Whether the prediction accounts for the deviation itself: what is left unexplained is a thousandth of it, or rounding."""
    predicted = fit.predict(mismatch)
    got, expected = mismatch.got, mismatch.expected
    if predicted is None or predicted.shape != got.shape or got.numel() == 0:
        return False
    deviation = float((got - expected).abs().max())
    left = float((predicted - got).abs().max())
    scale = float(expected.abs().max())
    return deviation > _rounding(got) * scale and left <= max(UNEXPLAINED * deviation, _rounding(got) * scale) and left < deviation / 2
