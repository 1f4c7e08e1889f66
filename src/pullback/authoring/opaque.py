"""Opaque bodies: kernels that compilers and vmap must not look into, registered with torch.library."""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .. import _compat
from .errors import OpError, place_of
from .keeping import Kept
from .rules import Definition
from .structure import build, describe, flatten

_LIBRARY = torch.library.Library("pullback", "FRAGMENT")
_SCHEMA_TYPES: list[tuple[type, str]] = [
    (bool, "bool"),
    (int, "SymInt"),
    (float, "float"),
    (str, "str"),
    (torch.dtype, "ScalarType"),
    (torch.device, "Device"),
]
_taken: set[str] = set()


class Opaque:
    """One torch.library op for each combination of argument types; calling it calls the body through the dispatcher."""

    def __init__(self, definition: Definition, body: Callable[..., Any]) -> None:
        self.definition = definition
        self.body = body
        self.overloads: dict[Any, tuple[str, Any, tuple[str, ...], tuple[tuple[int, int], ...]]] = {}
        self.promised: tuple[Any, Any] | None = None

    def kinds(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        """The schema type of each argument."""
        return tuple([self._kind(name, arg) for name, arg in zip(self.definition.names, args, strict=True)])

    def _kind(self, name: str, arg: Any) -> str:
        if isinstance(arg, torch.Tensor):
            return "Tensor"
        if arg is None:
            return "Tensor?"
        for kind, text in _SCHEMA_TYPES:
            if isinstance(arg, kind):
                return text
        if isinstance(arg, (tuple, list)) and all(isinstance(item, int) for item in arg):
            return "SymInt[]"
        if isinstance(arg, (tuple, list)) and all(isinstance(item, float) for item in arg):
            return "float[]"
        where = f"{self.definition.name} ({self.definition.place})"
        raise OpError(
            f"{where} is opaque, and its argument {self.definition.shown(name)!r} is a {type(arg).__name__}: an opaque op takes tensors, "
            "containers of tensors, None, numbers, strings, dtypes, devices and lists of ints or floats."
        )

    def define(self, kinds: tuple[str, ...], spec: Any, count: int) -> Callable[..., Any]:
        """Define the torch.library op for `kinds`."""
        definition = self.definition
        name = _unique(definition)
        arguments = ", ".join(f"{kind} {argument}" for kind, argument in zip(kinds, _safe(definition.names), strict=True))
        returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        _LIBRARY.define(f"{name}({arguments}) -> {returns}")
        torch.library.impl(f"pullback::{name}", "default", self._implementation(self.body, spec, count), lib=_LIBRARY)
        torch.library.register_fake(f"pullback::{name}", self._implementation(self._fake, spec, count), lib=_LIBRARY)
        overload = getattr(torch.ops.pullback, name).default
        if definition.sharding is not None:
            from torch.distributed.tensor.experimental import register_sharding

            register_sharding(overload)(definition.sharding)
        return overload

    def _implementation(self, body: Callable[..., Any], spec: Any, count: int) -> Callable[..., Any]:
        definition = self.definition
        changed = [definition.names.index(name) for name in definition.mutates]

        def implementation(*args: Any) -> Any:
            given = list(args)
            for i in changed:
                given[i] = given[i].clone()
            leaves: list[Any] = []
            found, _ = flatten_kept(body(*given), leaves)
            if found != spec:
                first = f"{definition.name}.fake" if definition.fake else "the first call"
                raise OpError(
                    f"{definition.name} ({definition.place}) returned {describe(found)}, where {first} returned {describe(spec)}: an opaque op "
                    "returns the same structure at every call with arguments of the same types."
                )
            if body is self.body and self.promised is not None:
                self._keep_promise(args, leaves)
            outs = [_own(leaf, args) for leaf in leaves]
            return outs[0] if count == 1 else tuple(outs)

        return implementation

    def _keep_promise(self, args: tuple[Any, ...], leaves: list[Any]) -> None:
        """Compare what the body returned with what the fake said of the same arguments, once."""
        promised, self.promised = self.promised, None
        if promised is None or promised[0] != _outlines(args):
            return
        for said, got in zip(promised[1], _outlines(leaves), strict=False):
            if said != got:
                definition = self.definition
                raise OpError(
                    f"{definition.name}.fake ({place_of(definition.fake)}) says that the body returns {_shown(said)}, but it returned {_shown(got)}. "
                    "Compilers believe the fake."
                )

    def _fake(self, *args: Any) -> Any:
        if self.definition.fake is None:
            name, arguments = self.definition.name, ", ".join(self.definition.names)
            raise OpError(
                f"{name} ({self.definition.place}) is opaque and has no fake: compilers and meta tensors need to know what it returns "
                f"without running it. Write\n\n    @{name}.fake\n    def _({arguments}):\n        return torch.empty_like(...)"
            )
        return self.definition.fake(*args)

    def learn(self, args: tuple[Any, ...]) -> tuple[Any, int, tuple[str, ...], tuple[tuple[int, int], ...]]:
        """What the body returns for such arguments, from the fake, or without one from a run.

        Returns:
            Structure, number of tensors, kept names, and which outputs are arguments changed in place.
        """
        if self.definition.fake is None and torch.compiler.is_compiling():
            self._fake()
        leaves: list[Any] = []
        changed = [self.definition.names.index(name) for name in self.definition.mutates]
        given = list(args)
        for i in changed:
            given[i] = given[i].clone()
        spec, kept = flatten_kept((self.definition.fake or self.body)(*given), leaves)
        if self.definition.fake is not None and not torch.compiler.is_compiling():
            self.promised = (_outlines(args), _outlines(leaves))
        written = tuple([(j, i) for j, leaf in enumerate(leaves) for i in changed if leaf is given[i]])
        return spec, len(leaves), kept, written


def _outlines(values: Any) -> list[Any]:
    return [(tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None for value in values]


def _shown(outline: Any) -> str:
    return "no tensor" if outline is None else f"{str(outline[1]).removeprefix('torch.')}{list(outline[0])}"


def flatten_kept(value: Any, leaves: list[Any]) -> tuple[Any, tuple[str, ...]]:
    """Flatten an output with its kept values behind it."""
    if isinstance(value, Kept):
        spec = flatten(value.out, leaves)
        leaves.extend(list(value.values.values()))
        return spec, tuple(value.values)
    return flatten(value, leaves), ()


def _own(leaf: Any, args: tuple[Any, ...]) -> Any:
    """A result that is no argument: torch.library ops must not return one."""
    if any(leaf is arg for arg in args):
        return leaf.clone()
    return leaf


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _safe(names: tuple[str, ...]) -> list[str]:
    return [f"{name}_" if name in ("self", "from", "in", "is") else name for name in names]


def _unique(definition: Definition) -> str:
    base = re.sub(r"\W", "_", f"{definition.module}_{definition.name}")
    name, i = base, 1
    while name in _taken:
        i += 1
        name = f"{base}_{i}"
    _taken.add(name)
    return name


def call_opaque(definition: Definition, body: Callable[..., Any], module: types.ModuleType) -> Callable[..., Any]:
    """The body of an opaque op as generated code calls it; the torch.library ops are called from functions in `module`, where compilers find them."""
    opaque = Opaque(definition, body)

    def enter(kinds: tuple[str, ...], spec: Any, count: int, kept: tuple[str, ...], written: tuple[tuple[int, int], ...]) -> None:
        if kinds in opaque.overloads:
            return
        name = f"overload_{len(opaque.overloads) + 1}"
        module.__dict__[name] = opaque.define(kinds, spec, count)
        exec(f"def call_{name}(*args):\n    return {name}(*args)\n", module.__dict__)
        opaque.overloads[kinds] = (f"call_{name}", spec, kept, written)

    # Dynamo calls these while it traces, and takes constants from them: it would not see what changes in a dictionary that it has looked at.
    register = _compat.constant_result(enter)
    known = _compat.constant_result(lambda kinds: kinds in opaque.overloads)
    name_of = _compat.constant_result(lambda kinds: opaque.overloads[kinds][0])
    shape_of = _compat.constant_result(lambda kinds: opaque.overloads[kinds][1:])
    constants = [i for i, param in enumerate(definition.params) if param.static]

    def call(*args: Any) -> Any:
        if constants:  # torch would warn that they get no gradient
            args = tuple([arg.detach() if i in constants and _requires_grad(arg) else arg for i, arg in enumerate(args)])
        kinds = opaque.kinds(args)
        if not known(kinds):
            spec, count, kept, written = opaque.learn(args)
            register(kinds, spec, count, kept, written)
        spec, kept, written = shape_of(kinds)
        result = getattr(module, name_of(kinds))(*args)
        outs = [result] if isinstance(result, torch.Tensor) else list(result)
        for j, i in written:
            outs[j] = args[i].copy_(outs[j])
        count = len(outs) - len(kept)
        out = build(spec, outs[:count])
        return Kept(out, dict(zip(kept, outs[count:], strict=True))) if kept else out

    return call


def batched_body(definition: Definition, body: Callable[..., Any]) -> Callable[..., Any]:
    """`body` with the op's own way of running under vmap: `@op.vmap`, broadcasting for elementwise kernels, or a loop for opaque ones."""

    class Body(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            leaves: list[Any] = []
            spec, kept = flatten_kept(body(*args), leaves)
            structure[0] = (spec, kept)
            return tuple(leaves)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            leaves: list[Any] = []
            found = rule(info, in_dims, args)
            if type(found) is not tuple or len(found) != 2:
                raise OpError(
                    f"{definition.name}.vmap ({place_of(definition.vmap)}) must return (out, out_dims), the batched output and where its batch "
                    f"dimension is; got a {type(found).__name__}."
                )
            out, dims = found
            spec, kept = flatten_kept(out, leaves)
            structure[0] = (spec, kept)
            return tuple(leaves), _dims_of(dims, spec, len(leaves))

    structure: list[Any] = [None]
    transforms = _compat.transforms_active()

    def call(*args: Any) -> Any:
        if not transforms():
            return body(*args)
        outs = _compat.call_under_transforms(Body, *args)
        spec, kept = structure[0]
        out = build(spec, outs[: len(outs) - len(kept)])
        return Kept(out, dict(zip(kept, outs[len(outs) - len(kept) :], strict=True))) if kept else out

    # An outer vmap may be running when the rule is, so it calls what it is a part of.
    rule = _vmap_rule(definition, call)
    return call


def _dims_of(dims: Any, spec: Any, count: int) -> tuple[Any, ...]:
    if isinstance(dims, int) or dims is None:
        return (dims,) * count
    found: list[Any] = []
    flatten(dims, found)
    return tuple(found) + (0,) * (count - len(found))


def _vmap_rule(definition: Definition, body: Callable[..., Any]) -> Callable[..., Any]:
    if definition.vmap is not None:
        given = definition.vmap
        return lambda info, in_dims, args: given(info, in_dims, *args)
    if definition.elementwise:
        return lambda info, in_dims, args: (body(*_aligned(in_dims, args)), 0)
    warned: list[bool] = []

    def loop(info: Any, in_dims: Any, args: Any) -> Any:
        if not warned:
            warned.append(True)
            warnings.warn(
                f"{definition.name} ({definition.place}) is opaque and has no vmap rule, so vmap calls it once for each of the {info.batch_size} "
                f"examples. Give @{definition.name}.vmap to run a batch at once.",
                stacklevel=2,
            )
        rows = []
        for i in range(info.batch_size):
            rows.append(body(*[arg.select(dim, i) if dim is not None else arg for arg, dim in zip(args, in_dims, strict=True)]))
        return _stacked(rows), 0

    return loop


def _stacked(rows: list[Any]) -> Any:
    flat = []
    spec: Any = None
    kept: tuple[str, ...] = ()
    for row in rows:
        leaves: list[Any] = []
        spec, kept = flatten_kept(row, leaves)
        flat.append(leaves)
    outs = [torch.stack(column) for column in zip(*flat, strict=True)]
    out = build(spec, outs[: len(outs) - len(kept)])
    return Kept(out, dict(zip(kept, outs[len(outs) - len(kept) :], strict=True))) if kept else out


def _aligned(in_dims: Any, args: tuple[Any, ...]) -> list[Any]:
    """Batched arguments with the batch in front, and ranks made equal so that broadcasting means the same as for one example."""
    rank = max([arg.dim() - (dim is not None) for arg, dim in zip(args, in_dims, strict=True) if isinstance(arg, torch.Tensor)])
    found = []
    for arg, dim in zip(args, in_dims, strict=True):
        if isinstance(arg, torch.Tensor) and dim is not None:
            arg = arg.movedim(dim, 0)
            arg = arg.reshape(arg.shape[0], *(1,) * (rank - arg.dim() + 1), *arg.shape[1:])
        found.append(arg)
    return found
