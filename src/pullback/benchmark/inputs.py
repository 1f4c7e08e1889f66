"""Arguments for a benchmark: a sample's own, or the sample grown until its largest differentiated tensor has as many elements as asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..battery.evaluate import Evaluator, Leaf
from ..battery.samples import describe
from ..battery.sizes import Symbol, refill, retargeted, symbols
from ..battery.tensors import differentiable
from ..capture.calls import Target
from ..capture.case import Case
from .call import BenchError, Inputs

BLOCK = 2**20
"""Contents repeat after this many elements, which no branch predictor remembers."""
TRIED = 4
"""How much larger than the sample an argument is with which a way of growing is tried."""

ADVICE = "pass inputs as a function of the size: pb.bench(op, lambda n: (torch.randn(n),))"

Takes = Callable[[Inputs], str]
"""Says why a call does not take such arguments; empty where it does."""


@dataclass(slots=True)
class Grower:
    """A sample, and how its arguments grow together.

    Args:
        target: What is called.
        evaluator: The sample's call.
        takes: Tries arguments.
    """

    target: Target
    evaluator: Evaluator
    takes: Takes
    _way: tuple[Symbol, ...] | None = field(default=None, init=False)

    @property
    def main(self) -> Leaf:
        """The largest differentiated argument.

        Raises:
            BenchError: if none is differentiated.
        """
        found = [leaf for leaf in self.evaluator.wanted if leaf.template.dim() and leaf.template.numel()]
        if not found:
            raise BenchError(f"{self.target.name} has no floating tensor argument with an axis that could grow\n  {ADVICE}")
        return max(found, key=lambda leaf: leaf.template.numel())

    def sample(self) -> Inputs:
        """Return the sample as it is."""
        wanted = [leaf.template.numel() for leaf in self.evaluator.wanted]
        return _inputs(self.target, self.evaluator, max(wanted, default=0), 0)

    def grown(self, size: int) -> Inputs:
        """Return the sample with about `size` elements in its largest differentiated argument.

        Raises:
            BenchError: if the call takes the sample in no other size.
        """
        if self._way is None:
            self._way = self._find_way()
        return self._grow(self._way, size)

    def _find_way(self) -> tuple[Symbol, ...]:
        first = ""
        for way in self._ways():
            problem = self.takes(self._grow(way, TRIED * self.main.template.numel()))
            if not problem:
                return way
            first = first or problem
        said = describe(_case(self.target, self.evaluator))
        raise BenchError(f"{self.target.name} takes its sample ({said}) in no other size: {first or 'it has no axis to grow'}\n  {ADVICE}")

    def _ways(self) -> Iterator[tuple[Symbol, ...]]:
        """Yield all axes together, then the batch axis alone, then every other; with the numbers that equal a size, then without."""
        path = self.main.path
        found = [symbol for symbol in symbols(self.evaluator) if symbol.size > 1 or symbol.batch]
        ways = [tuple(found), *((symbol,) for symbol in found)]
        ways += [(part,) for symbol in found for part in symbol.split()]
        for way in ways:
            if any(place == path for symbol in way for place, _ in symbol.axes):
                yield from dict.fromkeys((way, tuple(symbol.without_numbers() for symbol in way)))

    def _grow(self, way: Sequence[Symbol], size: int) -> Inputs:
        template = self.main.template
        growing = [dim for symbol in way for path, dim in symbol.axes if path == self.main.path]
        factor = (size / template.numel()) ** (1 / len(growing))
        new = {symbol: _rounded(symbol.size * factor) if len(growing) > 1 else max(1, round(symbol.size * factor)) for symbol in way}
        evaluator = self.evaluator.variant(dict(self._values(new)))
        main = next(leaf for leaf in evaluator.leaves if leaf.path == self.main.path)
        return _inputs(self.target, evaluator, main.template.numel(), size)

    def _values(self, new: dict[Symbol, int]) -> Iterator[tuple[str, Any]]:
        generator = torch.Generator().manual_seed(0)
        for symbol, size in new.items():
            yield from ((path, size) for path in symbol.numbers)
        for leaf in self.evaluator.leaves:
            sizes = {dim: (symbol, size) for symbol, size in new.items() for path, dim in symbol.axes if path == leaf.path}
            if not sizes:
                if not differentiable(leaf.template):
                    for symbol, size in new.items():
                        yield leaf.path, retargeted(leaf.template, symbol.size, size)
                continue
            shape = [sizes[dim][1] if dim in sizes else n for dim, n in enumerate(leaf.template.shape)]
            if differentiable(leaf.template):
                yield leaf.path, contents(leaf.template, shape, generator)
            else:
                symbol, size = next(iter(sizes.values()))
                yield leaf.path, refill(leaf.template, shape, symbol.size, size, generator)


def contents(template: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return values like those of `template` in random order: sorted ones would make branches and masks look fast."""
    count = torch.Size(shape).numel()
    # As a row of a matrix: a vector in ascending order would stay in order.
    block = refill(template.reshape(1, -1), [1, min(count, BLOCK)], template.numel(), min(count, BLOCK), generator).reshape(-1)
    values = block.repeat(-(-count // max(1, block.numel())))[:count].reshape(tuple(shape))
    return torch.nn.Parameter(values, requires_grad=False) if isinstance(template, torch.nn.Parameter) else values


def as_they_are(grower: Grower, size: int) -> Inputs:
    """Return the sample itself, as inputs for a size that whoever made it was asked for."""
    return replace(grower.sample(), size=size)


def _inputs(target: Target, evaluator: Evaluator, elements: int, size: int) -> Inputs:
    arguments = evaluator.arguments()
    return Inputs(arguments.args, arguments.kwargs, describe(_case(target, evaluator)), elements, size)


def _case(target: Target, evaluator: Evaluator) -> Case:
    named = evaluator.named
    count = len(evaluator.args)
    return Case(target.call, tuple(value for _, value in named[:count]), dict(named[count:]))


def _rounded(size: float) -> int:
    return max(1, round(size / 8) * 8 if size >= 64 else round(size))
