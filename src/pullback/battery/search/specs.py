"""What the search may pass for one argument: a small immutable description, how its value is drawn, and how it is printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .invented import expression_value, instance_of, namespace

SIZES = (7, 6, 5, 2, 3, 4)
TENSOR_KINDS = frozenset({"tensor", "index", "mask"})
INVENTED_KINDS = frozenset({"callable", "module", "instance", "object", "dict"})
LISTS = frozenset({"tensors", "callables", "star"})
MAX_SIZE = 64
MAX_ELEMENTS = 4096
MAX_INT = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter of forward, without `ctx`.

    Args:
        name: Its name in the signature.
        index: Its position.
        star: Whether it is ``*args``.
        has_default: Whether it may be left out.
        default: The value it then has.
    """

    name: str
    index: int
    star: bool = False
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Spec:
    """One argument, described.

    Args:
        kind: tensor, index, mask, int, float, bool, str, none, tensors, ints, callable, callables, module, group, dtype, device, instance,
            object, dict, default, omitted (not passed, at the end of the call) or star.
        shape: Sizes of a tensor.
        draw: How the elements of a tensor are drawn (`draw_values`).
        dtype: Name of a tensor's dtype.
        grad: Whether a tensor is differentiated.
        leaf: Whether a differentiated tensor is passed itself, rather than a copy of it.
        value: A number, a string, a tuple of numbers, the source of an invented callable, a class, the bound of index values, or names of Python
            attributes that a float tensor carries (each holds zeros of its shape).
        variant: Another draw of the same values.
        items: Members of a list, of ``*args``, or attribute values of an invented object (`value` then holds their names).
    """

    kind: str
    shape: tuple[int, ...] = ()
    draw: str = "normal"
    dtype: str = "float64"
    grad: bool = True
    leaf: bool = True
    value: Any = None
    items: tuple[Spec, ...] = ()
    variant: int = 0

    def with_(self, **changes: Any) -> Spec:
        """Return this spec with some fields replaced."""
        return replace(self, **changes)

    @property
    def is_tensor(self) -> bool:
        """Whether a tensor is passed."""
        return self.kind in TENSOR_KINDS

    @property
    def differentiable(self) -> bool:
        """Whether a tensor is passed that requires grad."""
        return self.kind == "tensor" and self.grad and self.dtype.startswith(("float", "complex"))


State = tuple[Spec, ...]
Shape = tuple[int, ...]


def default_shape(rank: int) -> tuple[int, ...]:
    """Return `rank` distinct sizes, right-aligned so that tensors of different rank broadcast."""
    if rank <= len(SIZES):
        return SIZES[len(SIZES) - rank :]
    return (2,) * (rank - len(SIZES)) + SIZES


def within_caps(spec: Spec) -> bool:
    """Return whether `spec` is small enough to be tried."""
    value = spec.value
    if spec.items and not all(within_caps(item) for item in spec.items):
        return False
    if spec.kind == "int" and isinstance(value, int) and abs(value) > MAX_INT:
        return False
    if spec.kind == "ints" and isinstance(value, tuple) and any(abs(v) > MAX_SIZE for v in value):
        return False
    return (
        all(0 < size <= MAX_SIZE for size in spec.shape) and math.prod(spec.shape) <= MAX_ELEMENTS and len(spec.shape) <= 8 and len(spec.items) <= 8
    )


def growth_within_caps(before: State, after: State) -> bool:
    """Return whether what changed is small enough; a large default of the signature may stay."""
    return all(new == old or within_caps(new) for old, new in zip(before, after, strict=True))


def build(spec: Spec, slot: Slot, seed: int) -> Any:
    """Return a fresh value for `spec`; the same for the same seed."""
    if spec.kind in ("default", "omitted"):
        return slot.default
    if spec.kind in TENSOR_KINDS:
        return build_tensor(spec, seed)
    if spec.kind in LISTS:
        members = [build(item, slot, seed * 31 + 7 * i + 1) for i, item in enumerate(spec.items)]
        return tuple(members) if spec.value == "tuple" else members
    if spec.kind in ("object", "dict"):
        members = {name: build(item, slot, seed * 31 + 7 * i + 1) for i, (name, item) in enumerate(zip(spec.value, spec.items, strict=True))}
        return namespace(members) if spec.kind == "object" else members
    if spec.kind in ("callable", "module"):
        return expression_value(spec.value, seed)
    if spec.kind == "instance":
        return instance_of(spec.value, seed)
    if spec.kind == "dtype":
        return getattr(torch, spec.value)
    if spec.kind == "device":
        return torch.device("cpu")
    if spec.kind == "group":
        return torch.distributed.group.WORLD
    return None if spec.kind == "none" else spec.value


def build_state(state: State, slots: Sequence[Slot], seed: int) -> tuple[Any, ...]:
    """Return the positional arguments of one call, with ``*args`` spread out."""
    args: list[Any] = []
    given = max((i for i, spec in enumerate(state) if spec.kind != "omitted"), default=-1)
    for spec, slot in zip(state[: given + 1], slots, strict=False):
        value = build(spec, slot, seed * 1009 + 97 * slot.index + 13)
        if slot.star:
            args.extend(value)
        else:
            args.append(value)
    return tuple(args)


def build_tensor(spec: Spec, seed: int) -> torch.Tensor:
    """Return the tensor that `spec` describes, requiring grad if it says so."""
    generator = torch.Generator().manual_seed(seed + 1_000_003 * spec.variant)
    if spec.kind == "mask":
        return _balanced(spec.shape, generator).bool() ^ bool(spec.variant)
    if spec.kind == "index" and spec.draw == "counts":
        counts = _counts(spec, torch.Generator().manual_seed(seed)).to(getattr(torch, spec.dtype))
        return counts.flip(-1) if spec.variant else counts
    if spec.kind == "index":
        indices = _indices(spec, generator).to(getattr(torch, spec.dtype))
        return (max(1, spec.value or 3) - 1 - indices) if spec.variant and spec.draw not in ("offsets", "lengths") else indices
    dtype = getattr(torch, spec.dtype)
    values = draw_values(spec.draw, spec.shape, generator)
    if dtype.is_complex:
        values = torch.complex(values, draw_values(spec.draw, spec.shape, generator))
    made = values.to(dtype).requires_grad_(spec.differentiable)
    for name in spec.value or ():
        setattr(made, name, torch.zeros_like(made.detach()))
    return made


def draw_values(draw: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return float64 values: normal, positive, above (more than 1), unit, simplex, symmetric, spd, tril, binary, labels or wide."""
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    normal = normal + torch.where(normal < 0, -0.05, 0.05)
    square = len(shape) >= 2 and len(set(shape[-2:])) == 1
    if draw == "positive":
        return normal.abs() + 0.2
    if draw == "above":
        return normal.abs() + 1.2
    if draw == "unit":
        return 0.05 + 0.9 * torch.rand(shape, generator=generator, dtype=torch.float64)
    if draw == "simplex" and shape:
        return normal.softmax(-1)
    if draw == "binary":
        return _balanced(shape, generator).double()
    if draw == "labels":
        return torch.randint(0, 3, shape, generator=generator).double()
    if draw == "wide":
        return 4 * normal
    if draw == "symmetric" and square:
        return (normal + normal.mT) / 2
    if draw == "spd" and square:
        return normal @ normal.mT / normal.shape[-1] + torch.eye(normal.shape[-1], dtype=torch.float64)
    if draw == "tril" and square:
        return normal.tril(-1) + torch.diag_embed(normal.diagonal(dim1=-2, dim2=-1).abs() + 0.5)
    return normal


def _balanced(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    n = math.prod(shape)
    return (torch.randperm(n, generator=generator) % 2 == 0).reshape(shape) if n > 1 else torch.ones(shape, dtype=torch.bool)


def _indices(spec: Spec, generator: torch.Generator) -> torch.Tensor:
    bound = max(1, spec.value or 3)
    n = math.prod(spec.shape)
    if spec.draw == "lengths":
        return torch.randint(1, bound + 1, spec.shape, generator=generator)
    if spec.draw == "offsets":
        inner = torch.randperm(max(1, bound - 1), generator=generator)[: max(0, n - 2)].sort().values + 1
        return torch.cat([torch.zeros(1, dtype=torch.int64), inner, torch.full((max(0, n - 1 - len(inner)),), bound)]).reshape(spec.shape)
    if n <= bound:
        return torch.randperm(bound, generator=generator)[:n].reshape(spec.shape)
    last = list(spec.shape)[-1] if spec.shape else 1
    rows = [torch.cat([torch.randperm(bound, generator=generator) for _ in range(last // bound + 1)])[:last] for _ in range(n // last)]
    values = torch.stack(rows).reshape(spec.shape)
    return values.sort(-1).values if spec.draw == "sorted" else values


def _counts(spec: Spec, generator: torch.Generator) -> torch.Tensor:
    """How many rows each group has, none without any as far as there are enough; together as many as the bound."""
    bound, n = max(1, spec.value or 3), math.prod(spec.shape)
    cuts = torch.randperm(bound - 1, generator=generator)[: max(0, n - 1)].sort().values + 1
    counts = torch.cat([torch.zeros(1, dtype=torch.int64), cuts, torch.tensor([bound])]).diff()
    return torch.cat([counts, torch.zeros(max(0, n - len(counts)), dtype=torch.int64)])[:n].reshape(spec.shape)


def composed(spec: Spec, write: Callable[[Spec], str]) -> str | None:
    """Return the Python source of what holds other values, which `write` writes, and of the constants of torch; None for the rest."""
    if spec.kind in LISTS:
        inner = ", ".join(map(write, spec.items))
        return f"({inner},)" if spec.value == "tuple" else f"[{inner}]"
    if spec.kind == "object":
        return "SimpleNamespace(" + ", ".join(f"{name}={write(item)}" for name, item in zip(spec.value, spec.items, strict=True)) + ")"
    if spec.kind == "dict":
        return "{" + ", ".join(f"{name!r}: {write(item)}" for name, item in zip(spec.value, spec.items, strict=True)) + "}"
    if spec.kind == "instance":
        return f"{spec.value.__qualname__}()"
    fixed = {"none": "None", "group": "torch.distributed.group.WORLD", "device": "torch.device('cpu')", "dtype": f"torch.{spec.value}"}
    return fixed.get(spec.kind)


def show(spec: Spec, slot: Slot | None = None) -> str:
    """Return `spec` as it stands in a printed call, such as ``float64[3, 4]`` or ``0.7``."""
    if spec.kind == "tensor":
        domain = "" if spec.draw == "normal" else f" {spec.draw}"
        carried = f" with .{', .'.join(spec.value)}" if spec.value else ""
        return f"{spec.dtype}{list(spec.shape)}{domain}{carried}"
    if spec.kind == "index":
        return f"{spec.dtype}{list(spec.shape)} < {spec.value or 3}"
    if spec.kind == "mask":
        return f"bool{list(spec.shape)}"
    if spec.kind == "star":
        return ", ".join(show(item) for item in spec.items)
    if (written := composed(spec, show)) is not None:
        return written
    if spec.kind in ("default", "omitted"):
        return repr(slot.default) if slot else "default"
    return str(spec.value) if spec.kind in ("callable", "module") else repr(spec.value)


def show_call(name: str, state: State, slots: Sequence[Slot]) -> str:
    """Return a printable call such as ``Swish.apply(x=float64[3, 4], beta=0.7)``."""
    passed = [(slot, spec) for slot, spec in zip(slots, state, strict=True) if spec.kind != "omitted"]
    parts = [("*" if slot.star else "") + f"{slot.name}={show(spec, slot)}" for slot, spec in passed]
    return f"{name}.apply({', '.join(parts)})"


def tensor(*shape: int, **fields: Any) -> Spec:
    """Return a spec of a float tensor of that shape."""
    return Spec("tensor", tuple(shape), **fields)
