"""Static evidence for every parameter, and the first specs to try for each kind."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch

from ...capture.source import plain
from .invented import CALLABLES, MEMBERS, MODULES, fitting_classes
from .names import note_annotation, note_default, note_name, sounds_forbidden
from .specs import Slot, Spec, default_shape, tensor
from .syntax import FunctionSource, Unsearchable, none_positions
from .traits import Trait
from .uses import collect_uses


@dataclass(slots=True)
class Evidence:
    """What is known before anything was run.

    Args:
        source: Signature and syntax trees.
        traits: Evidence per parameter name.
        kept: ctx attribute or saved position to the parameter it stands for.
        options: Cache of `first_specs`.
    """

    source: FunctionSource
    traits: dict[str, Trait]
    kept: dict[str, str] = field(default_factory=dict)
    options: dict[str, list[Spec]] = field(default_factory=dict)

    def first_specs(self, slot: Slot) -> list[Spec]:
        """Return one spec for each kind that may be tried for a parameter, likeliest first."""
        if slot.name not in self.options:
            self.options[slot.name] = first_specs(slot, self.traits[slot.name])
        return self.options[slot.name]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Parameters of forward without ctx."""
        return self.source.slots


def gather_evidence(source: FunctionSource) -> Evidence:
    """Return the evidence of signature, names, uses in the code and positions of the returned gradients.

    Raises:
        Unsearchable: if a parameter takes a file, a stream, source code or the like, for which nothing may be invented.
    """
    traits = {slot.name: Trait() for slot in source.slots}
    parameters = inspect.signature(plain(getattr(source.function, "forward"))).parameters  # noqa: B009
    for slot in source.slots:
        note_name(slot.name, traits[slot.name])
        note_annotation(parameters[slot.name].annotation, traits[slot.name])
        if slot.has_default:
            note_default(slot.default, traits[slot.name])
    kept = collect_uses(source, traits)
    for slot in source.slots:
        _note_classes(source, parameters[slot.name].annotation, traits[slot.name])
    _note_gradients(source, traits)
    _share_ranks(traits)
    _count_lengths(traits)
    for slot in source.slots:
        _refuse(slot, traits[slot.name])
    return Evidence(source, traits, kept)


def _note_classes(source: FunctionSource, annotation: Any, trait: Trait) -> None:
    """Note the classes of the checked code of which an instance fits: those it asks for, else those that have the attributes it reads."""
    annotated = source.namespace.get(annotation) if isinstance(annotation, str) else annotation
    bases = [c for c in (*trait.classes, annotated) if isinstance(c, type) and c.__module__ == source.function.__module__]
    read = [name for name in trait.attributes if not name.startswith("__") and not hasattr(torch.Tensor, name)]
    trait.classes = fitting_classes(bases, read, source.namespace, source.function.__module__)
    if trait.classes:
        top = max(trait.scores.values(), default=0.0)
        trait.score("instance", top + 1.0 if bases else max(trait.scores.get("object", 0.0), trait.scores.get("module", 0.0)) + 0.5)


def _note_gradients(source: FunctionSource, traits: dict[str, Trait]) -> None:
    positions, closed = none_positions(source.backward, source.namespace)
    if closed and len(positions) < len([s for s in source.slots if not s.star]):
        closed = False
    for slot in source.slots:
        always_none = positions[slot.index] if slot.index < len(positions) else None
        trait = traits[slot.name]
        if always_none is None or slot.star:
            continue
        trait.grad = not always_none
        if always_none:
            for kind in ("float", "int", "bool", "none", "mask", "index", "str", "instance", "object", "group"):
                trait.scores[kind] = trait.scores.get(kind, 0.0) * 1.25
            trait.score("tensor", -0.2)
        else:
            trait.score("tensor", 1.8)


def _share_ranks(traits: dict[str, Trait]) -> None:
    """Give parameters that are combined piece by piece the rank that the code states of one of them."""
    waiting = [name for name, trait in traits.items() if trait.rank is not None]
    while waiting:
        trait = traits[waiting.pop()]
        for other in trait.alike:
            if traits[other].rank is None and trait.rank is not None and traits[other].least <= trait.rank:
                traits[other].see_rank(trait.rank)
                waiting.append(other)


def _count_lengths(traits: dict[str, Trait]) -> None:
    """Take what is called lengths, and has no gradient, for whole numbers: the code does with them what it does with any tensor."""
    for trait in traits.values():
        if ("index", "lengths") in trait.draws and trait.grad is not True and trait.scores.get("tensors", 0.0) < trait.scores.get("tensor", 0.0):
            trait.scores["index"] = max(trait.scores.get("index", 0.0), trait.scores.get("tensor", 0.0) + 0.5)


def _refuse(slot: Slot, trait: Trait) -> None:
    uses_tensor = trait.scores.get("tensor", 0.0) + trait.scores.get("index", 0.0) >= 1.5
    if trait.refused and not slot.has_default:
        raise Unsearchable(f"nothing may be invented for `{slot.name}`: {trait.refused}")
    if sounds_forbidden(slot.name) and not uses_tensor and not slot.has_default:
        raise Unsearchable(f"nothing may be invented for `{slot.name}`: by its name it is a file, a path, a stream or a connection")
    if trait.refused or (sounds_forbidden(slot.name) and not uses_tensor):
        trait.refused = trait.refused or "by its name it is a file, a path, a stream or a connection"
        trait.scores = {"default": 9.0}


def first_specs(slot: Slot, trait: Trait) -> list[Spec]:
    """Return one spec for each kind that may be tried for a parameter, likeliest first."""
    if slot.star:
        return _star_specs(trait)
    if trait.refused:
        return [Spec("default")]
    specs = [spec for kind in trait.kinds() for spec in specs_of_kind(kind, slot, trait)[:1]]
    if not trait.scores or max(trait.scores.values()) <= 0.35:
        specs.sort(key=lambda spec: spec.kind != "tensor")
    return specs


def _star_specs(trait: Trait) -> list[Spec]:
    if trait.scores.get("callables"):
        return [spec.with_(kind="star", value=None) for spec in _callables(trait) if spec.items]
    counts = _distinct([*([trait.members] if trait.members else []), 2, 1, 3])
    tensors = [Spec("star", items=(tensor_spec(Trait(grad=True)),) * n) for n in counts]
    numbers = [Spec("star", items=tuple(Spec("int", value=v) for v in values)) for values in ((1, 0), (3, 4), (-1,), (0, 2, 1))]
    return [*numbers, *tensors] if trait.role in ("dims", "shape") else [*tensors, *numbers]


def specs_of_kind(kind: str, slot: Slot, trait: Trait) -> list[Spec]:
    """Return the specs of one kind to try for a parameter, best first."""
    makers = {
        "tensor": lambda: [tensor_spec(trait)],
        "index": lambda: [index_spec(trait)],
        "mask": lambda: [Spec("mask", default_shape(trait.rank or max(trait.least, 2)), grad=False)],
        "int": lambda: [Spec("int", value=v) for v in int_values(trait)],
        "float": lambda: [Spec("float", value=v) for v in float_values(trait)],
        "bool": lambda: [Spec("bool", value=v) for v in _bools(trait)],
        "str": lambda: [Spec("str", value=v) for v in _strings(trait)],
        "ints": lambda: [Spec("ints", value=v) for v in ints_values(trait)],
        "tensors": lambda: _lists(trait),
        "callables": lambda: _callables(trait),
        "callable": lambda: [Spec("callable", value=v) for v in CALLABLES],
        "module": lambda: [Spec("module", value=v) for v in MODULES],
        "default": lambda: [Spec("default")] if slot.has_default else [],
        "instance": lambda: [Spec("instance", value=c) for c in trait.classes],
        "object": lambda: _objects(slot, trait),
        "dict": lambda: _objects(slot, trait, "dict"),
        "dtype": lambda: [Spec("dtype", value="float64"), Spec("dtype", value="float32")],
    }
    return makers[kind]() if kind in makers else [Spec(kind)]


def tensor_spec(trait: Trait) -> Spec:
    """Return the likeliest float tensor for a parameter."""
    usual = trait.usual.get("tensor")
    rank = trait.rank if trait.rank is not None else max(trait.least, usual if isinstance(usual, int) else 0 if trait.usual.get("tensor") == 0 else 2)
    shape = default_shape(rank)
    if trait.shape:
        shape = trait.shape
    elif trait.role == "weight":
        shape = (5, 4)
    elif trait.role in ("conv3", "conv4"):
        shape = (7, 2, 2) if trait.role == "conv3" else (7, 2, 2, 3)
    elif trait.square and rank >= 2:
        shape = (*shape[:-2], 4, 4)
    if trait.cuts and not trait.shape and rank and shape[-1] < max(trait.cuts):
        shape = (*shape[:-1], max(trait.cuts))
    draws = [draw for kind, draw in trait.draws if kind == "tensor"]
    return tensor(*shape, draw=draws[0] if draws else "normal", grad=trait.grad is not False)


def index_spec(trait: Trait, bound: int = 3) -> Spec:
    """Return the likeliest index tensor for a parameter: distinct values below the smallest usual size."""
    rank = trait.rank if trait.rank is not None else max(trait.least, trait.usual.get("index") or 1)
    draws = [draw for kind, draw in trait.draws if kind == "index"]
    groups = 2 if "counts" in draws else 3  # as many as matrices in the usual stack of them
    shape = trait.shape or ((groups,) if rank == 1 else default_shape(rank))
    return Spec("index", shape, draw=draws[0] if draws else "normal", dtype="int64", grad=False, value=bound)


def int_values(trait: Trait) -> list[int]:
    """Return whole numbers to try: the default, a number compared with, the usual one, then small ones."""
    constants = [v for v in trait.constants if isinstance(v, int) and not isinstance(v, bool)]
    usual = [trait.usual["int"]] if isinstance(trait.usual.get("int"), int) else []
    default = [trait.defaults["int"]] if "int" in trait.defaults else []
    return _distinct([*default, *usual, 2, *constants, 1, 3, 4, 0, -1, 8])


def float_values(trait: Trait) -> list[float]:
    """Return numbers to try: the default unless it is neutral, the usual one, then others; 0 and ±1 last."""
    default = [float(trait.defaults[k]) for k in ("float", "int") if isinstance(trait.defaults.get(k), (int, float))]
    usual = [float(trait.usual["float"])] if isinstance(trait.usual.get("float"), (int, float)) else []
    values = [*default, *usual, 0.7, 2.5, 0.3, -0.6, *(float(v) for v in trait.constants if isinstance(v, (int, float)) and not isinstance(v, bool))]
    lively = [v for v in values if v not in (0.0, 1.0, -1.0)]
    return _distinct([*lively, *(v for v in values if v not in lively), 1.0, 0.0])


def _bools(trait: Trait) -> list[bool]:
    first = trait.defaults.get("bool", True)
    return [bool(first), not first]


def _strings(trait: Trait) -> list[str]:
    default = [trait.defaults["str"]] if "str" in trait.defaults else []
    return _distinct([*default, *(v for v in trait.constants if isinstance(v, str))]) or ["mean"]


def ints_values(trait: Trait) -> list[tuple[int, ...]]:
    """Return tuples of whole numbers to try: shapes and dims."""
    default = (
        [trait.defaults["ints"]] if isinstance(trait.defaults.get("ints"), tuple) and all(isinstance(v, int) for v in trait.defaults["ints"]) else []
    )
    by_role = {"dims": [(1, 0), (0, 1), (-1,)], "shape": [(3, 4), (4, 3), (12,), (2, 3, 4)], "ints": [(4,), (1, 1), (3, 4)]}
    counted = [tuple(range(1, trait.members + 1))] if trait.members else []
    return _distinct([*default, *counted, *by_role.get(trait.role, []), (3, 4), (4,), (1, 0), (2, 2), (2, 3, 4), (0.3, 0.6)])


def _lists(trait: Trait) -> list[Spec]:
    one = tensor(3, 4, grad=trait.grad is not False)
    counts = _distinct([trait.members or 2, 2, 3, 1])
    return [Spec("tensors", items=(one,) * n, value=value) for n in counts for value in (None, "tuple")]


def _callables(trait: Trait) -> list[Spec]:
    """Lists and tuples of functions of one argument, or of several where the code calls them with several; or a list of modules."""
    sources = MEMBERS[2:] if trait.arity > 1 else MEMBERS[:2]
    members = [Spec("callable", value=source) for source in sources]
    counts = [trait.members] if trait.members else [2, 3, 1]
    made = [Spec("callables", items=tuple((members * n)[:n]), value=value) for n in counts for value in (None, "tuple")]
    layers = (Spec("module", value=MODULES[0]), Spec("module", value=MODULES[1]))
    return [*made[:2], Spec("callables", items=layers), *made[2:], Spec("module", value=MODULES[-1])]


def _objects(slot: Slot, trait: Trait, kind: str = "object") -> list[Spec]:
    names = tuple(a for a in trait.attributes if not a.startswith("__"))
    full = Spec(kind, value=names, items=tuple(attribute_spec(name) for name in names))
    return [full] if kind == "object" else [Spec(kind, value=(), items=()), full] if trait.filled else [full, Spec(kind, value=(), items=())]


def attribute_spec(name: str) -> Spec:
    """Return a spec for an attribute of an invented object, by its name."""
    trait = Trait()
    note_name(name, trait)
    slot = Slot(name, 0)
    kinds = [k for k in trait.kinds() if k not in ("default", "object", "dict", "group")]
    if not trait.scores:
        return Spec("float", value=0.7)
    return specs_of_kind(kinds[0], slot, trait)[0].with_(grad=False)


def _distinct(values: list) -> list:
    return list(dict.fromkeys(values))
