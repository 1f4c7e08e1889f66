"""Gradients without rules: of a surrogate, or by recomputing the body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _compat
from .errors import OpError, place_of
from .keeping import Kept
from .rules import Definition, Rule
from .structure import flatten

Tensor = torch.Tensor
CALLS = 8
_transforms = _compat.transforms_active()


def automatic_rule(definition: Definition, body: Callable[..., Any]) -> Rule:
    """A joint rule for every differentiable argument: the vjp of the surrogate, or of the body itself."""
    function = definition.surrogate or body
    targets = tuple(param.name for param in definition.differentiable)
    return Rule(targets, None, vjp_of(definition, function), definition.names, definition.place, definition.wanted)


def vjp_of(definition: Definition, function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule ``(dy, *args, wanted)`` that differentiates `function` by autograd."""
    at = [definition.names.index(param.name) for param in definition.differentiable]
    watch = Watch(definition, [definition.names.index(param.name) for param in definition.params if param.static and param.name != "self"])

    def rule(dy: Any, *args: Any, **flags: Any) -> Any:
        wanted = next(iter(flags.values()))
        live = [i for i, flag in zip(at, wanted, strict=True) if flag and _differentiable(args[i])]
        grads = dict(zip(live, gradients_at(function, args, live, dy, watch), strict=True)) if live else {}
        found = tuple([grads.get(i) for i in at])
        return found if len(found) != 1 else next(iter(found))

    return rule


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


class Watch:
    """What is looked at when a body or a surrogate is differentiated for an op's gradient.

    Args:
        definition: The op.
        constants: Which arguments are declared to be never differentiated, with all that they hold.
    """

    def __init__(self, definition: Definition, constants: list[int]) -> None:
        self._definition = definition
        self._constants = constants
        self._left = CALLS

    def outputs(self, outs: tuple[Any, ...], given: list[Any]) -> None:
        """Raise where a surrogate returns something else than the op does."""
        got, expected = [list(out.shape) for out in outs], [list(value.shape) for value in given if value is not None]
        if len(got) == len(given) and all(value is None or value.shape == out.shape for out, value in zip(outs, given, strict=True)):
            return
        name, surrogate = self._definition.name, self._definition.surrogate
        where = f"{name}.surrogate ({place_of(surrogate)})" if surrogate else f"{name} ({self._definition.place})"
        raise OpError(f"{where} must return the shapes that {name} returns, {_shapes(expected)}; it returned {_shapes(got)}.")

    def graph(self, args: tuple[Any, ...], inputs: list[Tensor], outs: tuple[Any, ...]) -> None:
        """Raise in an op's first backward passes where the graph leads to a tensor that is no argument: it would get no gradient."""
        if self._left <= 0:
            return
        self._left -= 1
        known = [*inputs, *args, *[held for i in self._constants for held in _held(args[i])]]
        tensor = next(_leaves_behind(outs, known), None)
        if tensor is not None:
            raise OpError(
                f"{self._definition.name} ({self._definition.place}) reads a tensor of shape {list(tensor.shape)} that requires grad and is no "
                "argument, so it would get no gradient. Pass it as an argument, or use its .detach()."
            )


def _shapes(shapes: list[list[int]]) -> str:
    return ", ".join(map(str, shapes)) or "none"


def _leaves_behind(outs: tuple[Any, ...], known: list[Any]) -> Iterator[Tensor]:
    """The tensors that accumulate gradients behind `outs`, without what is behind the tensors among `known`."""
    waiting = [out.grad_fn for out in outs if out.grad_fn is not None]
    seen = {torch.autograd.graph.get_gradient_edge(value).node for value in known if isinstance(value, Tensor) and value.requires_grad}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            yield variable
        waiting += [following for following, _ in node.next_functions if following is not None]


def _held(value: Any) -> list[Any]:
    """The tensors that a constant argument holds."""
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    leaves: list[Any] = []
    flatten(value, leaves)
    return leaves


def gradients_at(function: Callable[..., Any], args: tuple[Any, ...], live: list[int], dy: Any, watch: Watch | None = None) -> tuple[Any, ...]:
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
        outs = tuple([leaves[i] for i in places])
        if watch is not None:
            watch.outputs(outs, given)
        return outs

    values = [args[i] for i in live]
    if _transforms():
        outs, pull = torch.func.vjp(of_live, *values)[:2]
        return pull(tuple([torch.zeros_like(out) if value is None else value.to(out.dtype) for out, value in zip(outs, given, strict=True)]))
    again = torch.is_grad_enabled() and _asked((args, dy))
    return _plain_vjp(of_live, values, given, again, (lambda inputs, outs: watch.graph(args, inputs, outs)) if watch is not None else None)


def _asked(value: Any) -> bool:
    """Whether a tensor anywhere in it requires grad."""
    leaves: list[Any] = []
    flatten(value, leaves)
    return any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves)


def _plain_vjp(
    function: Callable[..., Any], values: list[Tensor], given: list[Any], again: bool, look: Callable[..., None] | None
) -> tuple[Any, ...]:
    """By the autograd engine, which saved-tensor hooks see and torch.func refuses; differentiable `again`, or not."""
    with torch.enable_grad():
        inputs = [value.view_as(value) if again and value.requires_grad else value.detach().requires_grad_() for value in values]
        outs = function(*inputs)
        pairs = [(out, value.to(out.dtype)) for out, value in zip(outs, given, strict=True) if value is not None and out.requires_grad]
    if look is not None:
        look(inputs, outs)
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
