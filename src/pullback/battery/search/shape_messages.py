"""Errors about sizes and ranks: which shapes to try next."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from .message_rule import MessageRule, enter_into
from .moment import Change, Moment
from .shapes import borrowed, doubled, first_shape, reshaped, squared, swap_sizes, swap_together, to_rank
from .specs import LISTS, Spec

SHAPE_MESSAGES: list[MessageRule] = []
message = enter_into(SHAPE_MESSAGES)
LARGEST = 256  # a size that a printed shape asks for, as that of a table the code holds
USUAL = 16


@message("unpack", r"(?:not enough values to unpack \(expected (?:at least )?|too many values to unpack \(expected )(\d+)")
def _unpack(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    count = int(match[1])
    yield from to_rank(moment, moment.tensors(), count)
    for name in moment.tensors():
        shape = first_shape(moment.spec(name)) or ()
        if shape and count <= 16:
            yield {name: reshaped(moment.spec(name), (*shape[:-1], count))}
            yield {name: reshaped(moment.spec(name), (count, *shape[1:]))}
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind in LISTS and spec.items and len(spec.items) != count:
            yield {name: spec.with_(items=(spec.items * count)[:count])}
        if spec.kind == "ints" or (spec.kind in ("int", "float") and moment.blamed):
            yield {name: Spec("ints", value=(2, 3, 4, 5, 6)[:count])}


@message("sizes differ", r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
def _sizes_differ(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    a, b = int(match[1]), int(match[2])
    yield from swap_sizes(moment, a, b)
    yield from swap_sizes(moment, b, a)
    yield from swap_together(moment, a, b)
    yield from swap_together(moment, b, a)
    yield from borrowed(moment, moment.tensors())


@message("length of an axis", r"must have length (\d+)\. Got (\d+) and (\d+)")
def _length(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    """What is too short may be a piece of an argument, which then is too short by as much."""
    wanted, *got = (int(g) for g in match.groups())
    changes: list[Change] = []
    for name in moment.tensors([slot.name for slot in moment.slots]):
        spec, cut = moment.spec(name), moment.trait(name).cuts
        shape = first_shape(spec) or ()
        last = {wanted for size in got if shape[-1:] == (size,)} | {shape[-1] + wanted - size for size in got if cut and shape}
        changes += [{name: reshaped(spec, (*shape[:-1], size))} for size in sorted(last) if size > 0 and shape[-1:] != (size,)]
    yield from (one | other for one, other in itertools.combinations(changes, 2) if not one.keys() & other.keys())
    yield from changes


@message("size of one dimension", r"expected dim (\d) size (\d+), got (\d+)")
def _one_size(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    dim, wanted, got = (int(g) for g in match.groups())
    for name in moment.tensors():
        shape = first_shape(moment.spec(name)) or ()
        if shape[dim : dim + 1] == (got,):
            yield {name: reshaped(moment.spec(name), (*shape[:dim], wanted, *shape[dim + 1 :]))}


@message("matrix sizes", r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
def _matrix_sizes(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    _, inner, rows, columns = (int(g) for g in match.groups())
    yield from swap_sizes(moment, rows, inner)
    yield from swap_sizes(moment, inner, rows)
    for name in moment.tensors():
        shape = first_shape(moment.spec(name)) or ()
        if shape[-2:] == (rows, columns):
            yield {name: reshaped(moment.spec(name), (*shape[:-2], columns, rows))}
            yield {name: reshaped(moment.spec(name), (*shape[:-2], inner, columns))}
    yield from squared(moment, moment.tensors())


@message("view of other size", r"shape '?\[([\d, -]*)\]'? is invalid for input of size (\d+)")
def _view(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    sizes, had = [int(n) for n in re.findall(r"-?\d+", match[1])], int(match[2])
    known = math.prod(size for size in sizes if size > 0)
    for name in moment.tensors():
        spec = moment.spec(name)
        shape = first_shape(spec) or ()
        if math.prod(shape) != had:
            continue
        if -1 not in sizes:
            yield {name: reshaped(spec, (known,))}
            yield {name: reshaped(spec, tuple(sizes))}
        yield {name: reshaped(spec, (*shape[:-1], known))}
        yield {name: reshaped(spec, (known, *shape[1:]))}
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind == "ints":
            yield from ({name: spec.with_(value=shape)} for shape in ((had,), (-1,)))


@message("number of elements", r"(\w+) to be (\d)-dimensional with (\d+) elements|(\w+) (?:should|to) (?:contain|have) (\d+) elements")
def _elements(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    count = int(match[3] or match[5])
    named = str(match[1] or match[4])
    for name in [*([named] if named in moment.evidence.traits else []), *moment.tensors()]:
        yield {name: reshaped(moment.spec(name), (count,))}


@message("not divisible", r"divisible|multiple of|\beven\b|split_size|equal (?:parts|chunks)|not evenly")
def _not_divisible(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    yield from doubled(moment, moment.tensors())
    for name in moment.suspects:
        if moment.spec(name).kind == "int":
            yield from ({name: Spec("int", value=v)} for v in (2, 4, 3, 1))


@message("half or double", r"\bhalf\b|\btwice\b|\bdouble the\b")
def _half(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for size in (4, 3, 6, 8):
        yield from swap_together(moment, size, size // 2)
    for name in moment.tensors():
        spec = moment.spec(name)
        shape = first_shape(spec) or ()
        for i in reversed(range(len(shape))):
            for size in (shape[i] // 2, shape[i] * 2):
                if 0 < size <= 16:
                    yield {name: reshaped(spec, (*shape[:i], size, *shape[i + 1 :]))}


@message(
    "dimension out of range",
    r"dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)|"
    r"dimension specified as (-?\d+) but tensor has no dimensions",
)
def _dimension(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    axis = int(match[3] or match[4])
    for name in moment.suspects:
        if moment.spec(name).kind == "int" and moment.spec(name).value == axis:
            yield from ({name: Spec("int", value=v)} for v in (-1, 1, 0))
    yield from to_rank(moment, moment.tensors(), axis + 1 if axis >= 0 else -axis)
    for name in moment.suspects:
        if moment.spec(name).kind == "ints":
            yield from ({name: Spec("ints", value=v)} for v in ((-1,), (0, 1), (1, 0), (1,)))


@message("too many indices", r"too many indices for tensor of dimension (\d+)|IndexError: (?:tuple|list) index out of range")
def _too_many_indices(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    rank = int(match[1] or 1)
    for more in (rank + 1, rank + 2, rank + 3):
        yield from to_rank(moment, moment.tensors(), more)
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind in LISTS and spec.items:
            yield {name: spec.with_(items=(*spec.items, spec.items[-1]))}
        if spec.kind == "ints":
            yield {name: spec.with_(value=(*spec.value, 2))}


_RANK = re.compile(
    r"\b([1-5])[- ]?d\b|at least (\d) dimension|\b(matrix|matrices|vector)\b|(?:expected|dims?|ndim|dim\(\)) (?:==|=|to be|of)? ?(\d)\b",
    re.IGNORECASE,
)
_WORDS = {"matrix": 2, "matrices": 2, "vector": 1, "1d": 1, "2d": 2, "3d": 3, "4d": 4, "5d": 5}


@message(
    "wrong rank",
    r"\b([1-5])[- ]?d(?:imensional)?\b|at least (\d) dimension|(?:be|a|as|expected|expects) (?:batch(?:es)? of )?(?:a |square )?(matrix|"
    r"matrices|vector)|(?:expected|ndim|dim\(\)|dims?) (?:==|=|to be|of)? ?(\d)\b",
)
def _wrong_rank(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for found in _RANK.finditer(moment.attempt.message):
        word = next(g for g in found.groups() if g)
        rank = _WORDS.get(word.lower()) or (int(word) if word.isdigit() else 2)
        yield from to_rank(moment, moment.tensors(), rank)
    yield from _neighbour_ranks(moment)


def _neighbour_ranks(moment: Moment) -> Iterator[Change]:
    """The tensor that the message speaks of may be a view of an argument, with dimensions added or dropped on the way."""
    for name in moment.tensors():
        rank = len(first_shape(moment.spec(name)) or ())
        for near in (rank + 1, rank - 1):
            yield from to_rank(moment, [name], near)


@message("fewer sizes than dimensions", r"number of sizes provided|repeat dims can ?not be smaller|number of dims don't match|dims? .*does not match")
def _fewer_sizes(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.tensors():
        rank = len(first_shape(moment.spec(name)) or ())
        for near in (rank - 1, rank + 1):
            yield from to_rank(moment, [name], near)
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind == "star" and all(item.kind == "int" for item in spec.items):
            yield from ({name: spec.with_(items=tuple(Spec("int", value=v) for v in values))} for values in ((1, 0), (0, 2, 1), (2, 0, 1), (0,)))


@message("square wanted", r"\bsquare|symmetric|same number of rows")
def _square(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    yield from squared(moment, moment.tensors(), "symmetric" if "symmetric" in match[0] else "")


@message("gradient shape", r"invalid gradient at index (\d+) - got \[([\d, ]*)\] but expected shape compatible with \[([\d, ]*)\]")
def _gradient_shape(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    got = tuple(int(n) for n in re.findall(r"\d+", match[2]))
    named = [s.name for s in moment.slots for _ in range(len(moment.spec(s.name).items) if s.star else 1)]
    position = int(match[1])
    if position < len(named):
        spec = moment.spec(named[position])
        yield {named[position]: reshaped(spec, got)}
        yield from borrowed(moment, [named[position]])
    for name in (s.name for s in moment.slots):
        if (shape := first_shape(moment.spec(name))) is not None and shape != got:
            yield {name: reshaped(moment.spec(name), got)}


@message(
    "shape does not fit",
    r"shape '?\[[^\]]*\]'? is invalid|(?:cannot|not) be broadcast|doesn't match the broadcast shape|must match (?:the )?(?:existing )?(?:size|"
    r"shape)|mismatch|inconsistent|same (?:size|shape|number)|"
    r"not broadcastable|shapes? .*(?:differ|not equal|must be equal)|expected (?:size|shape|input)|to have (?:size|shape|\d+)|"
    r"sizes provided|number of sizes|do(?:es)? not match|incompatible",
)
def _does_not_fit(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    pairs = [(a, b) for a, b in size_pairs(moment.attempt.message) if 0 < b <= LARGEST]
    for a, b in pairs:
        yield from swap_sizes(moment, a, b)
        yield from swap_together(moment, a, b)
    yield from borrowed(moment, moment.tensors())
    yield from doubled(moment, moment.tensors())


def size_pairs(text: str) -> list[tuple[int, int]]:
    """Return which number of an error to replace by which: those where two printed shapes differ first, then any two."""
    shapes = [[int(n) for n in re.findall(r"\d+", found)] for found in re.findall(r"[(\[](\d+(?:, ?\d+)*,?)[)\]]", text)]
    pairs: list[tuple[int, int]] = []
    for one, other in itertools.combinations(shapes, 2):
        for a, b in zip(reversed(one), reversed(other), strict=False):
            if a != b:
                pairs += [(a, b), (b, a)]
    numbers = [n for n in map(int, re.findall(r"\d+", text)) if n <= USUAL][:8]
    pairs += [(a, b) for a in numbers for b in numbers if a != b]
    return list(dict.fromkeys(pairs))
