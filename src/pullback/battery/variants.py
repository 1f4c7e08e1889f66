"""The same call with other arguments: None for an optional one, a flag the other way, another number."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

from torch import Tensor

from .. import trees
from .code_text import own_text
from .evaluate import Evaluator
from .probe import Probe
from .tensors import copied

NUMBERS = 4
MEMBERS = 6
"""How many members of an enumeration are tried."""
_TINY = re.compile(r"(^|_)(eps(ilon)?|tol(erance)?)\d?(_|$)", re.IGNORECASE)
LARGE_EPSILON = 1e-2
BETWEEN = 1.3
"""A factor that makes no whole number of another: sizes that follow from a ratio are rounded then."""
_POSITIVE = re.compile(r"(^|_)(delta|eps|epsilon|sigma|std|tau|temp|temperature|bits|width|radius|bandwidth|n|num|size)(_|$)", re.IGNORECASE)
STEPS = re.compile(r"iter|sweeps?(_|$)", re.IGNORECASE)
"""Names of how many steps an approximation takes: with few of them forward is another function, which no implicit derivative is that of."""
POSITION = re.compile(r"(^|_)(idx|index|blank|seed|rank)(_|$)", re.IGNORECASE)
"""Names of numbers that point at an entry, or at nothing that forward counts with."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One changed argument.

    Args:
        path: Which argument.
        name: The change in words: ``"gate=None"``.
        evaluator: The call with it.
        passed: Whether the argument is passed in the sample, rather than left at its default.
        guessed: Whether it is put in the place of None, by what the code says: of another type, perhaps, than it is ever called with.
        partner: Another argument that is changed as well.
        within: The context in which the call is made, where it is not an argument that changes, but how the process is set.
    """

    path: str
    name: str
    evaluator: Evaluator
    passed: bool = True
    guessed: bool = False
    partner: str = ""
    within: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    @property
    def value(self) -> Any:
        """What the argument is now."""
        named = dict(self.evaluator.named)
        if self.path in named:
            return named[self.path]
        holder, _, attribute = self.path.rpartition(".")
        found = (leaf for name, argument in self.evaluator.named for p, leaf in trees.leaves(argument, name) if p == self.path)
        return next(found, None) if holder not in named or trees.is_container(named[holder]) else getattr(named[holder], attribute)

    @property
    def changed(self) -> str:
        """How messages name what is changed."""
        return f"{self.path} together with {self.partner}" if self.partner else self.path

    @property
    def tensors_guessed(self) -> bool:
        """Whether a tensor was put in the place of None."""
        named = dict(self.evaluator.named)
        return self.guessed and any(isinstance(named.get(path), Tensor) for path in (self.path, self.partner))


def other_branches(probe: Probe) -> Iterator[Variant]:
    """Yield the call with each optional argument left out (None), each bool turned round, each self-inverse permutation of axes by another.

    Enumerations get their other members, objects the flags turned round that the code asks them for.
    Tuples of -1, which mean no limit, get a limit of 1 at each place.
    """
    optional = optional_arguments(probe)
    for name, value in probe.exact.named:
        if isinstance(value, bool):
            yield _variant(probe, name, not value)
        elif isinstance(value, Enum):
            yield from (_variant(probe, name, other) for other in islice(type(value), MEMBERS) if other is not value)
        elif asked := _asked_of(probe, value):
            yield from (_with_attribute(probe, name, value, attribute) for attribute in asked)
        elif inside := _flags_inside(name, value):
            yield from (_inside(probe, path) for path in inside)
        elif some := limited(value):
            yield from (_variant(probe, name, other) for other in some)
        elif _whole_numbers(value) and (turned := _turned(value)) is not None:
            yield _variant(probe, name, turned)
        elif value is not None and name in optional and len(probe.exact.wanted) > _wanted_in(probe, name):
            yield _variant(probe, name, None)


def other_numbers(probe: Probe) -> Iterator[Variant]:
    """Yield the call with other values of its Python numbers, one at a time, and with a larger last one in tuples of equal ones (a kernel's sides).

    A number whose name says that it is a width or a precision is not made negative, and one that points at an element (`padding_idx`) is left alone:
    forward takes such values without refusing them, and nobody means what it then computes. A count of iterations gets larger at most, and an epsilon
    not so large that all entries lie beyond it.
    """
    seen = 0
    for name, value in _sizes_last(probe):
        if _whole_numbers(value) and len(set(value)) == 1 and value[0] > 0:
            yield _variant(probe, name, (*value[:-1], value[-1] + 1))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or POSITION.search(name):
            continue
        seen += 1
        if seen > NUMBERS:
            return
        for new in [value + 1] if STEPS.search(name) and isinstance(value, int) else _numbers(value, _TINY.search(name) is not None):
            if new >= 0 or value <= 0 or not _POSITIVE.search(name):
                yield _variant(probe, name, new)


def epsilon_among(evaluator: Evaluator, name: str) -> float:
    """Return the value of an argument whose name says that it is an epsilon; 0 for every other."""
    value = dict(evaluator.named).get(name)
    return abs(float(value)) if _TINY.search(name) and isinstance(value, (int, float)) else 0.0


def _sizes_last(probe: Probe) -> list[tuple[str, Any]]:
    """The named arguments; last those that equal the size of a tensor, which forward mostly refuses to take as other numbers alone."""
    sizes = {n for leaf in probe.exact.leaves for n in leaf.template.shape if n > 1}
    return sorted(probe.exact.named, key=lambda named: type(named[1]) is int and named[1] in sizes)


def _numbers(value: float, tiny: bool) -> list[float]:
    if isinstance(value, int):
        candidates: list[float] = [value + 1, value - 1, 1, 2, 0, -value]
    elif tiny and abs(value) < LARGE_EPSILON:
        candidates = [0.0, LARGE_EPSILON, min(10 * value, LARGE_EPSILON), 1e-12]
    else:
        candidates = [0.0, -value, 1.0, BETWEEN * value, 10 * value if value else 0.3, 1e-12]
    return [c for c in dict.fromkeys(candidates) if c != value]


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 1 and all(isinstance(n, int) and not isinstance(n, bool) for n in value)


def _turned(axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the permutation that moves every axis by one, where `axes` is one that undoes itself."""
    count = len(axes)
    plain = [n % count for n in axes]
    if (
        count < 3
        or sorted(plain) != list(range(count))
        or any(n not in range(-count, count) for n in axes)
        or any(plain[plain[i]] != i for i in plain)
    ):
        return None
    return tuple((n + 1) % count for n in range(count))


def limited(limits: Any) -> list[tuple[int, ...]]:
    """Return tuples of -1 (windows without limits) with a limit of 1 at each place; nothing for other values."""
    if not _whole_numbers(limits) or set(limits) != {-1}:
        return []
    return [tuple(1 if i == place else -1 for i in range(len(limits))) for place in range(len(limits))]


def _flags_inside(name: str, value: Any) -> list[str]:
    return [path for path, leaf in trees.leaves(value, name) if path != name and isinstance(leaf, bool)]


def _asked_of(probe: Probe, value: Any) -> list[str]:
    """The flags of an object (a module's `training`, a config's `bias`) that the code of the Function asks for by name; none where it has no copy."""
    if isinstance(value, (Tensor, type)) or trees.is_container(value) or not hasattr(value, "__dict__") or copied(value, {}) is value:
        return []
    flags = [name for name, flag in vars(value).items() if isinstance(flag, bool) and not name.startswith("_")]
    text = own_text(probe.target.described) if flags else ""
    return [name for name in flags if re.search(rf"\.{re.escape(name)}\b", text)]


def _with_attribute(probe: Probe, name: str, value: Any, attribute: str) -> Variant:
    """The call with a flag of an object turned round, in a copy of the object; `training` of a module as `train` and `eval` do it."""
    flag = not getattr(value, attribute)
    other = copied(value, {})
    if attribute == "training" and callable(getattr(other, "train", None)):
        other.train(flag)
    else:
        setattr(other, attribute, flag)
    return Variant(f"{name}.{attribute}", f"{name}.{attribute}={flag}", probe.exact.variant({name: other}))


def _inside(probe: Probe, path: str) -> Variant:
    """The call with a flag turned round that lies in a dict, a tuple or an object among the arguments."""
    value = not next(leaf for name, argument in probe.exact.named for p, leaf in trees.leaves(argument, name) if p == path)
    return Variant(path, f"{path}={value!r}", probe.exact.variant({path: value}))


def _variant(probe: Probe, name: str, value: Any) -> Variant:
    evaluator = probe.exact.variant({name: value})
    evaluator.nonleaf = evaluator.nonleaf or in_place(name)
    return Variant(name, f"{name}={value!r}", evaluator)


def in_place(name: str) -> bool:
    """Whether an argument's name says that forward may work in place: leaves that require grad cannot be changed so."""
    return "inplace" in name.lower().replace("_", "")


def _wanted_in(probe: Probe, name: str) -> int:
    value = next(v for n, v in probe.exact.named if n == name)
    inside = {path for path, leaf in trees.leaves(value, name) if isinstance(leaf, Tensor)}
    return sum(leaf.path in inside for leaf in probe.exact.wanted)


def optional_arguments(probe: Probe) -> set[str]:
    """Return the arguments for which the code itself says that they may be None: by default, or by an `is None` about them."""
    function = probe.target.described
    if function is None:
        return set()
    found: set[str] = set()
    with contextlib.suppress(TypeError, ValueError):
        found |= {p.name for p in inspect.signature(function.forward).parameters.values() if p.default is None}
    return found | set(re.findall(r"\b(\w+) is (?:not )?None", own_text(function)))
