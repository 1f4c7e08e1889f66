"""`bench`: an op against what it competes with, over sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..battery.process_state import preserved_state
from ..capture.calls import Target, resolve_target
from ..capture.case import Case
from ..declare import Declaration, declaration_of
from . import ceilings, memory
from .agree import disagreement
from .call import Call, Inputs, host_probe
from .environment import environment
from .measure import Probe, Times, interleave, plan, summarise
from .result import Bench, Point
from .sources import Wanted

COPY, PRODUCT = "(copy)", "(product)"

Progress = Callable[[str, int, int], None]
"""Told what is measured, how many points are done, and of how many."""


def bench(
    target: Any,
    inputs: Any = None,
    /,
    *,
    kwargs: Mapping[str, Any] | None = None,
    against: Mapping[str, Any] | None = None,
    sizes: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: str | None = None,
    threads: int | None = None,
    seconds: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Bench:
    """Return how fast an op is and what memory it takes, beside others that compute the same, all measured in turn.

    Forward and backward are timed apart, round by round: A B C, C B A. Ratios are taken within a round and summed up by their quartiles, so that what
    slows the machine for a while cancels. A plain copy of the bytes that must move, and a matrix product where there are any, take their turns too
    and show what this machine can do. Gradients are taken by `torch.autograd.grad`, for cotangents of both signs.

    Args:
        target: A Function subclass, its `apply`, a `pb.op`, a torch.library op, a module, any callable, or a `pb.case` with its inputs.
        inputs: A tuple of arguments, one tensor, or a function of the size that returns them. None: the samples that the op declares, or else
            a search. Of given tensors those that require grad are differentiated, or else all floating ones.
        kwargs: Keyword arguments of the call.
        against: Name to callable of the same arguments. None: the op's declared reference.
        sizes: Elements of the largest differentiated argument: the inputs are grown until it has about as many. None: 10⁴ to 10⁷ for samples and
            for a function of the size, and given tensors as they are.
        dtype: Cast floating inputs to it. None: samples in double precision become single, given tensors stay.
        device: Move the inputs there.
        threads: Threads of torch's operators meanwhile. None: as they are set.
        seconds: Time for one size, all contenders together, beside warming up. At least five rounds are measured.
        seed: Chooses sample inputs.
        progress: Called before every point with what is measured, how many are done, and the total.

    Returns:
        A `Bench`; print it, or `save` it as .json, .svg or .txt.

    Raises:
        BenchError: if the op or a contender raises (it says where), or no inputs are found or can be grown.
        TypeError: for a target or contender that cannot be called.
        ValueError: for sizes below 1, or two contenders of one name.

    Example:
        >>> import torch, pullback as pb
        >>> def swish(x):
        ...     return x * torch.sigmoid(x)
        >>> found = pb.bench(swish, torch.randn(100), against={"silu": torch.nn.functional.silu}, seconds=0.01)
        >>> found.names
        ('swish', 'silu')
        >>> [run.kept for run in found.sizes[0].runs]  # bytes; silu keeps x alone, which lives anyway
        [400, 0]
    """
    if isinstance(target, Case):
        target, inputs, declaration = target.target, target, target.declaration
    else:
        declaration = _declaration(target)
    resolved = resolve_target(target)
    contenders = _contenders(resolved, declaration, against)
    wanted = Wanted(resolved, declaration, _sizes(sizes), dtype, device, seed)
    with preserved_state(), _threads(threads):
        source = wanted.source(inputs, kwargs)
        course = Course(contenders, seconds, progress or (lambda what, done, total: None))
        points = tuple(course.points(source.small, source.makers))
        notes = (*([source.note] if source.note else []), *dict.fromkeys(course.notes))
        about = environment(course.device) | {"seconds": seconds, "against": list(contenders)[1:]}
    return Bench(resolved.subject, tuple(contenders), points, notes, about)


@dataclass(slots=True)
class Course:
    """Runs the contenders, point by point.

    Args:
        contenders: Name to callable, the benched op first.
        seconds: Time for a point.
        progress: Told what goes on.
        notes: What a reader must know.
        device: Where the inputs were.
    """

    contenders: Mapping[str, Callable[..., Any]]
    seconds: float
    progress: Progress
    notes: list[str] = field(default_factory=list)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def points(self, small: Inputs | None, makers: Sequence[Callable[[], Inputs]]) -> Iterator[Point]:
        """Yield what was measured: the cost of a call first, then each size."""
        total = len(makers) + (small is not None)
        if small is not None:
            self.progress(f"cost of a call, {small.said}", 0, total)
            yield self._overhead(small)
        for done, make in enumerate(makers, total - len(makers)):
            self.progress("making inputs", done, total)
            inputs = make()
            self.progress(inputs.said, done, total)
            yield self._point(inputs)

    def _overhead(self, inputs: Inputs) -> Point:
        calls = self._calls(inputs)
        first, *others = calls.values()
        self.notes += [note for other in others if (note := disagreement(first, other))]
        times, rounds = self._times({name: host_probe(call) for name, call in calls.items()})
        runs = [
            summarise(name, times[name], None if call is first else times[first.name], backward=call.differentiable) for name, call in calls.items()
        ]
        return Point(0, inputs.elements, inputs.said, tuple(runs), overhead=True, rounds=rounds)

    def _point(self, inputs: Inputs) -> Point:
        calls = self._calls(inputs)
        weighed = {name: (*memory.kept_and_moved(call), memory.peak(call), memory.flops(call)) for name, call in calls.items()}
        moved = min(bytes_ for _, bytes_, _, _ in weighed.values())
        flops = min((count for _, _, _, count in weighed.values() if count), default=0)
        probes = {name: self._probe(call) for name, call in calls.items()}
        probes[COPY] = ceilings.copy_probe(moved, self.device)
        if flops:
            probes[PRODUCT] = ceilings.product_probe(_dtype(inputs), self.device)
        times, rounds = self._times(probes)
        limit = [max(copied, flops / ceilings.FLOPS * product) for copied, product in zip(_seconds(times[COPY]), _products(times), strict=True)]
        first = next(iter(calls))
        runs = []
        for name, call in calls.items():
            run = summarise(name, times[name], None if name == first else times[first], limit, backward=call.differentiable)
            kept, bytes_, peak, count = weighed[name]
            runs.append(replace(run, kept=kept, moved=bytes_, peak=peak, flops=count))
        copy_rate = moved / _median(_seconds(times[COPY]))
        product_rate = ceilings.FLOPS / _median(_seconds(times[PRODUCT])) if flops else 0.0
        return Point(inputs.size, inputs.elements, inputs.said, tuple(runs), False, rounds, copy_rate, product_rate)

    def _calls(self, inputs: Inputs) -> dict[str, Call]:
        self.device = memory.device_of(inputs.tensors)
        calls = {name: Call.prepared(name, fn, inputs) for name, fn in self.contenders.items()}
        for call in calls.values():
            if not call.differentiable:
                self.notes.append(f"{call.name} has no gradient here: only its forward is measured")
        return calls

    def _probe(self, call: Call) -> Probe:
        if self.device.type != "cuda":
            return host_probe(call)
        from .cuda import device_probe

        probe, note = device_probe(call)
        self.notes += [note] if note else []
        return probe

    def _times(self, probes: Mapping[str, Probe]) -> tuple[dict[str, list[Times]], int]:
        planned = plan(probes, self.seconds)
        return interleave(probes, planned), planned.rounds


def _declaration(target: Any) -> Declaration:
    owner = getattr(target, "__self__", target)
    return declaration_of(owner if isinstance(owner, type) else target)


def _contenders(resolved: Target, declaration: Declaration, against: Mapping[str, Any] | None) -> dict[str, Callable[..., Any]]:
    if against is None:
        against = {} if declaration.reference is None else {"reference": declaration.reference}
    found: dict[str, Callable[..., Any]] = {resolved.name: resolved.call}
    for name, fn in against.items():
        if name in (*found, COPY, PRODUCT):
            raise ValueError(f"bench: two contenders are named {name!r}; the benched op's own name is taken too")
        try:
            found[name] = resolve_target(fn).call
        except TypeError as error:
            raise TypeError(f"bench: against[{name!r}] must be a Function, an op or a callable, got {type(fn).__name__}") from error
    return found


def _sizes(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    if not sizes or any(size < 1 for size in sizes):
        raise ValueError(f"bench: sizes must be numbers of elements, each at least 1; got {list(sizes)}")
    return tuple(sorted(int(size) for size in sizes))


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds(times: Sequence[Times]) -> list[float]:
    return [forward for forward, _ in times]


def _products(times: Mapping[str, Sequence[Times]]) -> list[float]:
    return _seconds(times[PRODUCT]) if PRODUCT in times else [0.0] * len(times[COPY])


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _dtype(inputs: Inputs) -> torch.dtype:
    return next((t.dtype for t in inputs.tensors if t.is_floating_point()), torch.float32)
