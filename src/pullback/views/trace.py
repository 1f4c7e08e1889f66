"""`trace`: every step of `apply` and of backward, with what flowed through."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..capture.calls import (
    Function,
    Target,
    parameter_names,
    positional_names,
    resolve_target,
)
from ..capture.library import op_behind
from ..report.clean import clean
from ..trees import leaves
from . import measures
from .files import write_form
from .follow import Follower
from .steps import Stats, Step, kind_of, told
from .text import table

SHOWN_CALLS = 12
GRADIENTS = "gradients of the sum of the outputs"


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of one call and its backward. Print it.

    Args:
        subject: What was called.
        steps: In the order in which they happened.
        gradients: Of every leaf that got one: its name and the gradient; None where it got none.
        error: What the call or its backward raised; empty where nothing did.
    """

    subject: str
    steps: tuple[Step, ...]
    gradients: tuple[tuple[str, Stats | None], ...] = ()
    error: str = ""

    @property
    def marked(self) -> tuple[Step, ...]:
        """The steps at which a gradient becomes zero, NaN, Inf or None, or its way is cut."""
        return tuple(step for step in self.steps if step.mark)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<pullback.Trace of {self.subject}, {measures.count(len(self.steps), 'step')}>"

    def to_text(self) -> str:
        """Return the steps as a table, call by call; marked ones begin with ``!``. Of very many calls, some in the middle are left out."""
        return "\n".join(_lines(self))

    def to_svg(self) -> str:
        """Return the steps as a picture, times as bars."""
        from .tables import trace_svg

        return trace_svg(self)

    def to_json(self) -> str:
        """Return the steps as JSON."""
        return json.dumps(trace_section(self))

    def to_html(self) -> str:
        """Return a page that shows every step, as a timeline and as tables: one file that needs no network."""
        from .notebook import page_of

        return page_of(f"trace of {self.subject}", trace_section(self))

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends with .svg, .html, .json or .txt.

        Raises:
            ValueError: for another ending.
        """
        write_form("Trace", {".svg": self.to_svg, ".html": self.to_html, ".json": self.to_json, ".txt": self.to_text}, path)

    def _repr_mimebundle_(self, include: Container[str] | None = None, exclude: Container[str] | None = None) -> dict[str, str]:
        from .notebook import bundle

        return bundle(self.to_text(), self.to_svg(), f"trace of {self.subject}", trace_section(self), include, exclude)


def trace(fn: Any, /, *args: Any, **kwargs: Any) -> Trace:
    """Call `fn` and its backward, and return every step: what `apply` does, what is saved, how the node is attached, which gradients come and go.

    The backward is that of ``y.sum().backward()``, every output counted; the `grad` of no tensor changes. Every custom Function that `fn` applies is
    traced, whatever way it is called. An exception of the traced code becomes the last step.

    Args:
        fn: A Function subclass, its `apply`, an op, a module or any callable.
        *args: Arguments of the call. If no tensor among them requires grad, copies of all floating and complex ones do.
        **kwargs: Keyword arguments of the call.

    Returns:
        A `Trace`; print it, or ask its `steps` and `marked`.

    Raises:
        TypeError: if `fn` cannot be called.

    Example:
        >>> import torch, pullback as pb
        >>> class Clip(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x.clamp(max=1)
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         return dy * 0
        >>> [(step.what, step.name, step.mark) for step in pb.trace(Clip, torch.ones(3)).marked]
        [('returns', 'grad_x', 'zero')]
    """
    target = resolve_target(fn)
    recorder = Follower()
    args = with_gradients(args)
    names = _argument_names(target, len(args))
    gradients: tuple[tuple[str, Stats | None], ...] = ()
    error = ""
    with contextlib.ExitStack() as stack:
        for function in _loaded_functions():
            recorder.watch(function, stack)
        stack.callback(_compat.on_new_function(lambda function: recorder.watch(function, stack)))
        try:
            result = target.call(*args, **kwargs)
            recorder.finish_forward()
            gradients = recorder.run_backward(result, _leaves(target.call, names, args, kwargs))
        except Exception as raised:
            error = clean(f"{type(raised).__name__}: {raised}", limit=2000)
            recorder.fail(error)
    return Trace(clean(target.name), tuple(recorder.steps), gradients, error)


def trace_section(traced: Trace) -> dict[str, Any]:
    """Return a trace as JSON data."""
    return {
        "schema": 1,
        "kind": "trace",
        "subject": traced.subject,
        "error": traced.error,
        "steps": [asdict(step) for step in traced.steps],
        "gradients": [
            {"name": name, "stats": asdict(stats) if stats else None, "mark": _leaf_mark(stats), "remark": _leaf_remark(traced, name, stats)}
            for name, stats in traced.gradients
        ],
    }


def _loaded_functions() -> Iterator[type[Function]]:
    """Yield every custom Function of the process that is not torch's own, those of torch.library ops among them."""
    seen: set[type] = set()
    waiting = list(Function.__subclasses__())
    while waiting:
        function = waiting.pop()
        if function not in seen:
            seen.add(function)
            waiting += function.__subclasses__()
            if function.__module__.partition(".")[0] != "torch" or op_behind(function) is not None:
                yield function


def with_gradients(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments of which at least one requires grad: as they are, or with copies of all floating and complex tensors that do."""
    tensors = [leaf for arg in args for _, leaf in leaves(arg) if isinstance(leaf, Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        return args
    return tuple(
        arg.detach().clone().requires_grad_() if isinstance(arg, Tensor) and (arg.is_floating_point() or arg.is_complex()) else arg for arg in args
    )


def _argument_names(target: Target, count: int) -> list[str]:
    if isinstance(target.call, torch.nn.Module):
        return positional_names(parameter_names(target.call.forward), count)
    return target.positional(count)


def _leaves(call: Any, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """Return what is differentiated: arguments that require grad, and the parameters of a module."""
    named = [pair for name, value in (*zip(names, args, strict=True), *kwargs.items()) for pair in leaves(value, name)]
    if isinstance(call, torch.nn.Module):
        named += list(call.named_parameters())
    return list({id(value): (name, value) for name, value in named if isinstance(value, Tensor) and value.requires_grad}.values())


def blocks(traced: Trace) -> Iterator[tuple[str, list[tuple[Step, tuple[str, ...]]]]]:
    """Yield for every call of `apply`, then of backward: a title, and its steps with what is written of each.

    Of many calls the first and the last ones, and those with a mark; a title without steps stands for the others.
    """
    applied = sorted((step for step in traced.steps if step.phase == "apply"), key=lambda step: step.call)
    for phase in (applied, [step for step in traced.steps if step.phase == "backward"]):
        calls = [list(steps) for _, steps in itertools.groupby(phase, key=lambda step: step.call)]
        ends = range(SHOWN_CALLS, len(calls) - SHOWN_CALLS)
        for left_out, group in itertools.groupby(enumerate(calls), key=lambda pair: pair[0] in ends and not any(_marked(step) for step in pair[1])):
            if left_out:
                yield f"… {measures.count(len(list(group)), 'call')} without a mark left out", []
                continue
            for _, steps in group:
                yield _title(steps), [(step, _row(step)) for step in steps]


def _title(steps: list[Step]) -> str:
    first = steps[0]
    place = next((step.location for step in steps if step.location), None)
    return f"{first.function}.{first.phase}" + (f", call {first.call}" if first.call > 1 else "") + (f"   {measures.place(place)}" if place else "")


def _marked(step: Step) -> bool:
    return bool(step.mark) or step.what == "raises"


def no_function(traced: Trace) -> str:
    """Return what is said where there is no step."""
    return f"{traced.subject} applies no custom Function: pb.graph and pb.watch show torch's own operations"


def outside(traced: Trace) -> bool:
    """Whether something was raised that is no step of a Function's."""
    return bool(traced.error) and all(step.what != "raises" for step in traced.steps)


def gradient_cells(traced: Trace) -> list[tuple[str, str, str]]:
    """Return for every leaf what is remarkable about its gradient, the gradient's name, and what it is."""
    return [
        (_leaf_mark(stats), f"grad_{name}", ", ".join(filter(None, (str(stats or ""), _leaf_remark(traced, name, stats)))))
        for name, stats in traced.gradients
    ]


def _leaf_mark(stats: Stats | None) -> str:
    return "None" if stats is None else kind_of(stats)


def _leaf_remark(traced: Trace, name: str, stats: Stats | None) -> str:
    """Return why a leaf has no gradient, or that it became what it is after the last step."""
    mark = _leaf_mark(stats)
    none = [step for step in traced.steps if step.mark == "None"]
    if stats is None:
        own = next((step for step in none if step.name == f"grad_{name}"), None)
        if own is not None:
            return f"None: {own.function}.backward returns none, step {own.number}"
        return "None: no way leads from the output to it" + (", or a backward on the way returns none" if none else "")
    known = told(traced.steps)
    return f"becomes {mark} in torch's own operations" if mark and mark not in known and not (mark == "zero" and none) else ""


def _lines(traced: Trace) -> Iterator[str]:
    if not traced.steps:
        yield no_function(traced)
        yield ""
    for title, steps in blocks(traced):
        yield title
        yield from table([cells for _, cells in steps], right=(1,))
        yield ""
    if traced.gradients:
        yield GRADIENTS
        yield from table([("!" if mark else " ", *cells) for mark, *cells in gradient_cells(traced)])
    if outside(traced):
        yield f"raised {traced.error}"


def _row(step: Step) -> tuple[str, ...]:
    about = [str(step.stats)] if step.stats else []
    if step.text and step.what != "forward":
        about.append(step.text)
    if step.seconds is not None:
        about.append(measures.duration(step.seconds))
    return ("!" if _marked(step) else " ", str(step.number), step.what, step.name, ", ".join([*about, *_note(step)]))


def _note(step: Step) -> Iterator[str]:
    if step.mark == "None":
        yield "although it is needed"
    elif step.mark and step.mark != "cut":
        yield f"becomes {step.mark} " + ("in torch's own operations before it arrives" if step.what == "receives" else "here")
