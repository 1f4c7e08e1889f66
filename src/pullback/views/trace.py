"""`trace`: every step of `apply` and of backward, with what flowed through."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..capture.calls import (
    Function,
    Target,
    backward_of,
    forward_names,
    methods_of,
    parameter_names,
    positional_names,
    replaced,
    resolve_target,
)
from ..capture.graph import leaf_of
from ..capture.held import held_by
from ..capture.saved import storage_bytes
from ..report.clean import clean
from ..report.finding import Location
from ..trees import leaves
from . import measures
from .graph import name_of
from .text import table

VALUE_LIMIT = 40
NEXT_LIMIT = 4


@dataclass(frozen=True, slots=True)
class Stats:
    """A tensor at the moment it flowed past.

    Args:
        value: Dtype and shape.
        strides: Its strides, where it is not contiguous; else empty.
        requires_grad: Whether it requires grad.
        norm: Its 2-norm over finite elements.
        elements: How many elements it has.
        zeros: How many of them are zero.
        nan: How many are NaN.
        inf: How many are infinite.
    """

    value: str
    strides: str
    requires_grad: bool
    norm: float
    elements: int
    zeros: int
    nan: int
    inf: int

    def __str__(self) -> str:
        parts = [self.value]
        if self.strides:
            parts.append(f"strides {self.strides}")
        if self.elements:
            parts.append(f"norm {self.norm:.3g}")
        parts += [f"{count:,} of {self.elements:,} {word}" for count, word in ((self.zeros, "zero"), (self.nan, "NaN"), (self.inf, "Inf")) if count]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Args:
        number: Its place in the order, from 1.
        phase: ``"apply"`` or ``"backward"``.
        function: The Function concerned.
        call: Which call of a Function it belongs to, from 1.
        what: ``"argument"``, ``"context"``, ``"forward"``, ``"result"``, ``"saves"``, ``"attaches"``; ``"receives"``, ``"backward"``,
            ``"returns"``, ``"never runs"``; ``"raises"``.
        name: The argument, result or saved tensor concerned; may be empty.
        text: What there is to say.
        stats: Of the tensor concerned.
        seconds: How long it took, for ``"forward"`` and ``"backward"``.
        at: Seconds since the trace began.
        location: Where the method that runs is written.
        mark: What is remarkable: ``"zero"``, ``"NaN"``, ``"Inf"``, ``"None"`` or ``"cut"``; empty else.
    """

    number: int
    phase: str
    function: str
    call: int
    what: str
    name: str = ""
    text: str = ""
    stats: Stats | None = None
    seconds: float | None = None
    at: float = 0.0
    location: Location | None = None
    mark: str = ""


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
        """Return the steps as a table, call by call; marked ones begin with ``!``."""
        return "\n".join(_lines(self))

    def to_json(self) -> str:
        """Return the steps as JSON."""
        return json.dumps(trace_section(self))

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends with .json or .txt.

        Raises:
            ValueError: for another ending.
        """
        forms = {".json": self.to_json, ".txt": self.to_text}
        form = forms.get(Path(path).suffix)
        if form is None:
            raise ValueError(f"Trace.save writes {', '.join(forms)}; the name {str(path)!r} ends with none of them")
        Path(path).write_text(form() + "\n", encoding="utf-8")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.to_text()}


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
    recorder = _Recorder()
    args = with_gradients(args)
    names = _argument_names(target, len(args))
    gradients: tuple[tuple[str, Stats | None], ...] = ()
    error = ""
    with contextlib.ExitStack() as stack:
        for function in _loaded_functions():
            recorder.watch(function, stack)
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
        "gradients": [{"name": name, "stats": asdict(stats) if stats else None} for name, stats in traced.gradients],
    }


def stats_of(tensor: Tensor) -> Stats:
    """Return what there is to say about a tensor."""
    value = measures.value(tensor.dtype, tensor.shape)
    plain = tensor.layout == torch.strided and tensor.device.type != "meta"
    if not plain:
        return Stats(value, "", tensor.requires_grad, 0.0, 0, 0, 0, 0)
    strides = "" if tensor.is_contiguous() else str(tuple(tensor.stride()))
    with torch.no_grad():
        data = tensor.detach()
        nan, inf = int(data.isnan().sum()), int(data.isinf().sum())
        finite = torch.nan_to_num(torch.view_as_real(data.resolve_conj()) if data.is_complex() else data.to(torch.float64), 0.0, 0.0, 0.0)
        zeros = data.numel() - int(data.count_nonzero())
    return Stats(value, strides, tensor.requires_grad, float(finite.norm()), data.numel(), zeros, nan, inf)


class _Recorder:
    """Keeps the steps of Functions whose methods it has wrapped."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._begun = time.perf_counter()
        self._calls = itertools.count(1)
        self._waiting: list[tuple[type[Function], int, Any, tuple[Any, ...]]] = []
        self._of_node: dict[int, tuple[int, type[Function], Any]] = {}
        self._current: tuple[str, type[Function], int] | None = None

    def watch(self, function: type[Function], stack: contextlib.ExitStack) -> None:
        """Wrap the methods of a Function until `stack` closes."""
        methods = methods_of(function)
        if "forward" in methods:
            stack.enter_context(replaced(function, "forward", self._forward(function, function.forward)))
        if "setup_context" in methods:
            stack.enter_context(replaced(function, "setup_context", self._setup(function, function.setup_context)))
        backward = backward_of(function)
        name = "vjp" if backward is function.vjp else "backward"
        if name in methods:
            stack.enter_context(replaced(function, name, self._backward(function, backward)))

    def step(self, phase: str, function: type[Function], call: int, what: str, **fields: Any) -> None:
        """Add a step."""
        name = clean(function.__name__, limit=80)
        self.steps.append(Step(len(self.steps) + 1, phase, name, call, what, at=time.perf_counter() - self._begun, **fields))

    def fail(self, error: str) -> None:
        """Add the step at which an exception came."""
        if self._current is not None:
            phase, function, call = self._current
            self.step(phase, function, call, "raises", text=error)

    def _forward(self, function: type[Function], method: Callable[..., Any]) -> Callable[..., Any]:
        takes_ctx = function.setup_context is Function.setup_context

        @functools.wraps(method)
        def observe(*args: Any, **kwargs: Any) -> Any:
            call = next(self._calls)
            ctx, given = (args[0], args[1:]) if takes_ctx and args else (None, args)
            self._current = ("apply", function, call)
            self._arguments(function, call, given, kwargs)
            if ctx is not None:
                self._context(function, call, ctx)
            start = time.perf_counter()
            result = method(*args, **kwargs)
            seconds = time.perf_counter() - start
            names = _result_names(result)
            self.step("apply", function, call, "forward", seconds=seconds, location=_places(function)[0], text=", ".join(names))
            for name, value in names.items():
                self.step("apply", function, call, "result", name=name, **_described(value))
            self._waiting.append((function, call, ctx, given))
            self._current = None
            return result

        return observe

    def _setup(self, function: type[Function], method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def observe(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            for i, (waiting, call, known, given) in reversed(list(enumerate(self._waiting))):
                if waiting is function and known is None:
                    self._waiting[i] = (function, call, ctx, given)
                    self._context(function, call, ctx)
                    break
            return method(ctx, *args, **kwargs)

        return observe

    def _arguments(self, function: type[Function], call: int, given: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = positional_names(forward_names(function), len(given))
        for name, value in (*zip(names, given, strict=True), *kwargs.items()):
            self.step("apply", function, call, "argument", name=clean(name), **_described(value))

    def _context(self, function: type[Function], call: int, ctx: Any) -> None:
        needs = getattr(ctx, "needs_input_grad", ())
        self.step("apply", function, call, "context", text=f"needs_input_grad {tuple(needs)}")

    def finish_forward(self) -> None:
        """Tell, for every call, what was saved and how its node was attached."""
        for function, call, ctx, given in self._waiting:
            if ctx is None or not hasattr(ctx, "next_functions"):
                self.step("apply", function, call, "attaches", text="no node: the forward was called directly, or under a transform", mark="cut")
                continue
            self._saves(function, call, ctx)
            self._attaches(function, call, ctx, given)
            self._of_node[id(ctx)] = (call, function, ctx)
        self._waiting.clear()

    def _saves(self, function: type[Function], call: int, ctx: Any) -> None:
        for held in held_by(ctx):
            size = measures.size(storage_bytes(held.tensor))
            how = {"saved": "save_for_backward", "packed": "save_for_backward, packed by a hook", "ctx": "on ctx"}[held.how]
            self.step(
                "apply", function, call, "saves", name=clean(held.name), text=f"{measures.value(held.tensor.dtype, held.tensor.shape)}, {size}, {how}"
            )
        for name, value in vars(ctx).items():
            if not any(isinstance(leaf, Tensor) for _, leaf in leaves(value)) and isinstance(
                value, (bool, int, float, str, type(None), tuple, torch.dtype)
            ):
                self.step("apply", function, call, "saves", name=f"ctx.{clean(name)}", text=clean(repr(value), limit=VALUE_LIMIT))

    def _attaches(self, function: type[Function], call: int, ctx: Any, given: tuple[Any, ...]) -> None:
        names = positional_names(forward_names(function), len(given))
        sources = list(ctx.next_functions)
        if not any(source is not None for source, _ in sources):
            wanting = any(isinstance(value, Tensor) and value.requires_grad for value in given)
            text = "no gradient: no argument requires grad" if not wanting else "no gradient is recorded here"
            self.step("apply", function, call, "attaches", text=text, mark="cut" if wanting else "")
            return
        shown = []
        for name, (source, slot) in itertools.zip_longest(names[: len(sources)], sources, fillvalue=None):  # type: ignore[misc]
            if source is not None:
                kind = "leaf" if leaf_of(source) is not None else name_of(source) + (f", result {slot}" if slot else "")
                shown.append(f"{name} ← {kind}")
        more = f" and {len(shown) - NEXT_LIMIT} more" if len(shown) > NEXT_LIMIT else ""
        self.step("apply", function, call, "attaches", text="; ".join(shown[:NEXT_LIMIT]) + more)

    def _backward(self, function: type[Function], method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def observe(ctx: Any, *grads: Any) -> Any:
            call = self._of_node[id(ctx)][0] if id(ctx) in self._of_node else 0
            self._current = ("backward", function, call)
            received = [_described(grad) for grad in grads]
            for i, described in enumerate(received):
                name = "grad_output" if len(grads) == 1 else f"grad_output[{i}]"
                self.step("backward", function, call, "receives", name=name, **described)
            start = time.perf_counter()
            returned = method(ctx, *grads)
            self.step("backward", function, call, "backward", seconds=time.perf_counter() - start, location=_places(function)[1])
            self._returns(function, call, ctx, returned, [d["stats"] for d in received if d["stats"]])
            self._current = None
            return returned

        return observe

    def _returns(self, function: type[Function], call: int, ctx: Any, returned: Any, received: list[Stats]) -> None:
        values = returned if isinstance(returned, tuple) else (returned,)
        needs = tuple(getattr(ctx, "needs_input_grad", ()))
        for i, (name, value) in enumerate(zip(positional_names(forward_names(function), len(values)), values, strict=True)):
            needed = i < len(needs) and needs[i]
            if value is None and not needed:
                continue
            described = _described(value)
            self.step(
                "backward", function, call, "returns", name=f"grad_{clean(name)}", mark=_mark(described["stats"], received, needed), **described
            )

    def run_backward(self, result: Any, wanted: list[tuple[str, Tensor]]) -> tuple[tuple[str, Stats | None], ...]:
        """Run the backward of the sum of all outputs; return the gradients of what is differentiated."""
        outputs = [leaf for _, leaf in leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
        gradients: tuple[Tensor | None, ...] = (None,) * len(wanted)
        if outputs and wanted:
            ones = [torch.ones_like(output) for output in outputs]
            gradients = torch.autograd.grad(outputs, [tensor for _, tensor in wanted], ones, allow_unused=True)
        self._never_ran()
        return tuple((clean(name), None if g is None else stats_of(g)) for (name, _), g in zip(wanted, gradients, strict=True))

    def _never_ran(self) -> None:
        ran = {step.call for step in self.steps if step.phase == "backward"}
        for call, function, ctx in self._of_node.values():
            if call not in ran and any(source is not None for source, _ in ctx.next_functions):
                self.step("backward", function, call, "never runs", text="no gradient comes back from the output to its results", mark="cut")


def _mark(stats: Stats | None, received: list[Stats], needed: bool) -> str:
    """Return what became of the gradient here, that it was not before."""
    if stats is None:
        return "None" if needed else ""
    if stats.nan and not any(r.nan for r in received):
        return "NaN"
    if stats.inf and not any(r.inf for r in received):
        return "Inf"
    if stats.elements and stats.zeros == stats.elements and any(r.zeros < r.elements for r in received):
        return "zero"
    return ""


def _described(value: Any) -> dict[str, Any]:
    if isinstance(value, Tensor):
        stats = stats_of(value)
        return {"stats": stats, "text": "requires grad" if stats.requires_grad else ""}
    return {
        "stats": None,
        "text": clean(
            repr(value) if isinstance(value, (bool, int, float, str, type(None), tuple, list)) else type(value).__name__, limit=VALUE_LIMIT
        ),
    }


def _result_names(result: Any) -> dict[str, Any]:
    if isinstance(result, tuple):
        return {f"output[{i}]": value for i, value in enumerate(result)}
    return {"output": result}


@functools.lru_cache(maxsize=1024)
def _places(function: type[Function]) -> tuple[Location | None, Location | None]:
    target = resolve_target(function)
    return target.forward_location, target.backward_location


def _loaded_functions() -> Iterator[type[Function]]:
    """Yield every custom Function of the process that is not torch's own."""
    seen: set[type] = set()
    waiting = list(Function.__subclasses__())
    while waiting:
        function = waiting.pop()
        if function not in seen:
            seen.add(function)
            waiting += function.__subclasses__()
            if function.__module__.partition(".")[0] != "torch":
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


def _lines(traced: Trace) -> Iterator[str]:
    applied = sorted((step for step in traced.steps if step.phase == "apply"), key=lambda step: step.call)
    backward = [step for step in traced.steps if step.phase == "backward"]
    for (phase, call), steps in itertools.groupby([*applied, *backward], key=lambda step: (step.phase, step.call)):
        own = list(steps)
        place = next((step.location for step in own if step.location), None)
        yield f"{own[0].function}.{phase}" + (f", call {call}" if call > 1 else "") + (f"   {measures.place(place)}" if place else "")
        yield from table([_row(step) for step in own], right=(1,))
        yield ""
    if traced.gradients:
        yield "gradients of the sum of the outputs"
        yield from table(
            [(" ", f"grad_{name}", str(stats) if stats else "None: no way leads from the output to it") for name, stats in traced.gradients]
        )
    if traced.error:
        yield f"raised {traced.error}"


def _row(step: Step) -> tuple[str, ...]:
    about = [str(step.stats)] if step.stats else []
    if step.text and step.what != "forward":
        about.append(step.text)
    if step.seconds is not None:
        about.append(measures.duration(step.seconds))
    mark = {"": " ", "cut": "!"}.get(step.mark, "!")
    note = {"zero": "becomes zero here", "NaN": "becomes NaN here", "Inf": "becomes Inf here", "None": "None, although it is needed", "cut": ""}.get(
        step.mark, ""
    )
    return (mark, str(step.number), step.what, step.name, ", ".join([*about, *([note] if note else [])]))
