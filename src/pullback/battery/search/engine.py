"""Best-first search over states: how far a try came decides what is changed next."""

from __future__ import annotations

import heapq
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from .attempt import Attempt, run
from .blame import blamed
from .evidence import Evidence
from .guards import ensure_group
from .moment import Moment
from .proposals import from_message, joint, livelier, mutations, with_count
from .quality import Quality, assess
from .specs import Spec, State

CHANGE_PENALTY = 0.1
DISTANCE_PENALTY = 0.3
REPEAT_PENALTY = 0.06
POSITION_PENALTY = 0.008
DEPTH_BONUS = 0.2
MORE_AFTER_FOUND = 60
MESSAGE_BONUS = 0.05
JOINT_BONUS = 0.3  # these change several arguments at once, each of which costs
CHUNK = 12
ONE_OFFS = 5  # the first runs may import, initialise or build something once
ONE_OFF_SECONDS = 0.05
PROOF = re.compile(r"incorrect number of gradients|NameError|UnboundLocalError|NotImplementedError: You must implement|expected Variable or None")


Key = tuple[str, tuple[int, int], str]


class BudgetSpent(Exception):
    """The evaluations or seconds are used up."""


@dataclass(slots=True)
class Budget:
    """What may still be spent.

    Args:
        evaluations: Most runs of the Function.
        seconds: Most seconds of processor time; only a safety, so that a busy machine does not choose other inputs.
    """

    evaluations: int
    seconds: float
    used: int = 0
    started: float = field(default_factory=time.thread_time)
    apart: float = 0.0

    def spend(self) -> None:
        """Count one run.

        Raises:
            BudgetSpent: if there is none left.
        """
        if self.used >= self.evaluations or self.elapsed() > self.seconds:
            raise BudgetSpent
        self.used += 1

    def elapsed(self) -> float:
        """Return the seconds since the start without those set apart."""
        return time.thread_time() - self.started - self.apart


@dataclass(slots=True)
class Found:
    """A sample that runs.

    Args:
        attempt: Its run.
        quality: What speaks against it.
    """

    attempt: Attempt
    quality: Quality


@dataclass(order=True, slots=True)
class _Entry:
    cost: float
    number: int
    state: State = field(compare=False)
    key: Key | None = field(compare=False)
    seen: int = field(compare=False)
    more: Iterator[State] | None = field(compare=False, default=None)
    progress: float = field(compare=False, default=0.0)
    position: int = field(compare=False, default=0)


class Search:
    """One search for one Function.

    Args:
        evidence: Static evidence.
        seed: Of all draws.
        budget: Evaluations and seconds.
        use_messages: Whether the wording of errors is read.
        pinned: Position and kind of an argument that must keep its kind.
    """

    def __init__(self, evidence: Evidence, seed: int, budget: Budget, use_messages: bool = True, pinned: tuple[int, str] | None = None):
        self.evidence, self.seed, self.budget, self.use_messages, self.pinned = evidence, seed, budget, use_messages, pinned
        self.heap: list[_Entry] = []
        self.known: set[State] = set()
        self.failures: Counter[Key] = Counter()
        self.start: State = ()
        self.number = 0
        self.best: Found | None = None
        self.furthest: tuple[float, Attempt] | None = None
        self.proof: Attempt | None = None

    def evaluate(self, state: State, seed: int | None = None) -> Attempt:
        """Run one state and count it."""
        self.budget.spend()
        started = time.thread_time()
        attempt = run(self.evidence.source.function, state, self.evidence.slots, self.seed if seed is None else seed)
        if self.budget.used <= ONE_OFFS:
            self.budget.apart += max(0.0, time.thread_time() - started - ONE_OFF_SECONDS)
        return attempt

    def search(self, start: State | None = None, most: int | None = None) -> None:
        """Search until a sample is good, or the budget or the ideas are spent.

        Args:
            start: Where to begin; the likeliest kind of every parameter if left out.
            most: Most evaluations of this search, within the budget.
        """
        self.start = start or tuple(self.evidence.first_specs(slot)[0] for slot in self.evidence.slots)
        self._push(self.start, 3.0, None)
        stop = self.budget.evaluations if most is None else min(self.budget.evaluations, self.budget.used + most)
        try:
            while self.heap and self.budget.used < stop and not self._settled():
                had_one = self.best is not None
                entry = self._pop()
                if entry is not None:
                    self._take(self.evaluate(entry.state))
                if self.best is not None and not had_one:
                    stop = min(stop, self.budget.used + MORE_AFTER_FOUND)
        except BudgetSpent:
            return

    def _settled(self) -> bool:
        return self.proof is not None or (self.best is not None and self.best.quality.good)

    def _take(self, attempt: Attempt) -> None:
        """Judge an attempt and put the states that follow from it on the heap."""
        if attempt.passed:
            quality = assess(attempt, self.evidence, self.evaluate, self.seed)
            if self.best is None or quality.order > self.best.quality.order:
                self.best = Found(attempt, quality)
            if not quality.good:
                self._push_some(livelier(attempt, self.evidence, list(quality.suspects)), 2.0, 0, None)
            return
        if "process group" in attempt.message and self._make_group(attempt):
            return
        progress = self._progress(attempt)
        if self.furthest is None or progress > self.furthest[0] + 1e-9:
            self.furthest = progress, attempt
        if attempt.stage == "backward" and self.best is None and PROOF.search(attempt.message):
            if not self._push_counts(attempt):
                self.proof = attempt
            return
        self.failures[attempt.key] += 1
        self._follow(attempt, progress, blamed(attempt, self.evidence))

    def _push_counts(self, attempt: Attempt) -> bool:
        """Put the call with as many arguments as backward returns gradients for on the heap; False where forward does not leave that open."""
        state = with_count(attempt, self.evidence.slots)
        if state is None or state in self.known:
            return False
        self._push(state, 3.0, None)
        return True

    def _make_group(self, attempt: Attempt) -> bool:
        started = time.thread_time()
        made = ensure_group()
        self.budget.apart += time.thread_time() - started
        if made:
            self.known.discard(attempt.state)
            self._push(attempt.state, 3.0, None)
        return made

    def _follow(self, attempt: Attempt, progress: float, names: list[str]) -> None:
        moment = Moment(attempt, self.evidence, names)
        if self.use_messages:
            self._push_some(from_message(moment), progress + MESSAGE_BONUS, 0, attempt.key)
        if not names:
            self._push_some(joint(moment), progress + JOINT_BONUS, 0, attempt.key)
        self._push_some(mutations(moment), progress, 0, attempt.key)

    def _push_some(self, states: Iterator[State], progress: float, position: int, key: Key | None) -> None:
        """Put the next few of a stream of states on the heap, and the rest of the stream behind them: most of it is never made."""
        some = list(islice(states, CHUNK))
        for i, state in enumerate(some, position):
            self._push(state, progress - self._cost(state) - POSITION_PENALTY * i, key)
        if len(some) == CHUNK:
            self.number += 1
            seen = self.failures[key] if key else 0
            cost = self._cost(some[-1]) + POSITION_PENALTY * (position + CHUNK) + _repeated(seen) - progress
            heapq.heappush(self.heap, _Entry(cost, self.number, some[-1], key, seen, states, progress, position + CHUNK))

    def _cost(self, state: State) -> float:
        changed = sum(_essence(a) != _essence(b) for a, b in zip(state, self.start, strict=True))
        distance = sum(
            self.evidence.traits[slot.name].distance(spec.kind) for spec, slot in zip(state, self.evidence.slots, strict=True) if not slot.star
        )
        return CHANGE_PENALTY * changed + DISTANCE_PENALTY * distance

    def _progress(self, attempt: Attempt) -> float:
        """How far forward came (0 to 1), then backward (1 to 2)."""
        source = self.evidence.source
        if attempt.stage in ("no-output", "no-grad"):
            return 0.9
        if attempt.stage == "not-finite":
            return 1.95
        base, method = (1.0, source.backward) if attempt.stage == "backward" else (0.0, source.forward)
        if not attempt.frames:
            return base + (0.9 if attempt.stage == "backward" else 0.0)
        if method is None:
            return base + 0.3
        inside = [
            frame
            for frame in attempt.frames
            if method.lineno <= frame.line <= (method.end_lineno or method.lineno) and frame.code.co_name == method.name
        ]
        line = inside[-1].line if inside else method.lineno
        relative = (line - method.lineno) / max(1, (method.end_lineno or method.lineno) - method.lineno + 1)
        span = attempt.frames[-1].span
        column = 0.03 * min(1.0, span[3] / 120) if span is not None else 0.0
        deeper = min(1.0, 0.5 * (len(attempt.frames) - 1))
        return base + 0.8 * relative + column + DEPTH_BONUS * deeper * (0.5 if inside else 0.0)

    def _pop(self) -> _Entry | None:
        entry = heapq.heappop(self.heap)
        if entry.key is not None and self.failures[entry.key] > entry.seen + 3:
            more = self.failures[entry.key]
            entry.cost += _repeated(more) - _repeated(entry.seen)
            entry.seen = more
            heapq.heappush(self.heap, entry)
            return None
        if entry.more is not None:
            self._push_some(entry.more, entry.progress, entry.position, entry.key)
            return None
        return entry

    def _push(self, state: State, priority: float, key: Key | None) -> None:
        if state in self.known or (self.pinned is not None and state[self.pinned[0]].kind != self.pinned[1]):
            return
        self.known.add(state)
        self.number += 1
        seen = self.failures[key] if key else 0
        heapq.heappush(self.heap, _Entry(_repeated(seen) - priority, self.number, state, key, seen))


def _essence(spec: Spec) -> Spec:
    """Without what is changed for all tensors at once."""
    if not spec.is_tensor:
        return spec
    return spec.with_(leaf=True, grad=True, dtype="float64")


def _repeated(times: int) -> float:
    """The penalty for a failure seen so often: it saturates, or a long way of small steps through one kind of error would never be gone."""
    return REPEAT_PENALTY * math.log2(1 + times)
