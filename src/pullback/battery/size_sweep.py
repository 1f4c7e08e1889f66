"""Run a call at other sizes within a budget of time and memory, and judge the gradient at each."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from torch import Tensor

from .compare import largest_gap
from .evaluate import Evaluator, UserCodeError
from .growth import Growth
from .locate import trusted_eager
from .lone_axes import counts_as_input, keeps_outputs, lone_symbols, shapes_follow, shared_symbols, single_axes, tied_pairs
from .meant import points_outside, regroups
from .probe import Probe
from .rank_questions import rank_questions
from .refusals import refuses
from .rounding import rounded_away, rounding_for
from .size_costs import LARGE, many_rows, predicted
from .size_trials import Trial, Verdict
from .sizes import Resizer, Symbol, symbols, whole_numbers
from .special import numbers_among
from .tensors import copy_tensor, differentiable, random_like
from .truth import eager
from .untrained import untrained_row
from .value import SIGNED, InputVerdict, ValueTest

SMALL = (1, 3, 7, 10, 17, 33, 67, 129)
"""Single, odd, just above powers of two, none a multiple of 8, and an even one; between them they pass the usual block sizes of 16 to 128."""
OUTPUT_ELEMENTS = 2**20
DRAWS = 10
"""How often index arguments are drawn anew at the sample's sizes."""
LONE = (7, 3)
"""Further sizes of an axis that changes alone, besides twice its own."""
_BLOCKS = re.compile(r"block|chunk|tile|group|warp|size", re.IGNORECASE)
STEPS = 4
"""How many sizes may be tried half-way to one that looks too dear from where the last one was, after that last one."""
EVEN, ODD = (4, 6, 10), (3, 5, 9)


@dataclass(slots=True)
class Sweep:
    """Trials of one call at other sizes.

    Args:
        probe: The call.
        seconds: The budget; no trial begins that is likely to overrun it.
        values: Paths whose gradients are judged by value; empty: only crashes count.
    """

    probe: Probe
    seconds: float
    values: tuple[str, ...]
    stopped: str = ""
    tried: int = 0
    _start: float = field(default_factory=time.thread_time)
    _costs: dict[Symbol, list[tuple[int, float, int]]] = field(default_factory=dict)
    _growths: dict[Symbol, Growth] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.seconds - (time.thread_time() - self._start)

    def run(self) -> Iterator[Trial]:
        """Yield what is not right: small sizes of every axis first, then large ones.

        A number that equals a size by chance (two groups, a batch of two) stays from where the size alone is right and both together are not.
        """
        resizer = Resizer(self.probe.exact)
        found = {symbol: self._accepted(resizer, symbol) for symbol in symbols(self.probe.exact)}
        active = [s for group in found.values() for s in group]
        failed: set[Symbol] = set()
        for sizes in (SMALL, (LARGE,)):
            for symbol, size in ((symbol, _multiple(symbol, n)) for n in sizes for symbol in active):
                if symbol in failed or size == symbol.size:
                    continue
                trial = self._timed(resizer, symbol, size)
                if trial is not None and trial.verdict in ("wrong", "crash"):
                    if symbol.numbers and self._verdict(resizer, symbol.without_numbers(), size) == "right":
                        active[active.index(symbol)] = symbol.without_numbers()
                        continue
                    failed.add(symbol)
                    yield self._explained(resizer, self._smallest(resizer, trial) if symbol.step == 1 else trial)
            if sizes is SMALL:
                yield from self._lone(resizer, {symbol.size for symbol in failed})
                yield from self._tied(resizer) if not failed else ()
        for symbol in active:
            size = many_rows(self.probe.exact, symbol)
            if size is None or not symbol.batch or symbol in failed:
                continue
            if self._affordable(resizer, symbol, size):
                trial = self._timed(resizer, symbol, size)
                if trial is not None and trial.verdict in ("wrong", "crash"):
                    yield self._explained(resizer, trial)

    def _lone(self, resizer: Resizer, failed: set[int]) -> Iterator[Trial]:
        """Yield wrong gradients once one of two equal axes changes, or an axis of size 1 grows; every size is reported once.

        An error of backward is no news there, unless the code asks for the size: the sizes may have to be equal.
        """
        exact = self.probe.exact
        followed = (s for s in single_axes(exact) if shapes_follow(exact, resizer.resized(s, 2 * s.size), s.size, 2 * s.size))
        for symbol in chain(lone_symbols(exact), followed):
            if symbol.size in failed or not counts_as_input(resizer, symbol, 2 * symbol.size):
                continue
            for size in (2 * symbol.size, *LONE):
                trial = self._timed(resizer, symbol, size) if size != symbol.size else None
                if trial is not None and trial.verdict == "wrong":
                    failed.add(symbol.size)
                    yield trial
                if trial is not None and trial.verdict in ("wrong", "crash"):
                    break
        for symbol in shared_symbols(self.probe.exact, rank_questions(self.probe.target.described).single):
            if keeps_outputs(self.probe.exact, resizer.resized(symbol, 1)):
                trial = self._timed(resizer, symbol, 1)
                if trial is not None and (trial.verdict == "wrong" or (trial.verdict == "crash" and symbol.asked)):
                    yield trial
                    return

    def _tied(self, resizer: Resizer) -> Iterator[Trial]:
        """Yield the first wrong gradient or error once two axes change that belong together, and others that are as long do not."""
        for symbol in tied_pairs(resizer) if self.left > self.seconds / 2 else ():
            for size in (2 * symbol.size, *LONE):
                trial = self._timed(resizer, symbol, size) if size != symbol.size else None
                if trial is not None and trial.verdict in ("wrong", "crash"):
                    yield self._explained(resizer, trial)
                    return

    def _explained(self, resizer: Resizer, trial: Trial) -> Trial:
        symbol = trial.symbol
        if trial.verdict == "wrong":
            trial = replace(trial, below=self._below(resizer, symbol, trial.size))
        if trial.verdict == "crash" and not symbol.batch:
            others = () if self._follows_another(resizer, trial) else (*EVEN, *ODD)
            trial = replace(trial, right=sum(self._verdict(resizer, symbol, n) == "right" for n in others if n != trial.size))
        if trial.verdict == "wrong" and symbol.size % 2 == 0 and trial.size % 2:
            even, odd = ([self._verdict(resizer, symbol, size) for size in sizes] for sizes in (EVEN, ODD))
            return replace(trial, pairs=all(v in ("right", "refused") for v in even) and all(v in ("wrong", "refused") for v in odd))
        if trial.verdict == "crash":
            trial = replace(trial, unmeant=self._unmeant(resizer, trial))
        if trial.verdict == "crash" and symbol.batch:
            return replace(trial, by_chance=any(self._verdict(resizer, part, trial.size) == "right" for part in symbol.parts()))
        return trial

    def _unmeant(self, resizer: Resizer, trial: Trial) -> str:
        there = resizer.resized(trial.symbol, trial.size)
        if there is None or trial.error is None:
            return ""
        sample = self.probe.exact
        outside = points_outside(sample, there, trial.symbol, trial.size, trial.error, lambda call: self.judge(call)[0] == "right")
        return outside or regroups(sample, there, trial.symbol)

    def _follows_another(self, resizer: Resizer, trial: Trial) -> bool:
        """Whether the crash is gone when a size that differs by one moves along: a bias column, a difference of neighbours."""
        for other in symbols(self.probe.exact):
            apart = other.size - trial.symbol.size
            alone = resizer.resized(trial.symbol, trial.size) if abs(apart) == 1 and trial.size + apart > 0 else None
            both = None if alone is None else Resizer(alone).resized(other.without_numbers(), trial.size + apart)
            if both is not None and self.judge(both)[0] == "right":
                return True
        return False

    def _below(self, resizer: Resizer, symbol: Symbol, size: int) -> str:
        """The number that a wrong size is smaller than, where sizes from it on are right, whether they are multiples of it or not."""
        for name, number in numbers_among(self.probe.exact).items():
            n = math.ceil(number)
            if not size < n <= symbol.size or name in symbol.numbers or _BLOCKS.search(name):
                continue
            if all(self._verdict(resizer, symbol, s) == "right" for s in (n, n + 1, 2 * n + 1) if s != symbol.size):
                return f"{name} = {number:g}"
        return ""

    def _verdict(self, resizer: Resizer, symbol: Symbol, size: int) -> Verdict:
        evaluator = resizer.resized(symbol, size)
        return "refused" if evaluator is None else self.judge(evaluator)[0]

    def _accepted(self, resizer: Resizer, symbol: Symbol) -> list[Symbol]:
        """The symbol as forward takes it: with its numbers, without them, or split where it refuses every joint change."""
        if symbol.size == 1 and not all(self._takes(resizer, symbol, size) for size in (7, 3)):
            symbol = symbol.of_rank({leaf.path: leaf.template.dim() for leaf in self.probe.exact.leaves})
        for candidate in dict.fromkeys((symbol, symbol.without_numbers())):
            if any(self._takes(resizer, candidate, size) for size in (7, 3, 1) if size != symbol.size):
                return [candidate]
            if candidate.size > 1 and self._takes(resizer, candidate, 2 * candidate.size):
                return [replace(candidate, step=candidate.size)]
        if len(symbol.axes) == 1 or len(symbol.axes) > 4:
            return []
        return [s for s in symbol.split() if self._takes(resizer, s, 7)]

    def _takes(self, resizer: Resizer, symbol: Symbol, size: int) -> bool:
        if self.left < 0:
            return False
        evaluator = resizer.resized(symbol, size)
        try:
            return evaluator is not None and bool(evaluator.forward().outputs)
        except UserCodeError:
            return False

    def _timed(self, resizer: Resizer, symbol: Symbol, size: int) -> Trial | None:
        if not self._affordable(resizer, symbol, size):
            self.stopped = self.stopped or f"{symbol.said} = {size}"
            return None
        return self._tried(resizer, symbol, size)

    def _affordable(self, resizer: Resizer, symbol: Symbol, size: int) -> bool:
        """Whether a pass at `size` is likely to fit.

        One pass may be slow by chance, as where torch starts to use threads: what looks too dear from it is approached, from the same size once more
        to sizes half-way, as long as these fit.
        """
        costs = self._costs.setdefault(symbol, [])
        if self.left < 0 or predicted(costs, size)[1] > OUTPUT_ELEMENTS or not self._bearable(symbol, size):
            return False
        for step in range(1 + STEPS):
            if predicted(costs, size)[0] <= self.left:
                return True
            reached = costs[-1][0]
            rung = math.isqrt(reached * size) if step else reached
            known = step > 0 and not reached < rung < size
            if known or predicted(costs, rung)[0] > self.left or self._tried(resizer, symbol, rung) is None:
                return False
        return predicted(costs, size)[0] <= self.left

    def _bearable(self, symbol: Symbol, size: int) -> bool:
        def passes(rung: int) -> list[Evaluator]:
            evaluator = Resizer(self.probe.exact).resized(symbol, rung)
            return [] if evaluator is None else [evaluator]

        return self._growths.setdefault(symbol, Growth(passes)).bears(size)

    def _tried(self, resizer: Resizer, symbol: Symbol, size: int) -> Trial | None:
        start = time.thread_time()
        evaluator = resizer.resized(symbol, size)
        if evaluator is None:
            return None
        verdict, error, value, count = self.judge(evaluator)
        if verdict == "wrong" and not self._again(resizer, symbol, size):
            verdict = "unknown"
        self._note_cost(symbol, (size, time.thread_time() - start, count))
        self.tried += 1
        return Trial(symbol, size, verdict, error, value)

    def _note_cost(self, symbol: Symbol, cost: tuple[int, float, int]) -> None:
        """Note what a size took; of two passes in a row at one size, the faster."""
        costs = self._costs[symbol]
        if costs and costs[-1][0] == cost[0]:
            costs[-1] = min(costs[-1], cost, key=lambda known: known[1])
        else:
            costs.append(cost)

    def _again(self, resizer: Resizer, symbol: Symbol, size: int) -> bool:
        """Whether other contents of the same size are judged wrong as well: a point where no quotient can be trusted is not met three times."""
        others = [resizer.resized(symbol, size) for _ in range(2)]
        if not all(e is not None and self._judged_again(e) == "wrong" for e in others) or self._for_contents(resizer, symbol):
            return False
        # A larger matrix of the same entries has a larger norm: an iteration that converged at the sample may not do so here.
        return size <= symbol.size or self._judged_again(_as_small_together(others[0], symbol, size)) != "right"

    def _judged_again(self, evaluator: Evaluator) -> Verdict:
        """What happens at a call like one that was judged with care: autograd through forward says so, where it can be trusted."""
        try:
            outcome = evaluator.forward()
            cotangents = [random_like(y, self.probe.generator, SIGNED) for y in outcome.live]
            got = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
        except UserCodeError:
            return self.judge(evaluator)[0]
        agrees = self._agrees_with_eager(evaluator, cotangents, got) if self.values else None
        return self.judge(evaluator)[0] if agrees is None else "right" if agrees else "wrong"

    def _for_contents(self, resizer: Resizer, symbol: Symbol) -> bool:
        """Whether indices that are drawn anew make the gradient wrong at the sample's sizes too, as where segments must not overlap."""
        axes = {path for path, _ in symbol.axes}
        if not any(leaf.path in axes and not differentiable(leaf.template) for leaf in self.probe.exact.leaves):
            return False
        return any(self._verdict(resizer, symbol, symbol.size) == "wrong" for _ in range(DRAWS))

    def judge(self, evaluator: Evaluator) -> tuple[Verdict, UserCodeError | None, InputVerdict | None, int]:
        """Return what happens at one call, what backward raised, the worst input's verdict where wrong, and how many elements forward returns."""
        try:
            outcome = evaluator.forward()
        except UserCodeError:
            return "refused", None, None, 0
        count = sum(y.numel() for y in outcome.outputs)
        if not outcome.carrying or not any(y.numel() for y in outcome.live):
            return "unknown", None, None, count
        cotangents = [random_like(y, self.probe.generator, SIGNED) for y in outcome.live]
        try:
            got = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
        except UserCodeError as error:
            return ("unknown", None, None, count) if refuses(error) else ("crash", error, None, count)
        if not self.values:
            return "right", None, None, count
        agrees = self._agrees_with_eager(evaluator, cotangents, got)
        wrong = None if agrees else self._wrong(evaluator, doubted=agrees is False)
        return ("right" if wrong is None else "wrong"), None, wrong, count

    def _agrees_with_eager(self, evaluator: Evaluator, cotangents: list[Tensor], got: list[Tensor | None]) -> bool | None:
        """Whether the gradients are those of autograd through forward; None where it cannot be trusted, or cannot say."""
        if any(trusted_eager(self.probe, path) is None for path in self.values):
            return None
        try:
            truth = eager(evaluator)
            outcome = truth.forward()
            expected = truth.vjp(outcome, [copy_tensor(c) for c in cotangents]) if len(outcome.carrying) == len(cotangents) else []
        except UserCodeError:
            return None
        kept = [i for i, leaf in enumerate(evaluator.wanted) if leaf.path in self.values]
        if len(expected) != len(got):
            return None
        return largest_gap([evaluator.wanted[i].path for i in kept], [got[i] for i in kept], [expected[i] for i in kept]) is None

    def _wrong(self, evaluator: Evaluator, *, doubted: bool) -> InputVerdict | None:
        """The worst input by difference quotients, if two draws agree that it is wrong; one, where autograd of forward has said so already."""
        try:
            test = ValueTest(evaluator, seed=self.probe.settings.seed)
            test.directions = 1
            cleared = test.first_pass()
            for path in self.values:
                if cleared.get(path):
                    continue
                first = test.careful(path)
                if first.ok is False and self._overrun():
                    return None
                if first.ok is False:
                    again = None if doubted else ValueTest(evaluator, seed=self.probe.settings.seed + 1)
                    if again is not None:
                        again.directions = 1
                    if (again is not None and again.careful(path).ok is not False) or untrained_row(evaluator, path):
                        continue
                    if not rounded_away(self.probe, evaluator, first, rounding_for(evaluator, path)):
                        return first
        except UserCodeError:
            return None
        return None

    def _overrun(self) -> bool:
        """Whether to make sure of a fault would take many times the budget, as where forward loops over a thousand steps: none is claimed then."""
        if self.left > -self.seconds:
            return False
        self.stopped = self.stopped or "a size whose passes are slow"
        return True

    def _smallest(self, resizer: Resizer, trial: Trial) -> Trial:
        """The smallest size that fails in the same way, by bisection from the nearest smaller size that is right."""
        right = [size for size, _, _ in self._costs[trial.symbol] if size < trial.size]
        sample = [trial.symbol.size] if trial.symbol.size < trial.size else []
        low: int = max([*right, *sample], default=0)
        high = trial
        if low == 0:
            return trial
        while high.size - low > 1 and self.left > 0:
            middle = self._timed(resizer, trial.symbol, (low + high.size) // 2)
            if middle is None:
                break
            if middle.verdict == trial.verdict:
                high = middle
            else:
                low = middle.size
        return Trial(high.symbol, high.size, high.verdict, high.error, high.value, low)


def _as_small_together(evaluator: Evaluator | None, symbol: Symbol, size: int) -> Evaluator:
    """The call with the entries of what grew made smaller, so that their sums stay as large as in the sample."""
    assert evaluator is not None
    grown = {path for path, _ in symbol.axes}
    leaves = [leaf for leaf in evaluator.wanted if leaf.path in grown and not whole_numbers(leaf.template)]
    return evaluator.variant({leaf.path: leaf.template * (symbol.size / size) for leaf in leaves})


def _multiple(symbol: Symbol, size: int) -> int:
    """A size as it is, or about as large a multiple of what the symbol's values must be multiples of."""
    return size if symbol.step == 1 else symbol.step * (size if size < LARGE else -(-size // symbol.step))
