"""Gradients without rules: of a surrogate, or by recomputing the body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _compat
from .keeping import Kept
from .rules import Definition, Rule
from .structure import flatten

Tensor = torch.Tensor
_transforms = _compat.transforms_active()


def automatic_rule(definition: Definition, body: Callable[..., Any]) -> Rule:
    """A joint rule for every differentiable argument: the vjp of the surrogate, or of the body itself."""
    function = definition.surrogate or body
    targets = tuple(param.name for param in definition.differentiable)
    return Rule(targets, None, vjp_of(definition, function), definition.names, definition.place, definition.wanted)


def vjp_of(definition: Definition, function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule ``(dy, *args, wanted)`` that differentiates `function` by autograd."""
    at = [definition.names.index(param.name) for param in definition.differentiable]

    def rule(dy: Any, *args: Any, **flags: Any) -> Any:
        wanted = next(iter(flags.values()))
        live = [i for i, flag in zip(at, wanted, strict=True) if flag and _differentiable(args[i])]
        grads = dict(zip(live, gradients_at(function, args, live, dy), strict=True)) if live else {}
        found = tuple([grads.get(i) for i in at])
        return found if len(found) != 1 else next(iter(found))

    return rule


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def gradients_at(function: Callable[..., Any], args: tuple[Any, ...], live: list[int], dy: Any) -> tuple[Any, ...]:
    """The gradients of `function` at `args` for the arguments `live`; differentiable again in `args` and `dy` where grad mode is on."""

    given: list[Any] = []
    flatten(dy, given)

    def of_live(*values: Any) -> tuple[Any, ...]:
        full = list(args)
        for i, value in zip(live, values, strict=True):
            full[i] = value
        out = function(*full)
        leaves: list[Any] = []
        flatten(out.out if isinstance(out, Kept) else out, leaves)
        # What is no floating tensor, a number or None, has no cotangent, which looks like one that was not given.
        places = [i for i, leaf in enumerate(leaves) if _differentiable(leaf)]
        if len(given) == len(leaves):
            given[:] = [given[i] for i in places]
        return tuple([leaves[i] for i in places])

    values = [args[i] for i in live]
    if _transforms():
        outs, pull = torch.func.vjp(of_live, *values)[:2]
        return pull(tuple([torch.zeros_like(out) if value is None else value.to(out.dtype) for out, value in zip(outs, given, strict=True)]))
    return _plain_vjp(of_live, values, given)


def _plain_vjp(function: Callable[..., Any], values: list[Tensor], given: list[Any]) -> tuple[Any, ...]:
    """By the autograd engine, which saved-tensor hooks see and torch.func refuses."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = [value.view_as(value) if again and value.requires_grad else value.detach().requires_grad_() for value in values]
        outs = function(*inputs)
        pairs = [(out, value.to(out.dtype)) for out, value in zip(outs, given, strict=True) if value is not None and out.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    found, cotangents = zip(*pairs, strict=True)
    return torch.autograd.grad(found, inputs, cotangents, create_graph=again, allow_unused=True)


class Probe:
    """Which arguments' values a surrogate's gradient reads: its gradient is traced on meta tensors, once for each signature."""

    def __init__(self, definition: Definition) -> None:
        assert definition.surrogate is not None
        self._function = definition.surrogate
        self._at = [definition.names.index(param.name) for param in definition.differentiable]
        self._known: dict[Any, tuple[bool, ...]] = {}

    def __call__(self, args: tuple[Any, ...]) -> tuple[bool, ...]:
        key = tuple([(arg.shape, arg.dtype) if isinstance(arg, Tensor) else _hashable(arg) for arg in args])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(args)
        return found

    def _find(self, args: tuple[Any, ...]) -> tuple[bool, ...]:
        try:
            return self._trace(args)
        except Exception:  # a surrogate that cannot be traced on meta tensors keeps everything, which is right and costs memory
            return (True,) * len(args)

    def _trace(self, args: tuple[Any, ...]) -> tuple[bool, ...]:
        from torch.fx.experimental.proxy_tensor import make_fx

        tensors = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
        metas = [torch.empty(tuple(args[i].shape), dtype=args[i].dtype, device="meta") for i in tensors]
        live = [i for i in self._at if _differentiable(args[i])]

        def run(*values: Tensor) -> Any:
            full = list(args)
            for i, value in zip(tensors, values, strict=False):
                full[i] = value
            return self._function(*full)

        own_hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        with _compat.outside_transforms(), own_hooks, torch.no_grad():
            leaves: list[Any] = []
            flatten(run(*metas), leaves)
            dys = [torch.empty_like(leaf) for leaf in leaves if _differentiable(leaf)]

            def gradient(*values: Tensor) -> Any:
                given = values[len(tensors) :]
                full = list(args)
                for i, value in zip(tensors, values, strict=False):
                    full[i] = value
                return gradients_at(self._function, tuple(full), live, tuple(given))

            graph = make_fx(gradient)(*metas, *dys).graph
        graph.eliminate_dead_code()
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        read = dict(zip(tensors, [bool(node.users) for node in inputs], strict=False))
        return tuple([read.get(i, False) for i in range(len(args))])


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return (type(value), value)


def stands(reads: tuple[bool, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Shape, dtype and device of each tensor that is not saved."""
    return tuple(
        [(arg.shape, arg.dtype, arg.device) if isinstance(arg, Tensor) and not read else None for read, arg in zip(reads, args, strict=True)]
    )


def stand_in(found: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` with a tensor of the right shape, and no memory, in place of each that was not saved."""
    return tuple(
        [torch.zeros((), dtype=meta[1], device=meta[2]).expand(meta[0]) if meta is not None else arg for meta, arg in zip(found, args, strict=True)]
    )
