"""Follows calls of Functions: wraps their methods and keeps a step for everything that happens."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..capture.authored import Written, attributes, is_generated, written
from ..capture.calls import Function, backward_of, forward_names, methods_of, positional_names
from ..capture.graph import leaf_of
from ..capture.held import held_by
from ..capture.library import without_metadata
from ..capture.observed_calls import replaced
from ..capture.saved import storage_bytes
from ..report.clean import clean
from ..report.finding import Location
from ..trees import leaves
from . import measures
from .graph import name_of
from .steps import VALUE_LIMIT, Stats, Step, arrival_mark, described, kind_of, mark_of, stats_of, told

NEXT_LIMIT = 4


class Follower:
    """Keeps the steps of Functions whose methods it has wrapped."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._told: set[str] = set()
        self._names: dict[type[Function], tuple[str, ...]] = {}
        self._begun = time.perf_counter()
        self._calls = itertools.count(1)
        self._waiting: list[tuple[type[Function], int, Any, tuple[Any, ...]]] = []
        self._of_node: dict[int, tuple[int, type[Function], Any]] = {}
        self._current: tuple[str, type[Function], int] | None = None
        self._last_backward: tuple[str, type[Function], int] | None = None
        self._running: list[tuple[type[Function], Any]] = []

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
        name = clean(_written(function).name, limit=80)
        self.steps.append(Step(len(self.steps) + 1, phase, name, call, what, at=time.perf_counter() - self._begun, **fields))
        self._told |= told(self.steps[-1:])

    def _forward_names(self, function: type[Function]) -> tuple[str, ...]:
        if function not in self._names:
            self._names[function] = forward_names(function)
        return self._names[function]

    def _inside(self, function: type[Function], ctx: Any) -> bool:
        """Whether a method is a part of one that already runs: of the class it inherits from, or of the same op."""
        return any(
            (ctx is not None and ctx is other) or (is_generated(function) and function.__module__ == outer.__module__)
            for outer, other in self._running
        )

    @contextlib.contextmanager
    def _as_running(self, function: type[Function], ctx: Any) -> Iterator[None]:
        self._running.append((function, ctx))
        try:
            yield
        finally:
            self._running.pop()

    def fail(self, error: str) -> None:
        """Add the step at which an exception came: one that runs, or one with whose gradients autograd cannot go on."""
        last = self._last_backward
        at = self._current or (last if last is not None and re.search(rf"\b{re.escape(last[1].__name__)}Backward\b", error) else None)
        if at is not None:
            phase, function, call = at
            self.step(phase, function, call, "raises", text=error)

    def _forward(self, function: type[Function], method: Callable[..., Any]) -> Callable[..., Any]:
        takes_ctx = function.setup_context is Function.setup_context

        @functools.wraps(method)
        def observe(*args: Any, **kwargs: Any) -> Any:
            ctx, given = (args[0], args[1:]) if takes_ctx and args else (None, args)
            if self._inside(function, ctx):
                return method(*args, **kwargs)
            given = without_metadata(given)
            call = next(self._calls)
            self._current = ("apply", function, call)
            self._arguments(function, call, given, kwargs)
            if ctx is not None:
                self._context(function, call, ctx)
            with self._as_running(function, ctx):
                start = time.perf_counter()
                result = method(*args, **kwargs)
                seconds = time.perf_counter() - start
            names = _result_names(result)
            self.step("apply", function, call, "forward", seconds=seconds, location=_places(function)[0], text=", ".join(names))
            for name, value in names.items():
                self.step("apply", function, call, "result", name=name, **described(value))
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
        names = positional_names(self._forward_names(function), len(given))
        for name, value in (*zip(names, given, strict=True), *kwargs.items()):
            self.step("apply", function, call, "argument", name=clean(name), **described(value))

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
        for name, value in attributes(function, ctx).items():
            if isinstance(value, (bool, int, float, str, type(None), tuple, torch.dtype)) and not any(
                isinstance(x, Tensor) for _, x in leaves(value)
            ):
                self.step("apply", function, call, "saves", name=clean(name), text=clean(repr(value), limit=VALUE_LIMIT))

    def _attaches(self, function: type[Function], call: int, ctx: Any, given: tuple[Any, ...]) -> None:
        named = zip(positional_names(self._forward_names(function), len(given)), given, strict=False)
        names = [name for name, value in named if isinstance(value, Tensor)]  # a node has edges for tensors only
        sources = list(ctx.next_functions)
        if not any(source is not None for source, _ in sources):
            wanting = any(isinstance(value, Tensor) and value.requires_grad for value in given)
            text = _why_none_is_recorded() if wanting else "no gradient: no argument requires grad"
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
            if self._inside(function, ctx):
                return method(ctx, *grads)
            call = self._of_node[id(ctx)][0] if id(ctx) in self._of_node else 0
            self._current = self._last_backward = ("backward", function, call)
            received = [described(grad) for grad in grads]
            arrived = arrival_mark([about["stats"] for about in received if about["stats"]], self._told)
            for i, about in enumerate(received):
                name = "grad_output" if len(grads) == 1 else f"grad_output[{i}]"
                mark = arrived if about["stats"] and kind_of(about["stats"]) == arrived else ""
                self.step("backward", function, call, "receives", name=name, mark=mark, **about)
            with self._as_running(function, ctx):
                start = time.perf_counter()
                returned = method(ctx, *grads)
                seconds = time.perf_counter() - start
            self.step("backward", function, call, "backward", seconds=seconds, location=_places(function)[1])
            self._returns(function, call, ctx, returned, [d["stats"] for d in received if d["stats"]])
            self._current = None
            return returned

        return observe

    def _returns(self, function: type[Function], call: int, ctx: Any, returned: Any, received: list[Stats]) -> None:
        values = returned if isinstance(returned, tuple) else (returned,)
        needs = tuple(getattr(ctx, "needs_input_grad", ()))
        for i, (name, value) in enumerate(zip(positional_names(self._forward_names(function), len(values)), values, strict=True)):
            needed = i < len(needs) and needs[i]
            if value is None and not needed:
                continue
            about = described(value)
            self.step("backward", function, call, "returns", name=f"grad_{clean(name)}", mark=mark_of(about["stats"], received, needed), **about)

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


def _result_names(result: Any) -> dict[str, Any]:
    if isinstance(result, tuple):
        return {f"output[{i}]": value for i, value in enumerate(result)}
    return {"output": result}


@functools.lru_cache(maxsize=1024)
def _written(function: type[Function]) -> Written:
    return written(function)


def _places(function: type[Function]) -> tuple[Location | None, Location | None]:
    found = _written(function)
    return found.forward, found.backward


def _why_none_is_recorded() -> str:
    if torch.is_inference_mode_enabled():
        return "no gradient is recorded in torch.inference_mode()"
    return "no gradient is recorded here" if torch.is_grad_enabled() else "no gradient is recorded under torch.no_grad()"
