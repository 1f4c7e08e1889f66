"""What generated code calls by name: parts that do not depend on the op."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .. import _compat
from .autocast import autocast_state
from .keeping import Kept
from .structure import LEAF, Outputs, build, flatten

Tensor = torch.Tensor
_transforms = _compat.transforms_active()
_any_autocast = _compat.any_autocast()
_level = _compat.forward_level()

# Types of arguments that are surely no tensor and hold none.
PLAIN = frozenset({float, int, bool, complex, str, bytes, type(None), torch.dtype, torch.device})


def any_wanted(args: Any) -> bool:
    """Whether a tensor among `args` requires grad."""
    for arg in args:  # noqa: SIM110  a compiler traces the loop, not the generator
        if isinstance(arg, Tensor) and arg.requires_grad:
            return True
    return False


def any_differentiable(values: Any) -> bool:
    """Whether a tensor among `values` has a dtype that gradients have."""
    for value in values:  # noqa: SIM110  a compiler traces the loop, not the generator
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
            return True
    return False


def out_of(value: Any) -> Any:
    """An op's output without what it keeps."""
    return value.out if isinstance(value, Kept) else value


# outputs: flat and back


def outputs_of(y: Any, marked: bool) -> tuple[tuple[Any, ...], Outputs, bool] | None:
    """The flat outputs, their structure, and whether the structure has to be returned too; None for a tensor."""
    if isinstance(y, Tensor):
        return None
    if type(y) is tuple and len(y) > 1 and not [leaf for leaf in y if type(leaf) is not Tensor]:
        return y, tuple_of(len(y)), marked
    leaves: list[Any] = []
    spec = flatten(y, leaves)
    return tuple(leaves), Outputs(spec, len(leaves)), marked or not _plain_tuple(y, leaves)


_tuples: dict[int, Outputs] = {}


def tuple_of(size: int) -> Outputs:
    """The structure of a plain tuple of tensors."""
    if torch.compiler.is_dynamo_compiling():
        return Outputs(("tuple", (LEAF,) * size), size)
    found = _tuples.get(size)
    if found is None:
        found = _tuples[size] = Outputs(("tuple", (LEAF,) * size), size)
    return found


def _plain_tuple(y: Any, leaves: list[Any]) -> bool:
    """Whether a Function may return `y` as it is, and it comes out the same."""
    return type(y) is tuple and len(y) > 1 and len(leaves) == len(y) and all(isinstance(leaf, Tensor) for leaf in leaves)


def flat_outputs(y: Any, hidden: Any, mutated: tuple[Any, ...]) -> Any:
    """What a setup_context-style forward returns: a tensor, a plain tuple of tensors, or flat outputs, kept values and the structure."""
    if isinstance(y, Tensor) and not hidden and not mutated:
        return y
    leaves: list[Any] = []
    spec = flatten(y, leaves)
    if _plain_tuple(y, leaves) and not hidden and not mutated:
        return y
    outputs = Outputs(spec, len(leaves))
    outputs.changed = tuple([next((i for i, leaf in enumerate(leaves) if leaf is arg), -1) for arg in mutated])
    return (*leaves, *hidden, outputs)


def unaliased(y: Any, args: tuple[Any, ...]) -> Any:
    """The output in memory of its own while a dual level is open: torch asks for a view's tangent to be a view too, and a declared one is none."""
    if _level._current_level < 0 or _transforms():
        return y
    leaves: list[Any] = []
    spec = flatten(y, leaves)
    return build(spec, [leaf.clone() if isinstance(leaf, Tensor) and (leaf._is_view() or any(leaf is a for a in args)) else leaf for leaf in leaves])


def parts_of(output: Any, kept: int) -> tuple[Any, Any, tuple[Any, ...]]:
    """Take `flat_outputs` apart: the output if it is a tensor, else the flat ones; and the kept values."""
    if isinstance(output, Tensor):
        return output, None, ()
    outputs = output[-1]
    if type(outputs) is not Outputs:
        return None, (output, tuple_of(len(output)), False), ()
    flat, hidden = tuple(output[: outputs.count]), tuple(output[outputs.count : outputs.count + kept])
    if outputs.spec == LEAF:
        return flat[0], None, hidden
    return None, (flat, outputs, True), hidden


def unpack(result: Any) -> Any:
    """An op's output from what its Function returned."""
    if type(result) is not tuple or type(result[-1]) is not Outputs:
        return result
    outputs = result[-1]
    return build(outputs.spec, result[: outputs.count])


def unpack_kept(result: Any) -> Any:
    """The same for an op that keeps values, whose Function returns them too where gradients pass through them."""
    if type(result) is Tensor:
        return result
    if type(result[-1]) is not Outputs:
        return result[0]
    outputs = result[-1]
    return build(outputs.spec, result[: outputs.count])


def copy_back(result: Any, mutated: tuple[Any, ...], info: Any = None) -> Any:
    """Write the new values of `mutated` into them and return the output with them in their places."""
    if info is None:
        outputs = result[-1]
        spec, changed, leaves = outputs.spec, outputs.changed, list(result[: outputs.count])
    else:
        spec, changed = info
        leaves = [result] if isinstance(result, Tensor) else list(result)
    for arg, i in zip(mutated, changed, strict=True):
        leaves[i] = arg.copy_(leaves[i])
    return build(spec, leaves)


def from_graph(result: Any, info: Any) -> Any:
    """An op's output from the flat tensors that its graph form returned."""
    if info is None:
        return result
    return build(info[0], [result] if isinstance(result, Tensor) else list(result))


# cotangents


def metas_of(values: Any) -> tuple[Any, ...]:
    """Shape, dtype, device and, outside of transforms, strides of each tensor."""
    strided = not _transforms()
    return tuple([(v.shape, v.dtype, v.device, v.stride() if strided else None) if isinstance(v, Tensor) else None for v in values])


def cotangents(ctx: Any, dy: Any, more: tuple[Any, ...], kept: int) -> tuple[Any, ...]:
    """The output's cotangent in the output's structure (None if nothing came), then those of the kept values."""
    outputs = getattr(ctx, "many", None)
    size = 1 if outputs is None else outputs.count
    given = (dy, *more)
    # A compiler hands zeros to every output; a compiled backward has no second derivative, so nothing ever arrives for kept values.
    bars = (None,) * kept if torch.compiler.is_dynamo_compiling() else given[size : size + kept]
    if outputs is None:
        return (dy, *bars)
    outs = given[:size]
    if all(out is None for out in outs):
        return (None, *bars)
    return (build(outputs.spec, _alike(outs)), *bars)


def _alike(outs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cotangents of one kind: the engine fills an unused DTensor output with plain zeros (pytorch#173123)."""
    others = [out for out in outs if type(out) is not Tensor]
    first = next((out for out in others if type(out).__name__ == "DTensor"), None)
    if first is None or len(others) == len(outs):
        return outs
    from torch.distributed.tensor import DTensor, Replicate

    mesh = first.device_mesh  # type: ignore[attr-defined]
    placements = [Replicate()] * mesh.ndim
    return tuple([DTensor.from_local(out, mesh, placements, run_check=False) if type(out) is Tensor else out for out in outs])


def filled(ctx: Any, dy: Any) -> Any:
    """The output's cotangent with zeros where nothing came."""
    if isinstance(dy, Tensor) or ctx.many is None:
        return dy
    leaves: list[Any] = []
    spec = flatten(dy, leaves)
    pairs = zip(leaves, ctx.metas, strict=True)
    full = [zeros_of(meta) if leaf is None and meta is not None else leaf for leaf, meta in pairs]
    return build(spec, _alike(tuple(full)))


def full(ctx: Any, dy: Any) -> Any:
    """The output's cotangent, zeros also where nothing came at all: a rule that is not linear may make something of zeros."""
    if dy is not None:
        return filled(ctx, dy)
    zeros = tuple([None if meta is None else zeros_of(meta) for meta in ctx.metas])
    return zeros[0] if ctx.many is None else build(ctx.many.spec, zeros)


def zeros_of(meta: Any) -> Tensor:
    """Zeros as `metas_of` describes them."""
    return torch.zeros(meta[0], dtype=meta[1], device=meta[2])


def rebuild(ctx: Any, outs: Any) -> Any:
    """The op's output from its saved flat tensors."""
    outputs = getattr(ctx, "many", None)
    return outs[0] if outputs is None else build(outputs.spec, outs)


def add(a: Any, b: Any) -> Any:
    """The sum of two cotangents, either of which may be missing."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


# torch.func and forward mode


def begin(ctx: Any, inputs: Any, output: Any, y: Any, many: Any, hidden: tuple[Any, ...]) -> tuple[tuple[bool, ...], bool]:
    """Note what backward and jvp need to know, and return which gradients to save for and whether forward mode may ask."""
    ctx.marked = not isinstance(output, Tensor) and type(output[-1]) is Outputs
    ctx.many = None if many is None else many[1]
    ctx.metas = metas_of((y,) if many is None else many[0])
    ctx.hidden_metas = metas_of(hidden)
    ctx.shapes = tuple([value.shape if isinstance(value, Tensor) else None for value in inputs])
    ctx.autocast = autocast_state(inputs) if _any_autocast() else None
    ctx.set_materialize_grads(False)
    needs = ctx.needs_input_grad
    if any(needs) and _level._current_level < 0 and _compat.jvp_levels() == 0:
        return needs, False
    return (True,) * len(needs), True


def alive(saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved tensors without the wrappers of transforms that have ended."""
    return _compat.unwrap_dead(tuple(saved)) if saved else saved


# random state


def random_state(args: Any) -> Any:
    """The state of the generators that a body may draw from."""
    devices = sorted({arg.device.index for arg in args if isinstance(arg, Tensor) and arg.device.type == "cuda"})
    return torch.get_rng_state(), [(index, torch.cuda.get_rng_state(index)) for index in devices]


@contextlib.contextmanager
def random_state_of(state: Any) -> Iterator[None]:
    """Bring `state` back, and afterwards the present one."""
    devices = [index for index, _ in state[1]]
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(state[0])
        for index, value in state[1]:
            torch.cuda.set_rng_state(value, index)
        yield
