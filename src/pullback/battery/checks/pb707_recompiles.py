"""PB707."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...report.finding import Evidence, Finding
from ..base import Check
from ..compiling import Compilable, attempt, compiled, fresh
from ..keeping import owner
from ..larger import repeated_rows
from ..probe import Probe

ALLOWED = 2
"""One graph for the first shape, one with dynamic shapes."""


class Recompiles(Check):
    """torch.compile compiles the op anew for every size or value.

    Why it matters:
        Each compilation takes seconds, and after eight the compiler gives up on the function.

    How it is measured:
        The compiled op is called with five numbers of rows, and with five values of the same shape; more than two compilations (one for the first
        shape, one for all others) are reported.

    Example:
        A branch on a size or on ``x.sum().item()``; a Python number computed from the shape that ends up in a guard.

    Instead:
        Leave sizes symbolic; compute with tensors what depends on values.
    """

    code = "PB707"
    name = "recompiles"
    severity = "note"
    compiler = True
    needs = ("backward", "repeats")
    stage = 4
    tier = "thorough"

    def run(self, probe: Probe) -> Iterator[Finding]:
        op = Compilable(probe)
        counter = _Counter()
        call = compiled(fresh(op.call), counter, fullgraph=False)
        for factor in (1.0, 1.5, 0.75, 1.25, 0.5):
            with counter.watched():
                attempt(lambda factor=factor: op.gradients(lambda *inputs: call(*(t * factor for t in inputs))))
        if counter.calls > ALLOWED:
            yield self._often(probe, counter.calls, "five values of one shape")
            return
        counter = _Counter()
        sizes = list(_sizes(probe))
        op_call = probe.target.call

        def whole(*args: Any) -> Any:
            return op_call(*args)

        call = compiled(fresh(whole), counter, fullgraph=False)
        for arguments in sizes:
            with counter.watched():
                attempt(lambda arguments=arguments: call(*arguments))
        if counter.calls > ALLOWED:
            yield self._often(probe, counter.calls, f"{len(sizes)} numbers of rows")

    def _often(self, probe: Probe, count: int, what: str) -> Finding:
        return self.finding(
            probe,
            f"torch.compile compiles {owner(probe)} {count} times for {what}",
            location=probe.forward_location,
            evidence=[Evidence(what, got=f"{count} compilations", expected=f"at most {ALLOWED}")],
            cause="the compiler guards on a value or a size that forward or backward turns into a Python number",
            fix="branch on tensors by torch.where, and use sizes only in shapes",
        )


class _Counter:
    """A backend that compiles nothing and counts the calls in which it is given graphs: one call may come in several, where the compiler broke it."""

    def __init__(self) -> None:
        self.calls = 0
        self._graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self._graphs += 1
        return graph.forward

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count what is compiled in the context as one."""
        before = self._graphs
        yield
        self.calls += self._graphs > before


def _sizes(probe: Probe) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments with their rows repeated once, three, five, seven and nine times, as far as forward takes them."""
    largest = max((leaf.template.numel() for leaf in probe.native.leaves), default=0)
    for times in (1, 3, 5, 7, 9):
        evaluator = repeated_rows(probe.native, largest * times) if largest else None
        if evaluator is not None and not probe.native.kwargs:
            yield evaluator.arguments(requires_grad=()).args
