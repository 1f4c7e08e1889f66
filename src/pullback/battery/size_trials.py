"""What became of a call at another size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .evaluate import UserCodeError
from .sizes import Symbol
from .value import InputVerdict

Verdict = Literal["right", "wrong", "crash", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The call at one size.

    Args:
        symbol: What changed.
        size: To what.
        verdict: What happened.
        error: What backward raised.
        value: The worst input's verdict, where wrong.
        last_right: The nearest smaller size that was right, if one was tried.
        pairs: Whether odd sizes are wrong and even ones, that of the sample among them, right.
        by_chance: Whether the crash is gone when only leading axes change, or a single one: the sizes were equal by chance.
        right: At how many others of six small sizes the gradient is right, where backward raises.
        unmeant: Why the size was never meant although forward takes it, where backward raises.
        below: The number among the arguments below which sizes are wrong, and from which on they are right: ``"budget = 2"``.
    """

    symbol: Symbol
    size: int
    verdict: Verdict
    error: UserCodeError | None = None
    value: InputVerdict | None = None
    last_right: int | None = None
    pairs: bool = False
    by_chance: bool = False
    right: int = 0
    unmeant: str = ""
    below: str = ""
