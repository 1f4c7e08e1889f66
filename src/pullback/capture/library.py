"""Ops of torch.library: what their authors wrote, behind the Function class that torch generates for `register_autograd`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import _compat

MODULE = "torch._library.autograd"
PREFIX = "GeneratedBackwardFor_"


@dataclass(frozen=True, slots=True)
class LibraryOp:
    """An op of torch.library.

    Args:
        overload: What is called.
        name: Its name without the overload, ``"mylib::cube"``.
        forward: Its implementation in Python; None where it has none that is known.
        setup_context: What was registered to keep the residuals, or None.
        backward: What was registered to compute the gradients, or None.
        vmap: What was registered for batches, or None.
    """

    overload: Any
    name: str
    forward: Callable[..., Any] | None
    setup_context: Callable[..., Any] | None
    backward: Callable[..., Any] | None
    vmap: Callable[..., Any] | None = None

    @property
    def short(self) -> str:
        return self.name.rpartition("::")[2]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments."""
        return _compat.library_arguments(self.overload)

    @property
    def takes_lists(self) -> bool:
        """Whether lists of tensors are among its arguments or results; its generated class is then given their elements one by one."""
        return "Tensor[]" in str(self.overload._schema) or "Tensor?[]" in str(self.overload._schema)


def library_op(value: Any) -> LibraryOp | None:
    """Return the op that `torch.library.custom_op` or `triton_op` returned, or that is ``torch.ops.ns.op``; None for anything else."""
    overload = _compat.library_overload(value)
    if overload is None:
        return None
    name = _compat.library_op(overload).rpartition(".")[0]
    return LibraryOp(overload, name, _compat.library_function(name), *_compat.library_rules(name))


def op_behind(function: type[torch.autograd.Function]) -> LibraryOp | None:
    """Return the op that a Function class was generated for; None for a class that somebody wrote."""
    if function.__module__ != MODULE or not function.__name__.startswith(PREFIX):
        return None
    cells = list(_closed_over(function.forward))
    found = next((op for value in cells if (op := library_op(value)) is not None), None)
    if found is None or found.backward is not None:
        return found
    setup_context, backward = next(
        (
            (value._setup_context_fn, value._backward_fn) for value in cells if hasattr(value, "_backward_fn")
        ),  # what torch.library.register_autograd made
        (None, None),
    )
    return replace(found, setup_context=setup_context, backward=backward)


@functools.lru_cache(maxsize=1024)
def stand_in(op: LibraryOp) -> type[torch.autograd.Function]:
    """Return a Function that reads as the op's author wrote it, method by method, and whose `apply` calls the op.

    It tells what a Function's source tells: names, defaults, annotations, what steers the code. It is not what computes the op's gradients.
    """

    def forward(*args: Any) -> Any:
        return op.overload(*args)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(f"{op.name} has no backward")

    forward.__signature__ = _signature(op)  # type: ignore[attr-defined]
    methods = {"forward": op.forward or forward, "setup_context": op.setup_context or setup_context, "backward": op.backward or backward}
    namespace: dict[str, Any] = {name: staticmethod(method) for name, method in methods.items()}
    module = getattr(op.forward or op.backward, "__module__", None) or __name__
    known = vars(sys.modules[module]).items() if module in sys.modules else ()
    name = next((name for name, value in known if _compat.library_overload(value) is op.overload), op.short)
    namespace |= {"apply": staticmethod(op.overload), "__module__": module, "__qualname__": name}
    return type(op.short, (torch.autograd.Function,), namespace)


def _signature(op: LibraryOp) -> inspect.Signature:
    """Return the signature that the op's schema gives."""
    kinds = {True: inspect.Parameter.KEYWORD_ONLY, False: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return inspect.Signature(
        [
            inspect.Parameter(name, kinds[by_keyword], default=default if optional else inspect.Parameter.empty, annotation=kind)
            for name, by_keyword, optional, default, kind in _compat.library_parameters(op.overload)
        ]
    )


def as_written(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Return a Function whose methods are what somebody wrote: the class itself, or the stand-in of the op that torch generated it for."""
    op = op_behind(function)
    return function if op is None else stand_in(op)


def without_metadata(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a generated class without what torch.library puts behind them for itself."""
    count = next((i for i, value in enumerate(reversed(args)) if type(value).__module__ != MODULE), len(args))
    return args[: len(args) - count]


def _closed_over(call: Any) -> Iterator[Any]:
    """Yield what a function closes over, and what the functions among it do."""
    waiting, seen = [inspect.unwrap(call)], set()
    while waiting:
        function = waiting.pop()
        if not inspect.isfunction(function) or function in seen:
            continue
        seen.add(function)
        for cell in function.__closure__ or ():
            value = _contents(cell)
            yield value
            waiting.append(value)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
