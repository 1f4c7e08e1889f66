"""What a recording holds: for each custom derivative its call signatures, and for each of these one call that can be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..report.finding import JSON

Kind = Literal["function", "op", "library"]
How = Literal["whole", "sampled", "distribution"]


class Unreplayable(Exception):
    """Raised for an argument that was stored as a description only; the message says what it was."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Dtype, shape and strides of a tensor; no strides where it is not strided."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}{'' if self.packed else f' strides {self.strides}'}"

    @property
    def packed(self) -> bool:
        """Whether rows are packed, so that strides need not be named."""
        expected, step = [], 1
        for size in reversed(self.shape):
            expected.append(step)
            step *= max(size, 1)
        pairs = zip(self.shape, self.strides, reversed(expected), strict=False)
        return not self.strides or 0 in self.shape or all(n == 1 or s == e for n, s, e in pairs)


@dataclass(slots=True)
class StoredTensor:
    """One tensor of a recorded call.

    Args:
        layout: As it is made again.
        device: Where it was: ``"cuda:0"``.
        requires_grad: Whether gradients flowed into it.
        parameter: Whether it was an `nn.Parameter`.
        how: ``"whole"``; ``"sampled"``: the first rows of a larger one; ``"distribution"``: values are drawn anew from the statistics.
        full_shape: The shape that the program used.
        statistics: mean, std, min and max of the values.
        data: The values, with expanded dimensions narrowed to one entry; None where they are drawn anew.
    """

    layout: Layout
    device: str = "cpu"
    requires_grad: bool = False
    parameter: bool = False
    how: How = "whole"
    full_shape: tuple[int, ...] = ()
    statistics: Mapping[str, float] = field(default_factory=dict)
    data: Tensor | None = None

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of `data`: one entry along expanded dimensions."""
        return tuple(1 if stride == 0 else size for size, stride in zip(self.layout.shape, self.layout.strides, strict=True))

    @property
    def extent(self) -> int:
        """How many elements of memory the tensor spans."""
        if 0 in self.layout.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.layout.shape, self.layout.strides, strict=True))


@dataclass(slots=True)
class StoredCall:
    """One call as plain data: packed arguments, and the tensors that they refer to by number."""

    args: list[JSON]
    kwargs: dict[str, JSON]
    tensors: list[StoredTensor]


@dataclass(slots=True)
class Signature:
    """One distinct way in which a derivative was called, with counts.

    Args:
        arguments: One text an argument: ``"x: float32[8, 64] strides (1, 8)"``.
        autocast: Device and dtype, ``"cpu bfloat16"``; empty where autocast was off.
        grad: Whether any call built a graph.
        where: ``"checkpoint"``, ``"recomputed"``, both or none.
        calls: Calls of forward.
        backward_calls: Calls of backward.
        raised: Calls of either that raised.
        forward_seconds: Time on the host in forward, all calls together.
        backward_seconds: The same in backward.
        kept_bytes: What one call keeps for backward.
        outputs: What one call returned.
        gradients: How grad_outputs were laid out (None: undefined), and how often.
        call: One call that can be made again.
        no_call: Why there is none.
    """

    arguments: tuple[str, ...]
    autocast: str = ""
    grad: bool = False
    where: tuple[str, ...] = ()
    calls: int = 0
    backward_calls: int = 0
    raised: int = 0
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    kept_bytes: int = 0
    outputs: tuple[Layout | None, ...] = ()
    gradients: dict[tuple[Layout | None, ...], int] = field(default_factory=dict)
    call: StoredCall | None = None
    no_call: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two signatures the same."""
        return (self.arguments, self.autocast, self.where)

    def plus(self, other: Signature) -> Signature:
        """Return the same signature with the counts of both."""
        gradients = dict(self.gradients)
        for layout, count in other.gradients.items():
            gradients[layout] = gradients.get(layout, 0) + count
        summed = ("calls", "backward_calls", "raised", "forward_seconds", "backward_seconds")
        counts = {name: getattr(self, name) + getattr(other, name) for name in summed}
        grad = self.grad or other.grad
        return replace(
            self, **counts, grad=grad, gradients=gradients, call=self.call or other.call, no_call=self.no_call if self.call is None else ""
        )


@dataclass(slots=True)
class FunctionRecord:
    """One custom derivative that the program applied.

    Args:
        name: Qualified name: ``"pkg.mod.Class"``, or ``"ns::op.default"`` of a torch.library op.
        kind: A Function class, a `pb.op`, or a torch.library op.
        module: Where it is defined; empty for a torch.library op.
        qualname: Its name there.
        path: The file that defines it, relative to the working directory.
        line: The line in it.
        signatures: How it was called.
        elsewhere: Calls that were counted only, by where they were: ``"inside torch.func"``.
        live: The object itself, in the process that recorded it.
    """

    name: str
    kind: Kind
    module: str
    qualname: str
    path: str = ""
    line: int = 0
    signatures: list[Signature] = field(default_factory=list)
    elsewhere: dict[str, int] = field(default_factory=dict)
    live: Any = None

    @property
    def calls(self) -> int:
        return sum(s.calls for s in self.signatures) + sum(self.elsewhere.values())

    def plus(self, other: FunctionRecord) -> FunctionRecord:
        """Return the record of both programs."""
        merged = {s.key: s for s in self.signatures}
        for signature in other.signatures:
            known = merged.get(signature.key)
            merged[signature.key] = signature if known is None else known.plus(signature)
        elsewhere = dict(self.elsewhere)
        for where, count in other.elsewhere.items():
            elsewhere[where] = elsewhere.get(where, 0) + count
        return replace(self, signatures=list(merged.values()), elsewhere=elsewhere, live=self.live or other.live)


@dataclass(slots=True)
class Recording:
    """What one program, or several ranks of one, did with custom derivatives.

    Args:
        functions: The derivatives that were applied.
        environment: Versions, command, ranks.
        compiled_graphs: How many graphs torch.compile made meanwhile; what runs in them is not recorded.
        compiled: Names of Functions that were traced into such graphs.
    """

    functions: list[FunctionRecord] = field(default_factory=list)
    environment: dict[str, JSON] = field(default_factory=dict)
    compiled_graphs: int = 0
    compiled: tuple[str, ...] = ()

    def merge(self, *others: Recording) -> Recording:
        """Return one recording of all: counts add up, and each signature keeps one call."""
        functions: dict[str, FunctionRecord] = {}
        for recording in (self, *others):
            for record in recording.functions:
                known = functions.get(record.name)
                functions[record.name] = record if known is None else known.plus(record)
        environment: dict[str, JSON] = {}
        for recording in reversed((self, *others)):
            environment.update(recording.environment)
        ranks = sorted({r for recording in (self, *others) for r in _ranks(recording)})
        compiled = dict.fromkeys(name for recording in (self, *others) for name in recording.compiled)
        graphs = sum(recording.compiled_graphs for recording in (self, *others))
        if ranks:
            environment["ranks"] = [*ranks]
        return Recording(list(functions.values()), environment, graphs, tuple(compiled))


def _ranks(recording: Recording) -> Iterable[int]:
    ranks = recording.environment.get("ranks")
    return [r for r in ranks if isinstance(r, int)] if isinstance(ranks, list) else []


def pack(value: Any, store: Callable[[Tensor], int]) -> JSON:
    """Return a value as JSON; `store` keeps a tensor and returns its number. What has no such form becomes a description."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        return value if abs(value) < 1 << 63 else {"object": "int beyond 64 bits"}
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if type(value) in (Tensor, torch.nn.Parameter):
        return {"tensor": store(value)}
    if type(value) is torch.Size:
        return {"size": list(value)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [pack(item, store) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": [[key, pack(item, store)] for key, item in value.items()]}
    if isinstance(value, (torch.dtype, torch.device)):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    return {"object": f"{type(value).__module__}.{type(value).__qualname__}"}


def unpack(packed: JSON, tensor: Callable[[int], Tensor]) -> Any:
    """Return the value of its JSON form; `tensor` returns the tensor of a number.

    Raises:
        Unreplayable: for a value that was stored as a description.
        ValueError: for a form that `pack` does not make.
    """
    if packed is None or isinstance(packed, (bool, int, str)):
        return packed
    if not isinstance(packed, dict) or len(packed) != 1:
        raise ValueError(f"not a packed value: {str(packed)[:80]}")
    ((kind, content),) = packed.items()
    unpacker = _UNPACK.get(kind)
    if unpacker is None:
        raise ValueError(f"unknown type of value {kind[:80]!r}")
    return unpacker(content, tensor)


def _items(content: JSON, tensor: Callable[[int], Tensor]) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError("a packed container must hold a list")
    return [unpack(item, tensor) for item in content]


def _size(content: JSON, tensor: Callable[[int], Tensor]) -> torch.Size:
    if not isinstance(content, list) or not all(type(n) is int for n in content):
        raise ValueError("a packed size must be a list of integers")
    return torch.Size([n for n in content if isinstance(n, int)])


def _float(content: JSON) -> float:
    if not isinstance(content, str):
        raise ValueError("a packed float must be a string")
    return float.fromhex(content)


def _complex(content: JSON, tensor: Callable[[int], Tensor]) -> complex:
    if not isinstance(content, list) or len(content) != 2:
        raise ValueError("a packed complex number has two parts")
    return complex(_float(content[0]), _float(content[1]))


def _dict(content: JSON, tensor: Callable[[int], Tensor]) -> dict[str, Any]:
    if not isinstance(content, list):
        raise ValueError("a packed dict must hold a list")
    found: dict[str, Any] = {}
    for pair in content:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("a packed dict holds pairs of a name and a value")
        found[pair[0]] = unpack(pair[1], tensor)
    return found


def _device(content: JSON, tensor: Callable[[int], Tensor]) -> torch.device:
    try:
        return torch.device(str(content))
    except RuntimeError as error:
        raise ValueError(f"{str(content)[:40]!r} is not a device") from error


def _described(content: JSON, tensor: Callable[[int], Tensor]) -> Any:
    raise Unreplayable(f"an argument of type {str(content)[:200]} was not stored")


def dtype_named(name: str) -> torch.dtype:
    """Return a torch dtype by its name.

    Raises:
        ValueError: for another name.
    """
    if name not in DTYPES:
        raise ValueError(f"{name[:40]!r} is not a dtype")
    return DTYPES[name]


def _numbered(content: JSON, tensor: Callable[[int], Tensor]) -> Tensor:
    if type(content) is not int:
        raise ValueError("a packed tensor is a number")
    return tensor(content)


DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2),
    )
}
_UNPACK: dict[str, Callable[[JSON, Callable[[int], Tensor]], Any]] = {
    "float": lambda content, tensor: _float(content),
    "complex": _complex,
    "tensor": _numbered,
    "size": _size,
    "list": _items,
    "tuple": lambda content, tensor: tuple(_items(content, tensor)),
    "dict": _dict,
    "dtype": lambda content, tensor: dtype_named(str(content)),
    "device": _device,
    "object": _described,
}


def rebuild(stored: StoredTensor, *, seed: int = 0) -> Tensor:
    """Return a tensor with the recorded layout, and the recorded values or new ones of their distribution.

    It is on the recorded device where that is there, else on the CPU. Gaps between strided elements hold zeros.
    """
    dtype = dtype_named(stored.layout.dtype)
    shape, strides = stored.layout.shape, stored.layout.strides
    device = _available(stored.device)
    values = _drawn(stored, dtype, seed) if stored.data is None else stored.data
    memory = torch.zeros(max(stored.extent, 1), dtype=dtype, device=device)
    memory.as_strided(stored.dense_shape, strides).copy_(values)
    tensor = memory.as_strided(shape, strides)
    if stored.parameter:
        return torch.nn.Parameter(tensor, requires_grad=stored.requires_grad)
    return tensor.requires_grad_(stored.requires_grad)


def _drawn(stored: StoredTensor, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = stored.statistics.get("min", 0.0), stored.statistics.get("max", 1.0)
    if dtype is torch.bool:
        return torch.rand(stored.dense_shape, generator=generator, device="cpu") < stored.statistics.get("mean", 0.5)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(int(low), int(high) + 1, stored.dense_shape, generator=generator, device="cpu").to(dtype)
    real = torch.float64 if dtype.is_complex else dtype
    mean, std = stored.statistics.get("mean", 0.0), stored.statistics.get("std", 1.0)
    values = torch.randn(stored.dense_shape, generator=generator, dtype=torch.float64, device="cpu") * std + mean
    if dtype.is_complex:
        return torch.complex(values, torch.randn(stored.dense_shape, generator=generator, dtype=torch.float64, device="cpu") * std).to(dtype)
    return values.clamp(low, high).to(real)


def _available(device: str) -> torch.device:
    try:
        wanted = torch.device(device)
    except RuntimeError:
        return torch.device("cpu")
    if wanted.type == "cuda" and torch.cuda.is_available() and (wanted.index or 0) < torch.cuda.device_count():
        return wanted
    return torch.device("cpu")
