"""Forward mode: an op's jvp, given, from a flag, or derived from its vjp rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Self

import torch

from .. import _compat
from .errors import OpError, did_you_mean, listed, place_of
from .keeping import Kept
from .rules import Definition
from .runtime import Tensor, zeros_of
from .structure import flatten

_transforms = _compat.transforms_active()
Push = Callable[[Callable[..., Any], Any, tuple[Any, ...], tuple[Any, ...]], Any]


def push_of(
    definition: Definition,
    body: Callable[..., Any],
    saved_args: Callable[[Any, tuple[Any, ...]], dict[str, Any]],
    arguments: tuple[bool, ...],
) -> Push:
    """Return the function that the generated Function's `jvp` calls.

    Args:
        definition: The op.
        body: Its forward.
        saved_args: Reads residuals by name from ctx and its saved tensors.
        arguments: Which of the first saved values are arguments.
    """
    names = definition.names

    def push(pull: Callable[..., Any], ctx: Any, saved: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        if not _transforms():
            own = len(arguments)
            firsts = [_compat.primal(value) if argument else value for value, argument in zip(saved, arguments, strict=False)]
            return push_here(pull, ctx, (*firsts, *saved[own:]), tangents)
        outer_levels, values = _compat.forward_mode_below((*saved, *tangents))
        with outer_levels:
            return push_here(pull, ctx, values[: len(saved)], values[len(saved) :])

    def push_here(pull: Callable[..., Any], ctx: Any, saved: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        tangents = tuple([None if param.static else tangent for param, tangent in zip(definition.params, tangents, strict=True)])
        moving = [i for i, tangent in enumerate(tangents) if tangent is not None]
        for i in moving:
            _refuse_unreachable(definition, names[i])
        if not moving:
            return _standing(ctx)
        if definition.jvp is not None:
            outs = _given(definition, ctx, saved_args(ctx, saved), tangents)
        elif all(names[i] in definition.linear for i in moving):
            outs = _linear(definition, body, saved_args(ctx, saved), tangents)
        elif definition.elementwise and not definition.automatic and not any(tangents[i].is_complex() for i in moving) and len(ctx.metas) == 1:
            outs = _elementwise(definition, pull, ctx, saved, tangents, moving)
        elif definition.opaque and definition.automatic is None:
            raise OpError(
                f"{definition.name} ({definition.place}) is opaque, so forward mode cannot be derived from its rules: they may call kernels that "
                f"autograd does not see. Give @{definition.name}.jvp, or declare linear=(...) if it is linear in its arguments."
            )
        else:
            return _derived(definition, pull, ctx, saved, tangents, moving)
        return _answer(ctx, [*outs, *_kept_tangents(definition, pull, ctx, saved, tangents, moving)])

    return push


def _refuse_unreachable(definition: Definition, name: str) -> None:
    reachable = {target for rule in definition.rules for target in rule.targets}
    if definition.automatic or definition.jvp is not None or name in reachable or name in definition.linear:
        return
    raise OpError(
        f'{definition.name} ({definition.place}): {name!r} has a tangent, but no rule. Write one with @{definition.name}.vjp("{name}"), '
        f"or give @{definition.name}.jvp."
    )


def _standing(ctx: Any) -> Any:
    """Zero tangents: only static arguments have one, and they count as constants."""
    metas = (*ctx.metas, *ctx.hidden_metas)
    return _answer(ctx, [zeros_of(m) if m is not None and (m[1].is_floating_point or m[1].is_complex) else None for m in metas])


def _answer(ctx: Any, outs: list[Any]) -> Any:
    """Tangents in the places of the Function's outputs, laid out as the outputs are: torch asserts that where an output is a view."""
    outs = [_laid_out(out, meta) for out, meta in zip(outs, (*ctx.metas, *ctx.hidden_metas), strict=True)]
    if ctx.marked:
        return (*outs, None)
    return outs[0] if ctx.many is None else tuple(outs)


def _laid_out(tangent: Any, meta: Any) -> Any:
    if meta is None or not isinstance(tangent, Tensor) or isinstance(tangent, Unusable) or meta[3] is None or tangent.stride() == meta[3]:
        return tangent
    return torch.empty_strided(meta[0], meta[3], dtype=tangent.dtype, device=tangent.device).copy_(tangent)


def _given(definition: Definition, ctx: Any, residuals: dict[str, Any], tangents: tuple[Any, ...]) -> list[Any]:

    assert definition.jvp is not None
    wanted = list(inspect.signature(definition.jvp).parameters)[1:]
    where = f"{definition.name}.jvp ({place_of(definition.jvp)})"
    out = definition.jvp(Tangents(where, definition.names, tangents), *[residuals[name] for name in wanted])
    leaves: list[Any] = []
    flatten(out, leaves)
    if len(leaves) != len(ctx.metas):
        raise OpError(f"{where} must return a tangent for each of the {len(ctx.metas)} outputs, in the output's structure; got {len(leaves)}.")
    for leaf, meta in zip(leaves, ctx.metas, strict=True):
        if isinstance(leaf, Tensor) and meta is not None and leaf.shape != meta[0]:
            raise OpError(f"{where} returned a tangent of shape {list(leaf.shape)} for an output of shape {list(meta[0])}.")
    return leaves


class Tangents:
    """The tangents of an op's arguments by name; None where an argument has none."""

    def __init__(self, where: str, names: tuple[str, ...], tangents: tuple[Any, ...]) -> None:
        self.__dict__.update(zip(names, tangents, strict=True))
        self._where, self._names = where, names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise OpError(f"{self._where} asks for the tangent of {name!r}; the arguments are {listed(self._names)}.{did_you_mean(name, self._names)}")


def _linear(definition: Definition, body: Callable[..., Any], args: dict[str, Any], tangents: tuple[Any, ...]) -> list[Any]:
    moved = []
    for name, tangent in zip(definition.names, tangents, strict=True):
        if tangent is not None:
            moved.append(tangent)
        elif name in definition.linear and isinstance(args[name], Tensor):
            moved.append(torch.zeros_like(args[name]))
        else:
            moved.append(args[name])
    out = body(*moved)
    leaves: list[Any] = []
    flatten(out.out if isinstance(out, Kept) else out, leaves)
    return leaves


def _elementwise(
    definition: Definition, pull: Callable[..., Any], ctx: Any, saved: tuple[Any, ...], tangents: tuple[Any, ...], moving: list[int]
) -> list[Any]:
    """Sum of the rules applied to the tangents: a diagonal Jacobian is its own transpose."""
    _refuse_nonlinear(definition, moving)
    shape = ctx.metas[0][0]
    total = None
    for i in moving:
        needs = tuple([j == i for j in range(len(tangents))])
        nothing = (None,) * (len(ctx.hidden_metas) + 1 if ctx.marked else 0)
        grads = _tuple(pull(ctx, needs, saved, tangents[i].expand(shape), *nothing))
        if grads[i] is not None:
            total = grads[i] if total is None else total + grads[i]
    return [total]


def _derived(definition: Definition, pull: Callable[..., Any], ctx: Any, saved: tuple[Any, ...], tangents: tuple[Any, ...], moving: list[int]) -> Any:
    """The rules are linear in the cotangent; their transpose is the jvp."""
    _refuse_nonlinear(definition, moving)
    open_ended = [name for name in definition.kept if not any(rule.of == name for rule in definition.rules)]
    metas = [*ctx.metas, *ctx.hidden_metas]
    live = [
        i
        for i, meta in enumerate(metas)
        if meta is not None
        and (meta[1].is_floating_point or meta[1].is_complex)
        and (i < len(ctx.metas) or definition.kept[i - len(ctx.metas)] not in open_ended)
    ]
    found = _transposed(definition, pull, ctx, saved, tangents, moving, metas, live)
    outs = [found.get(i) for i in range(len(metas))]
    for i, name in enumerate(definition.kept):
        meta = ctx.hidden_metas[i] if i < len(ctx.hidden_metas) else None
        if name in open_ended and meta is not None and meta[1].is_floating_point:
            if torch.compiler.is_compiling():
                raise OpError(f"{second_order_message(definition, name)} While compiling, forward mode needs such rules for first derivatives too.")
            outs[len(ctx.metas) + i] = unusable(definition, name, meta)
    return _answer(ctx, outs)


def _refuse_nonlinear(definition: Definition, moving: list[int]) -> None:
    for rule in definition.rules:
        if not rule.linear and any(definition.names[i] in rule.targets for i in moving):
            raise OpError(
                f"{definition.name}.vjp[{rule.title}] ({rule.place}) is declared linear=False, so no jvp can be derived from it: "
                f"give @{definition.name}.jvp."
            )


def _transposed(
    definition: Definition,
    pull: Callable[..., Any],
    ctx: Any,
    saved: tuple[Any, ...],
    tangents: tuple[Any, ...],
    moving: list[int],
    metas: list[Any],
    live: list[int],
) -> dict[int, Any]:
    needs = tuple([i in moving for i in range(len(tangents))])
    used: list[int] = []

    def backward(*values: Tensor) -> tuple[Any, ...]:
        given: list[Any] = [None] * len(metas)
        for i, value in zip(live, values, strict=True):
            given[i] = value
        marker = (None,) if ctx.marked else ()
        grads = _tuple(pull(ctx, needs, saved, *given, *marker))
        found = []
        for i in moving:
            if grads[i] is None:
                continue
            if not grads[i].requires_grad:
                _refuse_detached(definition, definition.names[i], grads[i])
            used.append(i)
            found.append(grads[i])
        return tuple(found)

    ones = [torch.ones(metas[i][0], dtype=metas[i][1], device=metas[i][2]) for i in live]
    grads, transpose = torch.func.vjp(backward, *ones)[:2]
    moved = tuple([_fit(tangents[i], grad) for i, grad in zip(used, grads, strict=True)])
    if not moved:
        return {i: zeros_of(metas[i]) for i in live}
    return dict(zip(live, transpose(moved), strict=True))


def _fit(tangent: Tensor, grad: Tensor) -> Tensor:
    """The tangent in the shape and dtype of an unreduced gradient."""
    tangent = tangent.expand(grad.shape)
    if tangent.is_complex() and not grad.is_complex():
        tangent = tangent.real
    return tangent.to(grad.dtype)


def _refuse_detached(definition: Definition, name: str, grad: Tensor) -> None:
    """A gradient that does not depend on the cotangent is zero, or cut off from it."""
    try:
        zero = not bool((grad != 0).any())
    except RuntimeError:
        zero = False
    if not zero:
        raise OpError(
            f"{definition.name} ({definition.place}): the rule for {name!r} returned a gradient that is cut off from its "
            "cotangent (detach, no_grad, numpy or a kernel), so no jvp can be derived from it. Write the rule with torch operations, "
            f"or give @{definition.name}.jvp."
        )


def _kept_tangents(
    definition: Definition, pull: Callable[..., Any], ctx: Any, saved: tuple[Any, ...], tangents: tuple[Any, ...], moving: list[int]
) -> list[Any]:
    """Tangents of kept values where the output's come from elsewhere."""
    if not any(meta is not None and (meta[1].is_floating_point or meta[1].is_complex) for meta in ctx.hidden_metas):
        return [None] * len(ctx.hidden_metas)
    full = _derived(definition, pull, ctx, saved, tangents, moving)
    return list(full[len(ctx.metas) : -1])


def _tuple(grads: Any) -> tuple[Any, ...]:
    return grads if isinstance(grads, tuple) else (grads,)


class Unusable(torch.Tensor):
    """The tangent of a kept value that no rule leads to: any use of it raises."""

    message: str

    def __new__(cls, meta: Any, message: str) -> Self:
        strides = meta[3] if len(meta) > 3 else None
        new = torch.Tensor._make_wrapper_subclass(cls, meta[0], strides, dtype=meta[1], device=meta[2])  # type: ignore[attr-defined]
        new.message = message
        return new

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.is_same_size.default, torch.ops.aten._has_same_storage_numel.default):
            return args[0].shape == args[1].shape
        leaves: list[Any] = []
        flatten((args, kwargs or {}), leaves)
        first = next(leaf for leaf in leaves if isinstance(leaf, Unusable))
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.view_as.default):
            return Unusable((first.shape, first.dtype, first.device), first.message)
        if func is torch.ops.aten._new_zeros_with_same_feature_meta.default:
            return Unusable((args[1].shape, args[1].dtype, args[1].device, args[1].stride()), first.message)
        if func is torch.ops.aten.copy_.default and isinstance(args[0], Unusable):
            return args[0]
        raise OpError(first.message)


def unusable(definition: Definition, name: str, meta: Any) -> Unusable:
    """A tangent for the kept value `name` that raises when something is computed from it."""
    return Unusable(meta, second_order_message(definition, name))


def second_order_message(definition: Definition, name: str) -> str:
    """Why a derivative through the kept value `name` cannot be given."""
    return (
        f"{definition.name} ({definition.place}): a second derivative needs the derivative of the kept value {name!r}, and there is no rule "
        f'for it. Write rules from its cotangent, @{definition.name}.vjp("{definition.differentiable[0].name}", of="{name}"), '
        f"or compute {name!r} again in the rules."
    )
