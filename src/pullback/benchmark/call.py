"""One contender with its arguments: its forward and backward as they are timed and weighed, and errors that name their place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..battery.child import user_place
from ..battery.tensors import random_like
from ..capture.graph import leaf_of, walk
from ..report.clean import clean
from ..report.finding import Location
from ..trees import leaves, map_leaves
from .measure import Probe, Times

SIGNED = (0.5, 1.0, 2.0)


class BenchError(Exception):
    """Raised where something cannot be benched, most often because the benched code raised; the message names it and the place.

    Args:
        message: What went wrong.
        location: Where the benched code raised, if known.
    """

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message + (f"\n  at {location}" if location else ""))
        self.location = location


@dataclass(frozen=True, slots=True)
class Inputs:
    """Arguments of a call.

    Args:
        args: Positional arguments; those that require grad are differentiated.
        kwargs: Keyword arguments.
        said: How a reader knows them: ``x: float32[1000]``.
        elements: Elements of the largest differentiated argument.
        size: Elements asked for; 0 where they are as they came.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    said: str
    elements: int
    size: int = 0

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments."""
        return tensors_in((self.args, self.kwargs))


@dataclass(slots=True)
class Call:
    """A contender with its arguments.

    Args:
        name: The contender.
        fn: What is called.
        inputs: With what.
        copies: Whether every call gets copies of its tensors, since it writes to them; making them is not timed.
        roots: What gradients are taken for: arguments, and parameters that the graph ends in.
        cotangents: One for each output with a gradient.
    """

    name: str
    fn: Callable[..., Any]
    inputs: Inputs
    copies: bool = False
    roots: list[Tensor] = field(default_factory=list)
    cotangents: list[Tensor] = field(default_factory=list)

    @classmethod
    def prepared(cls, name: str, fn: Callable[..., Any], inputs: Inputs) -> Call:
        """Return a call that has run once.

        Raises:
            BenchError: if it raises.
        """
        call = cls(name, fn, inputs)
        versions = [t._version for t in inputs.tensors]
        result = None
        try:
            result = call.forward()
            call.copies = [t._version for t in inputs.tensors] != versions
        except BenchError as error:
            if "in-place" not in str(error.__cause__):
                raise
            call.copies = True
        if call.copies:
            result = call.forward()
        live = outputs_of(result)
        generator = torch.Generator().manual_seed(0)
        call.cotangents = [random_like(y, generator, SIGNED) for y in live]
        arguments = {id(t): t for t in inputs.tensors if t.requires_grad}
        hidden = {id(leaf): leaf for node in walk(live).nodes if (leaf := leaf_of(node)) is not None}
        call.roots = list((arguments | hidden).values()) if live else []
        call.backward(live)
        return call

    @property
    def differentiable(self) -> bool:
        """Whether there is a backward to run."""
        return bool(self.roots)

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of the next call."""
        if not self.copies:
            return self.inputs.args, self.inputs.kwargs
        return map_leaves(lambda _, leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, (self.inputs.args, dict(self.inputs.kwargs)))

    def forward(self) -> Any:
        """Return the result of a call.

        Raises:
            BenchError: if it raises.
        """
        args, kwargs = self.arguments()
        try:
            return self.fn(*args, **kwargs)
        except Exception as error:
            raise self.failed("forward", error) from error

    def backward(self, live: list[Tensor]) -> tuple[Tensor | None, ...]:
        """Return the gradients.

        Raises:
            BenchError: if backward raises.
        """
        if not live:
            return ()
        try:
            return torch.autograd.grad(live, self.roots, self.cotangents, allow_unused=True)
        except Exception as error:
            raise self.failed("backward", error) from error

    def once(self) -> None:
        """Run forward and backward."""
        self.backward(outputs_of(self.forward()))

    def failed(self, stage: str, error: BaseException) -> BenchError:
        """Return the error that names the contender, its arguments and the line."""
        place = user_place(error)
        text = clean(error, limit=600, keep_newlines=True).strip()
        message = f"{stage} of {self.name} raised {type(error).__name__}: {text}\n  with {self.inputs.said}"
        if isinstance(error, TypeError) and error.__traceback__ is not None and error.__traceback__.tb_next is None:  # at the call itself
            message += f"\n  All that is benched is called with these arguments. Where {self.name} takes others, write a function that takes these "
            message += f"and calls {self.name}, and bench that one."
        return BenchError(message, Location(str(place[0]), int(place[1])) if place else None)


def host_probe(call: Call, clock: Callable[[], float] = time.perf_counter) -> Probe:
    """Return a probe that reads the host's clock: time on a CPU, and the cost of a call on any device.

    Backward includes the release of what the call returned.
    """
    grad, roots, cotangents = torch.autograd.grad, call.roots, call.cotangents

    def run(count: int) -> Times:
        forward = backward = 0.0
        for _ in range(count):
            args, kwargs = call.arguments()
            start = clock()
            result = call.fn(*args, **kwargs)
            middle = clock()
            live = outputs_of(result) if roots else ()
            again = clock()
            if live:
                found = grad(live, roots, cotangents, allow_unused=True)
                del result, live, found
                backward += clock() - again
            forward += middle - start
        return forward / count, backward / count

    return run


def tensors_in(value: Any) -> list[Tensor]:
    """Return every tensor in a value, each once."""
    if isinstance(value, Tensor):
        return [value]
    return list({id(leaf): leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)}.values())


def outputs_of(result: Any) -> list[Tensor]:
    """Return the tensors of a result that have a gradient."""
    if type(result) is Tensor:
        return [result] if result.requires_grad else []
    return [t for t in tensors_in(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
