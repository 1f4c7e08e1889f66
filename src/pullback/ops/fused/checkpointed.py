"""Computing again instead of keeping."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ...authoring.op import Sample, op, sample
from ...authoring.structure import build, flatten


def checkpointed_reference(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The call itself."""
    return function(*args, **kwargs)


def checkpointed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)``, keeping its arguments only: what backward needs is computed again there.

    Math:
        The vjp of f at x is found by running f at x once more, now recorded, and reversing that. One forward more, for the memory of everything f
        would have kept.

    Args:
        function: A function or module that gives the same result for the same arguments and random numbers, and runs on detached tensors. Parameters
            of a module get their gradients, also of one that a method or closure brings along.
        *args: Its arguments; tensors in tuples, lists, dicts and dataclasses are arguments too.
        **kwargs: More of them.

    Returns:
        What `function` returns: a tensor or a container of tensors.

    Saves:
        The tensors among the arguments, the parameters, and the state of the random generators, which is brought back for the second run: masks of
        dropout are the same.

    Supports:
        What `function` supports: every dtype and device; derivatives of any order, torch.func (where ``torch.utils.checkpoint`` raises), forward
        mode, torch.compile, autocast. Under torch.func and torch.compile it saves nothing: the transform or the compiler sees `function` itself.

    Raises:
        TypeError: for what cannot be called.
        RuntimeError: if `function` uses a tensor that requires grad and is neither an argument nor a parameter: it would get no gradient.

    Example:
        >>> import torch, pullback as pb
        >>> block = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.1), torch.nn.GELU())
        >>> x = torch.ones(2, 3, requires_grad=True)
        >>> pb.ops.checkpointed(block, x).sum().backward()
        >>> x.grad.shape, block[0].weight.grad.shape
        (torch.Size([2, 3]), torch.Size([3, 3]))

    References:
        Griewank and Walther, Algorithm 799: revolve, ACM TOMS 26(1), 2000, doi:10.1145/347837.347846; Chen et al., Training deep nets with sublinear
        memory cost, 2016, arXiv:1604.06174.
    """
    if not callable(function):
        raise TypeError(f"checkpointed: function must be a function or a module, got {type(function).__name__}.")
    if torch.compiler.is_compiling():
        return function(*args, **kwargs)
    module = _module_of(function)
    if module is None:
        return _recomputed(function, None, args, kwargs)
    return _recomputed(module, dict(module.named_parameters()), args, kwargs)


@op(static=("function",))
def _recomputed(function: Any, parameters: Any, args: Any, kwargs: Any) -> Any:
    if torch.is_grad_enabled():
        return _call(function, parameters, args, kwargs)
    # The first run of two, which keeps nothing. No tensor that is known requires grad in it; if the result does, another one took part.
    leaves: list[Any] = []
    flatten((parameters, args, kwargs), leaves)
    detached = {id(leaf): leaf.detach() for leaf in leaves if isinstance(leaf, Tensor)}
    nothing = torch.empty(0)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: nothing, lambda saved: saved):
        out = _call(function, *[_replaced(value, detached) for value in (parameters, args, kwargs)])
    _refuse_captured(function, out)
    return out


@_recomputed.inference
def _(function: Any, parameters: Any, args: Any, kwargs: Any) -> Any:
    return _call(function, parameters, args, kwargs)


def _call(function: Any, parameters: Any, args: Any, kwargs: Any) -> Any:
    if parameters is None:
        return function(*args, **kwargs)
    return torch.func.functional_call(function, parameters, tuple(args), kwargs)


def _replaced(value: Any, by: dict[int, Tensor]) -> Any:
    """`value` with other tensors in it."""
    if isinstance(value, Tensor):
        return by[id(value)]
    leaves: list[Any] = []
    spec = flatten(value, leaves)
    return build(spec, [by.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves])


def _refuse_captured(function: Any, out: Any) -> None:
    outs: list[Any] = []
    flatten(out, outs)
    ends = [leaf for leaf in outs if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not ends:
        return
    shapes = sorted({str(list(leaf.shape)) for end in ends for leaf in _sources(end)})
    name = getattr(function, "__name__", type(function).__name__)
    raise RuntimeError(
        f"checkpointed: {name} uses a tensor of shape {' and '.join(shapes)} that requires grad and is no argument, so it would get no gradient. "
        "Pass it as an argument, or make it a parameter of a module that is passed as `function`."
    )


def _sources(end: Tensor) -> list[Tensor]:
    """The leaves of the graph behind `end`."""
    found, seen, waiting = [], set(), [end.grad_fn]
    if end.grad_fn is None:
        return [end]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        waiting += [after for after, _ in node.next_functions]
    return found


def _module_of(function: Any) -> nn.Module | None:
    """The module whose parameters a call of `function` may use; None for a function that brings none along."""
    if isinstance(function, nn.Module):
        return function
    modules = list(dict.fromkeys(_modules_in(function)))
    return _Holding(function, modules) if modules else None


def _modules_in(function: Any) -> Iterator[nn.Module]:
    if isinstance(function, nn.Module):
        yield function
    elif isinstance(function, functools.partial):
        for part in (function.func, *function.args, *function.keywords.values()):
            yield from _modules_in(part)
    elif hasattr(function, "__self__"):
        yield from _modules_in(function.__self__)
    if isinstance(function, FunctionType):
        seen = inspect.getclosurevars(function)
        yield from (value for value in (*seen.nonlocals.values(), *seen.globals.values()) if isinstance(value, nn.Module))


class _Holding(nn.Module):
    """A function as a module that holds the modules it uses, so that their parameters can be replaced while it runs."""

    def __init__(self, function: Callable[..., Any], modules: list[nn.Module]) -> None:
        super().__init__()
        self.held = nn.ModuleList(modules)
        self.__dict__["function"] = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.__dict__["function"](*args, **kwargs)


@_recomputed.samples
def _() -> Iterator[Sample]:
    for call in _samples():
        yield sample(call.args[0], None, call.args[1:], {})


def _samples() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 6, dtype=torch.float64).reshape(2, 3)
    yield sample(_gated, x, x.cos())
    yield sample(_sum_of_squares, [x, (x.sin(),)])


def _gated(x: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(x * y) * x.exp()


def _sum_of_squares(pair: Any) -> Tensor:
    return (pair[0] ** 2 + pair[1][0] ** 2).sum(-1)


checkpointed.__pullback__ = {  # type: ignore[attr-defined]
    "exact": True,
    "linear": True,
    "orders": 2,
    "surrogate": None,
    "reference": checkpointed_reference,
    "samples": _samples,
    "static": ("function",),
    "reason": "",
}
