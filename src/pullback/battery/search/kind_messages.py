"""Errors about types, values and gradients: which kinds and values to try next."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from .evidence import attribute_spec
from .invented import CALLABLES
from .message_rule import MessageRule, enter_into
from .moment import Change, Moment, on_tensors
from .shapes import first_shape, squared, to_rank
from .specs import Spec, tensor

KIND_MESSAGES: list[MessageRule] = []
message = enter_into(KIND_MESSAGES)


@message("no attribute", r"'([\w.]+)' object has no attribute '(\w+)'")
def _no_attribute(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    attribute = match[2]
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind in ("object", "dict") and attribute not in spec.value:
            yield {name: _with_member(spec, attribute)}
    for name in moment.blamed:
        if match[1] in ("Tensor", "Parameter") and moment.spec(name).kind == "tensor" and not hasattr(torch.Tensor, attribute):
            yield {name: moment.spec(name).with_(value=tuple(dict.fromkeys([*(moment.spec(name).value or ()), attribute])))}
        if hasattr(torch.Tensor, attribute):
            yield from moment.kind_change(name, "tensor")
            yield from moment.kind_change(name, "index")
            yield from moment.kind_change(name, "mask")
        elif hasattr(torch.nn.Module, attribute) or attribute in ("weight", "bias"):
            yield from moment.kind_change(name, "module")
        for kind, sample in (("str", ""), ("tensors", []), ("dict", {}), ("dtype", torch.float64), ("device", torch.device("cpu"))):
            if hasattr(sample, attribute):
                yield from moment.kind_change(name, kind)
        known = [a for a in moment.trait(name).attributes if not a.startswith("__")]
        names = tuple(dict.fromkeys([*known, attribute]))
        bare = Spec("object", value=(), items=())
        for member in names:
            bare = _with_member(bare, member)
        yield {name: bare}


def _with_member(spec: Spec, attribute: str) -> Spec:
    return spec.with_(value=(*spec.value, attribute), items=(*spec.items, attribute_spec(attribute)))


@message("not callable", r"'[\w.]+' object is not callable")
def _not_callable(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind in ("object", "dict"):
            for i, member in enumerate(spec.items):
                if member.kind != "callable":
                    yield {name: spec.with_(items=(*spec.items[:i], Spec("callable", value=CALLABLES[0]), *spec.items[i + 1 :]))}
        elif spec.kind == "star" and spec.items:
            yield {name: spec.with_(items=(Spec("callable", value=CALLABLES[0]), *spec.items[1:]))}
        else:
            if spec.kind == "tensors":
                yield from moment.kind_change(name, "callables")
            yield from moment.kind_change(name, "callable")
            yield from moment.kind_change(name, "module")


@message(
    "not a sequence",
    r"object is not (?:iterable|subscriptable)|iteration over a 0-d|has no len\(\)|must be an iterable|after \* must be|len\(\) of a 0-d tensor",
)
def _not_sequence(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        if moment.spec(name).is_tensor:
            yield from to_rank(moment, [name], 2)
            continue
        called = moment.trait(name).scores.get("callables", 0.0) > 0
        for kind in (*(("callables",) if called else ()), "tensors", "ints", "tensor"):
            yield from moment.kind_change(name, kind)


@message("tuple wanted", r"\btuple\b(?! index)")
def _tuple(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind in ("tensors", "callables") and spec.value != "tuple":
            yield {name: spec.with_(value="tuple")}


@message("mapping wanted", r"must be a mapping")
def _mapping(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        yield {name: Spec("dict", value=(), items=())}


@message("type of TorchScript", r"expected a value of type '(?:Optional\[)?([\w.\[\]]+?)\]?' for argument '(\w+)'")
def _scripted(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    wanted = match[1].lower()
    kind = "tensors" if "list[tensor" in wanted else "ints" if "list[int" in wanted else next((k for word, k in _TYPES if word in wanted), "tensor")
    for name in [match[2]] if match[2] in moment.evidence.traits else moment.suspects:
        yield from moment.kind_change(name, kind)


@message(
    "index wanted",
    r"scalar type (?:long|int)|indices must be|indices (?:to|of) be|int64|int32|used as indices must be|\blong(?:tensor)?\b|integral|"
    r"integer (?:tensor|type)|index tensor",
)
def _index_wanted(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in sorted(moment.suspects, key=lambda name: -moment.trait(name).scores.get("index", 0.0)):
        spec = moment.spec(name)
        shape = first_shape(spec)
        if spec.kind == "index":
            continue
        if shape is not None:
            yield {name: Spec("index", shape, dtype="int64", grad=False, value=3)}
        yield from moment.kind_change(name, "index")
        if moment.trait(name).scores.get("int", 0) > 0:
            yield from moment.kind_change(name, "int")


@message(
    "out of bounds",
    r"out of bounds|out of range|index .* is out|class values must|must be smaller|cannot be larger|exceeds|non-negative|selected index k",
)
def _out_of_bounds(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in [*moment.suspects, *(s.name for s in moment.slots if s.name not in moment.suspects)]:
        spec = moment.spec(name)
        if spec.kind == "index":
            smaller = [b for b in (2, 1) if b < (spec.value or 3)]
            yield from ({name: spec.with_(value=b)} for b in smaller)
        if spec.kind == "int":
            yield from ({name: spec.with_(value=v)} for v in (1, 0, -1, 2, 3, 4) if v != spec.value)


@message(
    "number wanted",
    r"boolean value of tensor|ambiguous|converted to (?:a )?scalar|only one element tensors|to be a 0-dim|must be a number|"
    r"can't convert .*tensor|with \d+ elements cannot be",
)
def _number_wanted(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.tensors():
        spec = moment.spec(name)
        for kind in sorted(("float", "bool", "int"), key=lambda k: -moment.trait(name).scores.get(k, 0.0)):
            yield from list(moment.kind_change(name, kind))[:1]
        if spec.is_tensor and spec.shape:
            yield {name: spec.with_(shape=())}
    for name in moment.suspects:
        if moment.spec(name).is_tensor and len(moment.spec(name).shape) == 0:
            yield from moment.kind_change(name, "none")


@message("leaf changed in place", r"leaf variable .*in-place|view of a leaf")
def _leaf(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    yield {s.name: on_tensors(moment.spec(s.name), lambda one: one.with_(leaf=False)) for s in moment.slots}


@message(
    "dtype wanted",
    r"same dtype|(?:float|double|half) != (?:float|double|half)|expected scalar type|found dtype|dtype mismatch|should be the same|"
    r"not implemented for 'double'|float32|must be float\b|only supports? float",
)
def _dtype(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    def single(spec: Spec) -> Spec:
        return spec.with_(dtype={"float64": "float32", "complex128": "complex64"}.get(spec.dtype, spec.dtype))

    yield {s.name: on_tensors(moment.spec(s.name), single) for s in moment.slots}


@message("complex wanted", r"complex")
def _complex(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.tensors():
        yield {name: on_tensors(moment.spec(name), lambda one: one.with_(dtype="complex128") if one.kind == "tensor" else one)}


@message("positive definite wanted", r"positive[- ]?(?:semi-?)?definite|singular|not invertible|leading minor|LinAlgError")
def _positive_definite(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    yield from squared(moment, moment.tensors(), "spd")


@message("probability wanted", r"between 0 and 1|in (?:the range )?\[0, ?1\]|0 ?<=? ?p|p ?<=? ?1|\(0, ?1\)|expects? p")
def _probability(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind in ("float", "int"):
            yield {name: Spec("float", value=0.3)}
        elif spec.kind == "tensor":
            yield {name: spec.with_(draw="unit")}


@message("positive wanted", r"(?:positive(?![- ]?(?:semi-?)?definite)|> ?0|greater than (?:0|zero)|non-?negative)")
def _positive(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind == "tensor":
            yield {name: spec.with_(draw="positive")}
        elif spec.kind in ("float", "int"):
            yield {name: spec.with_(value=2 if spec.kind == "int" else 0.7)}


_TYPES = (
    ("tuple of tensors", "tensors"),
    ("list of tensors", "tensors"),
    ("tuple of int", "ints"),
    ("tuple of symint", "ints"),
    ("tensor", "tensor"),
    ("int", "int"),
    ("float", "float"),
    ("number", "float"),
    ("bool", "bool"),
    ("str", "str"),
    ("torch.dtype", "dtype"),
)


@message("argument of torch", r"argument '(\w+)'(?: \(position \d+\))?(?: must be ([\w. ]+?)(?:,|\s*\(| not|$))?")
def _argument(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    wanted = (match[2] or "").lower()
    kinds = [kind for word, kind in _TYPES if word in wanted] or ["tensor", "int", "ints", "float"]
    names = [match[1]] if match[1] in moment.evidence.traits else moment.suspects
    for name in names:
        spec = moment.spec(name)
        if spec.kind == "star" and "ints" in kinds:
            yield from ({name: spec.with_(items=tuple(Spec("int", value=v) for v in values))} for values in ((1, 0), (3, 4), (0, 2, 1), (-1,)))
    for kind in dict.fromkeys([*kinds, *(("index", "mask") if "tensor" in kinds[:1] else ())]):
        for name in names:
            if moment.spec(name).kind != kind:
                yield from moment.kind_change(name, kind)


@message("arguments of torch", r"received an invalid combination of arguments")
def _combination(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for kind in ("int", "ints", "tensor", "float", "none"):
        for name in moment.suspects:
            if moment.spec(name).kind != kind:
                yield from list(moment.kind_change(name, kind))[:1]


@message("gradient of a non-tensor", r"gradient different than None at position (\d+), but the corresponding forward input was not a Variable")
def _gradient_of_number(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    position = int(match[1]) - 1
    for slot in moment.slots:
        if slot.index == position and not slot.star and moment.spec(slot.name).kind != "tensor":
            yield {slot.name: tensor()}
            yield from moment.kind_change(slot.name, "tensor")
            yield from ({slot.name: tensor(*shape)} for shape in ((4,), (3, 4), (1,)))


@message("missing key", r"KeyError: ['\"]?([\w./-]+)")
def _missing_key(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in moment.suspects:
        spec = moment.spec(name)
        if spec.kind == "dict" and match[1] not in spec.value:
            yield {name: _with_member(spec, match[1])}
        elif spec.kind in ("str", "int", "float"):
            for kind in ("str", "int"):
                yield from moment.kind_change(name, kind)


@message(
    "operand types",
    r"unsupported operand|not supported between|must be real number|cannot be interpreted as an integer|can only concatenate|"
    r"can't multiply|bad operand type|must be str, not|string, not|object cannot be|slice indices must be",
)
def _operands(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    integer = "integer" in moment.attempt.message
    for name in moment.suspects:
        for kind in ("int",) if integer else ("float", "tensor", "int"):
            if moment.spec(name).kind != kind:
                yield from list(moment.kind_change(name, kind))[:2]


@message(
    "nothing in a list", r"expects? a non-?empty|a non-?empty (?:list|tuple|tensorlist)|need at least one|empty (?:list|sequence)|arg is an empty"
)
def _empty_list(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    """A number that is a count or a step must be a positive whole one, or a loop never runs."""
    for name in [*moment.suspects, *(s.name for s in moment.slots if s.name not in moment.suspects)]:
        spec = moment.spec(name)
        if spec.kind in ("int", "float"):
            yield from ({name: Spec("int", value=v)} for v in (2, 1, 3) if v != spec.value)


@message(
    "call with other arguments",
    r"missing \d+ required positional argument|takes (?:from )?\d+ (?:to \d+ )?positional arguments?|unexpected keyword argument",
)
def _arity(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for name in [*moment.suspects, *(s.name for s in moment.slots)]:
        spec = moment.spec(name)
        if spec.kind == "callable":
            yield from ({name: spec.with_(value=source)} for source in CALLABLES if source != spec.value)
        if spec.kind == "star":
            yield from ({name: spec.with_(items=(spec.items[:1] or (tensor(3, 4),)) * n)} for n in (0, 1, 2, 3) if n != len(spec.items))


@message("not finite", r"is not finite|\bnan\b|\binf\b")
def _not_finite(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    names = [s.name for s in moment.slots if moment.spec(s.name).kind == "tensor"]
    for draw in ("positive", "unit", "above"):
        for name in names:
            if moment.spec(name).draw != draw:
                yield {name: moment.spec(name).with_(draw=draw)}
        if len(names) > 1:
            yield {name: moment.spec(name).with_(draw=draw) for name in names}
    yield from squared(moment, names, "spd")
    for slot in moment.slots:
        if moment.spec(slot.name).kind == "float":
            yield from ({slot.name: Spec("float", value=v)} for v in (0.3, 2.5))


@message("nothing differentiable", r"no output of forward requires grad|backward returns no gradient|does not require grad")
def _nothing_differentiable(moment: Moment, match: re.Match[str]) -> Iterator[Change]:
    for slot in moment.slots:
        spec = moment.spec(slot.name)
        if spec.kind == "star" and not any(item.differentiable for item in spec.items):
            yield {slot.name: spec.with_(items=(tensor(3, 4),) * max(1, len(spec.items)))}
        if spec.kind in ("tensor", "star", "tensors") and not spec.differentiable:
            yield {slot.name: on_tensors(spec, lambda one: one.with_(grad=True) if one.kind == "tensor" else one)}
        if not slot.star and spec.kind != "tensor":
            yield from moment.kind_change(slot.name, "tensor")
