"""The formula is right if a small number among the arguments were another: left out, squared, under a root."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch

SMALL = 0.1
FORMS = {
    "left out": lambda eps: 0.0,
    "squared": lambda eps: eps * eps,
    "under a root that does not belong there": math.sqrt,
    "added twice": lambda eps: 2 * eps,
}


class MisplacedEps(Hypothesis):
    """The epsilon that keeps a division or a root away from zero stands elsewhere in backward than in forward."""

    name = "misplaced-eps"
    rank = 8

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, number in mismatch.numbers.items():
            if not 0 < number < SMALL:
                continue
            for how, form in FORMS.items():
                yield Fit(
                    f"{path} = {number:g} is {how} in backward",
                    lambda m, path=path, form=form: m.vjp(m.path, numbers={path: form(m.numbers[path])}),
                    f"use {path} in backward exactly as forward does",
                )
