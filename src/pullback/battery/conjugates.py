"""Does a wrong gradient of a complex input become right when it is conjugated?"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .evaluate import Outcome, UserCodeError
from .probe import Probe
from .value import ValueTest

FORMS = {
    "conj(backward(grad_output))": (False, True),
    "conj(backward(conj(grad_output)))": (True, True),
    "backward(conj(grad_output))": (True, False),
}


class _Conjugated(ValueTest):
    """The value test of a backward whose argument, result or both are conjugated."""

    before = after = False

    def vjp(self, outcome: Outcome, cotangent: Sequence[Tensor], *, keep: bool = False) -> list[Tensor | None]:
        given = [c.conj().resolve_conj() for c in cotangent] if self.before else cotangent
        found = super().vjp(outcome, given, keep=keep)
        return [g.conj().resolve_conj() if g is not None and self.after else g for g in found]


def missing_conjugate(probe: Probe, path: str) -> str:
    """Return which conjugated form of backward gives the right gradient for `path`, tested on fresh directions, or an empty string."""
    cache: dict[str, str] = probe.memo.setdefault("missing_conjugate", {})
    if path not in cache:
        cache[path] = next((form for form, places in FORMS.items() if _right(probe, path, *places)), "")
    return cache[path]


def _right(probe: Probe, path: str, before: bool, after: bool) -> bool:
    leaf = next(leaf for leaf in probe.exact.wanted if leaf.path == path)
    try:
        test = _Conjugated(probe.exact, seed=probe.settings.seed + 0xC)
        if not leaf.template.is_complex() and not any(y.is_complex() for y in test.outcome.live):
            return False
        test.before, test.after = before, after
        return test.careful(path).ok is True
    except UserCodeError:
        return False
