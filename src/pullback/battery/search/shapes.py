"""Other shapes for a tensor: the sizes an error speaks of, the shapes of the other arguments, other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .moment import Change, Moment, on_tensors
from .specs import Spec, default_shape

Shape = tuple[int, ...]


def reshaped(spec: Spec, shape: Shape) -> Spec:
    """Return `spec` with every tensor in it of that shape; index values stay below their bound."""
    return on_tensors(spec, lambda one: one.with_(shape=tuple(shape)))


def of_rank(shape: Shape, rank: int) -> Shape:
    """Return `shape` with leading sizes added or dropped until it has that rank."""
    if rank <= len(shape):
        return shape[len(shape) - rank :]
    front = [size for size in (2, 5, 6, 7, 8, 9) if size not in shape]
    return (*reversed(front[: rank - len(shape)]), *shape)


def to_rank(moment: Moment, names: Sequence[str], rank: int) -> Iterator[Change]:
    """Yield changes that give the named tensors that rank, each alone, then all of them."""
    if not 0 <= rank <= 6:
        return
    tensors = [name for name in names if first_shape(moment.spec(name)) is not None]
    for name in tensors:
        shape = first_shape(moment.spec(name)) or ()
        if len(shape) != rank:
            yield {name: reshaped(moment.spec(name), of_rank(shape, rank))}
    if len(tensors) > 1:
        yield {name: reshaped(moment.spec(name), of_rank(first_shape(moment.spec(name)) or (), rank)) for name in tensors}


def first_shape(spec: Spec) -> Shape | None:
    """Return the shape of the first tensor in `spec`."""
    if spec.is_tensor:
        return spec.shape
    return next((shape for item in spec.items if (shape := first_shape(item)) is not None), None)


def swap_sizes(moment: Moment, got: int, wanted: int) -> Iterator[Change]:
    """Yield changes that put the size `wanted` where a suspect has `got`, one place at a time; whole numbers likewise."""
    for name in moment.suspects:
        spec = moment.spec(name)
        shape = first_shape(spec)
        if spec.kind == "int" and spec.value == got:
            yield {name: spec.with_(value=wanted)}
        if spec.kind == "ints" and got in spec.value:
            yield {name: spec.with_(value=tuple(wanted if v == got else v for v in spec.value))}
        for i, size in enumerate(shape or ()):
            if size == got and shape is not None:
                yield {name: reshaped(spec, (*shape[:i], wanted, *shape[i + 1 :]))}


def swap_together(moment: Moment, got: int, wanted: int) -> Iterator[Change]:
    """Yield the change that puts `wanted` for `got` in all tensors of one shape at once, such as the two tables of a rotation."""
    groups: dict[Shape, list[str]] = {}
    for slot in moment.slots:
        shape = first_shape(moment.spec(slot.name))
        if shape is not None and got in shape:
            groups.setdefault(shape, []).append(slot.name)
    for shape, names in groups.items():
        together = [name for name in names if moment.trait(name).grad is not True] if len(names) > 2 else names
        for i in reversed(range(len(shape))):
            if shape[i] == got and len(together) > 1:
                yield {name: reshaped(moment.spec(name), (*shape[:i], wanted, *shape[i + 1 :])) for name in together}


def borrowed(moment: Moment, names: Sequence[str]) -> Iterator[Change]:
    """Yield changes that give a named tensor the shape of another argument, its first or its last sizes."""
    for name in names:
        spec = moment.spec(name)
        shape = first_shape(spec)
        if shape is None:
            continue
        for other in moment.others(name):
            rank = len(shape)
            options = [other, other[-rank:] if rank else (), other[:rank], other[:-1], other[1:], other[-1:], other[:1], other[-2:], other[:2]]
            for option in dict.fromkeys(options):
                if option != shape:
                    yield {name: reshaped(spec, option)}


def squared(moment: Moment, names: Sequence[str], draw: str = "") -> Iterator[Change]:
    """Yield changes that make the named tensors square in the last two sizes, drawn as `draw`."""
    for name in names:
        spec = moment.spec(name)
        shape = first_shape(spec)
        if shape is None:
            continue
        square = (*shape[:-2], 4, 4)
        changed = reshaped(spec, square)
        if draw:
            changed = on_tensors(changed, lambda one: one.with_(draw=draw))
        if changed != spec:
            yield {name: changed}


def doubled(moment: Moment, names: Sequence[str]) -> Iterator[Change]:
    """Yield changes that make one size even or a multiple of a whole number among the arguments."""
    numbers = [2, 4, *(s.value for s in moment.attempt.state if s.kind == "int" and s.value and s.value > 1)]
    for name in names:
        spec = moment.spec(name)
        shape = first_shape(spec) or ()
        for number in dict.fromkeys(numbers):
            for i in reversed(range(len(shape))):
                if shape[i] % number:
                    yield {name: reshaped(spec, (*shape[:i], number * (shape[i] if shape[i] * number <= 16 else 2), *shape[i + 1 :]))}


MORE_THAN_CUT = 5


def lengthened(moment: Moment, names: Sequence[str]) -> Iterator[Change]:
    """Yield changes of the last size to what pieces such as ``x[..., 3:]`` leave open: for all tensors that are cut at the same place, then alone."""
    cut = [name for name in names if moment.trait(name).cuts and moment.spec(name).kind == "tensor" and moment.spec(name).shape]
    for most in dict.fromkeys(max(moment.trait(name).cuts) for name in cut):
        together = [name for name in moment.evidence.traits if moment.trait(name).cuts and max(moment.trait(name).cuts) == most]
        together = [name for name in together if moment.spec(name).kind == "tensor" and moment.spec(name).shape]
        for size in range(most, most + MORE_THAN_CUT):
            for group in (together, *([name] for name in together if len(together) > 1)):
                yield {name: reshaped(moment.spec(name), (*moment.spec(name).shape[:-1], size)) for name in group}


def pool(moment: Moment, names: Sequence[str]) -> Iterator[Change]:
    """Yield changes to the usual shapes of every rank, the transpose, and a square, for each named tensor."""
    for name in names:
        spec = moment.spec(name)
        shape = first_shape(spec)
        if shape is None:
            continue
        options = [
            *(default_shape(rank) for rank in (2, 1, 3, 0, 4)),
            (*shape[:-2], *reversed(shape[-2:])),
            (4, 4),
            (4, 3),
            (3, 1),
            (4, 5),
            (3,),
            (1,),
            (2, 2, 4, 4),
        ]
        for option in dict.fromkeys(options):
            if option != shape:
                yield {name: reshaped(spec, option)}
