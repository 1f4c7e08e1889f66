"""From a failed attempt to the states to try next: what the message says, then other kinds, shapes and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from .attempt import Attempt
from .evidence import Evidence, float_values, int_values, ints_values, specs_of_kind
from .invented import CALLABLES, MODULES
from .messages import changes_for
from .moment import Change, Moment, has_tensors
from .shapes import borrowed, lengthened, pool, to_rank
from .specs import Slot, Spec, State, within_caps

MAX_PROPOSALS = 120
MOST_MEMBERS = 8
SIZES = re.compile(r"dim|shape|size|divisible|match|length|rank|number of|channel|feature|head", re.IGNORECASE)


def from_message(moment: Moment) -> Iterator[State]:
    """Yield the states that the wording of the error suggests, best first."""
    return islice(_new_states(moment, changes_for(moment)), MAX_PROPOSALS)


def mutations(moment: Moment) -> Iterator[State]:
    """Yield the states to try whatever the error says, best first, made only as they are asked for."""
    return islice(_new_states(moment, _changes(moment)), MAX_PROPOSALS)


def _new_states(moment: Moment, changes: Iterable[Change]) -> Iterator[State]:
    seen = {moment.attempt.state}
    for change in changes:
        if not all(within_caps(spec) for spec in change.values()):
            continue
        state = tuple(change.get(slot.name, spec) for slot, spec in zip(moment.slots, moment.attempt.state, strict=True))
        if state not in seen:
            seen.add(state)
            yield state


COUNTS = re.compile(r"incorrect number of gradients \(expected (\d+), got (\d+)\)")


def with_count(attempt: Attempt, slots: tuple[Slot, ...]) -> State | None:
    """Return the state with as many arguments as backward returned gradients: more or fewer in ``*args``, or defaults at the end left out."""
    match = COUNTS.search(attempt.message)
    if match is None or not slots:
        return None
    more = int(match[2]) - int(match[1])
    last = attempt.state[-1]
    if slots[-1].star:
        count = len(last.items) + more
        items = last.items if more < 0 else (last.items or (Spec("tensor", (3, 4)),)) * (count + 1)
        return (*attempt.state[:-1], last.with_(items=items[:count])) if 0 <= count <= MOST_MEMBERS else None
    if more >= 0 or not all(slot.has_default for slot in slots[more:]):
        return None
    return (*attempt.state[:more], *(Spec("omitted") for _ in slots[more:]))


def joint(moment: Moment) -> Iterator[State]:
    """Yield the states to try where nobody is to blame: flags the other way, then all tensors at another rank."""
    return _new_states(moment, chain(_flips(moment), _all_at_rank(moment)))


def _changes(moment: Moment) -> Iterator[Change]:
    blamed = list(moment.blamed)
    rest = [slot.name for slot in moment.slots if slot.name not in blamed]
    about_values = moment.attempt.refused and not SIZES.search(moment.attempt.message)
    if about_values:
        yield from _other_draws(moment, blamed)
    yield from lengthened(moment, blamed)
    yield from _other_kinds(moment, blamed, 5)
    yield from _other_values(moment, blamed)
    yield from pool(moment, blamed)
    yield from borrowed(moment, blamed)
    yield from lengthened(moment, rest)
    yield from _other_kinds(moment, rest, 3)
    yield from _all_at_rank(moment)
    yield from _other_values(moment, rest)
    yield from pool(moment, rest)
    yield from _other_draws(moment, [*([] if about_values else blamed), *rest])


def _other_draws(moment: Moment, names: list[str]) -> Iterator[Change]:
    """Values matter where the code looks at them and refuses them itself, and hardly ever elsewhere."""
    for name in names:
        spec = moment.spec(name)
        if spec.kind == "tensor" and spec.draw == "normal":
            yield from ({name: spec.with_(draw=draw)} for draw in ("positive", "unit", "spd", "simplex"))


def livelier(attempt: Attempt, evidence: Evidence, names: list[str]) -> Iterator[State]:
    """Yield states to try after a sample that runs but is degenerate: other values first, those of the suspects before those of the rest."""
    moment = Moment(attempt, evidence, names)
    every = [*names, *(slot.name for slot in moment.slots if slot.name not in names)]
    found = chain(_one_a_group(moment, names), _other_numbers(moment, every), _other_values(moment, every), _changes(moment))
    return islice(_new_states(moment, found), MAX_PROPOSALS)


def _other_numbers(moment: Moment, names: list[str]) -> Iterator[Change]:
    for name in names:
        spec = moment.spec(name)
        if spec.kind == "int":
            yield from ({name: Spec("float", value=value)} for value in (0.7, 0.3))
        elif spec.kind == "float":
            default = moment.trait(name).defaults.get("float", 0.0)
            # A bound of 7 that no entry reaches is not meant to be one of -0.8, above which all lie.
            yield from ({name: Spec("float", value=v)} for v in (-0.8, 0.9, 2.5) if v != spec.value and (v > 0 or not default > 0))
        elif spec.kind == "tensor":
            yield from ({name: spec.with_(draw=draw)} for draw in ("positive", "wide") if draw != spec.draw)


def _other_kinds(moment: Moment, names: list[str], count: int) -> Iterator[Change]:
    options = {name: moment.next_kinds(name)[:count] for name in names}
    for i in range(count):
        for name in names:
            if i < len(options[name]):
                yield {name: options[name][i]}


def _other_values(moment: Moment, names: list[str]) -> Iterator[Change]:
    for name in names:
        spec, trait = moment.spec(name), moment.trait(name)
        values = {
            "int": lambda trait=trait: int_values(trait),
            "float": lambda trait=trait: float_values(trait),
            "bool": lambda: [False, True],
            "ints": lambda trait=trait: ints_values(trait),
            "callable": lambda: CALLABLES,
            "module": lambda: MODULES,
            "instance": lambda trait=trait: trait.classes,
        }
        for value in values.get(spec.kind, list)():
            if value != spec.value:
                yield {name: spec.with_(value=value)}
        if spec.kind == "str":
            yield from ({name: other} for other in specs_of_kind("str", moment.slot(name), trait) if other != spec)
        if spec.kind == "index":
            yield from ({name: spec.with_(value=bound)} for bound in (2, 4) if bound != spec.value)
            yield {name: spec.with_(dtype="int32")}
        if spec.kind in ("tensors", "star"):
            yield from _other_lists(name, spec)
        if spec.kind == "callables":
            yield from ({name: other} for other in specs_of_kind("callables", moment.slot(name), trait) if other != spec)
        if spec.kind == "dict":
            yield from ({name: other} for other in specs_of_kind("dict", moment.slot(name), trait) if other != spec)
        if spec.kind in ("dict", "object"):
            yield from _other_members(name, spec)


def _one_a_group(moment: Moment, names: list[str]) -> Iterator[Change]:
    """Counts or offsets with an entry for each matrix of a stack, or row, that is passed beside them."""
    tensors = sorted((spec for spec in moment.attempt.state if spec.kind == "tensor" and spec.shape), key=lambda spec: -len(spec.shape))
    for name in names:
        spec = moment.spec(name)
        more = {"counts": 0, "offsets": 1}.get(spec.draw)
        if more is not None:
            yield from ({name: spec.with_(shape=(size + more,))} for size in dict.fromkeys(other.shape[0] for other in tensors))


def _flips(moment: Moment) -> Iterator[Change]:
    for slot in moment.slots:
        spec = moment.spec(slot.name)
        value = slot.default if spec.kind == "default" else spec.value
        if isinstance(value, bool):
            yield {slot.name: Spec("bool", value=not value)}


def _other_members(name: str, spec: Spec) -> Iterator[Change]:
    for member in (Spec("tensor", (3, 4), grad=False), Spec("int", value=2), Spec("bool", value=True), Spec("tensor", (4,), grad=False)):
        for i, now in enumerate(spec.items):
            if now != member:
                yield {name: spec.with_(items=(*spec.items[:i], member, *spec.items[i + 1 :]))}


def _other_lists(name: str, spec: Spec) -> Iterator[Change]:
    items = spec.items or (Spec("tensor", (3, 4)),)
    for n in (1, 2, 3, 4):
        if n != len(spec.items):
            yield {name: spec.with_(items=(items * n)[:n])}
    for member in (Spec("callable", value=CALLABLES[0]), Spec("int", value=2), Spec("float", value=0.7), Spec("module", value=MODULES[0])):
        if items[0] != member:
            yield {name: spec.with_(items=(member, *items[1:]))}


def _all_at_rank(moment: Moment) -> Iterator[Change]:
    names = [slot.name for slot in moment.slots if has_tensors(moment.spec(slot.name))]
    for rank in (1, 2, 3, 4):
        changes = list(to_rank(moment, names, rank))
        if changes:
            yield changes[-1]
