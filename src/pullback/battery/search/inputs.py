"""`find_inputs`: sample inputs of an autograd.Function, found from its source and from the errors that wrong guesses raise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ...capture.case import Case
from ...declare import declaration_of
from .attempt import Attempt
from .blame import blamed
from .engine import Budget, BudgetSpent, Search
from .evidence import Evidence, gather_evidence
from .guards import ensure_group, restored, uses_collectives
from .improve import improved, refine
from .samples import structural, variations, with_all_gradients
from .skeleton import skeleton
from .specs import INVENTED_KINDS, Spec, State, build_state, show_call
from .syntax import Unsearchable, read_function

EXTRA_EVALUATIONS = 250


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What the search for sample inputs found.

    Args:
        status: ``"found"``; ``"skipped"``: no try runs; ``"unsure"``: every try raises in backward: no usable input, or a fault.
        cases: First the small sample, then one of other sizes or rank, then flags the other way and optional arguments left out.
            Empty unless found.
        calls: A printable call for each case, such as ``Swish.apply(x=float64[3, 4], beta=0.7)``.
        severed: The first sample with those tensors requiring grad too whose gradient is literally always None.
        best_attempt: The printable call that came furthest.
        attempted: That call as a case, where nothing was found; with ``"proved"`` in `flags`, the fault shows on it.
        last_error: What it raised.
        blamed: The parameter that this error is about, empty if unknown.
        reason: A sentence that says why nothing was found.
        skeleton: A `pullback_cases()` text that can be pasted.
        flags: What is degenerate about the first sample, ``"process-group"`` where a group of one was set up, ``"non-leaf"`` where inputs must be
            copies, ``"proved"`` where the error of backward cannot be due to the inputs.
        evaluations: How often the Function ran.
        seconds: Processor time it took.
    """

    status: Literal["found", "skipped", "unsure"]
    cases: tuple[Case, ...] = ()
    calls: tuple[str, ...] = ()
    severed: Case | None = None
    best_attempt: str = ""
    attempted: Case | None = None
    last_error: str = ""
    blamed: str = ""
    reason: str = ""
    skeleton: str = ""
    flags: tuple[str, ...] = ()
    evaluations: int = 0
    seconds: float = 0.0

    @property
    def call(self) -> str:
        """The printable call of the first sample, or of the best attempt."""
        return self.calls[0] if self.calls else self.best_attempt


def find_inputs(
    function: type[torch.autograd.Function], *, seed: int = 0, seconds: float = 1.0, evaluations: int = 500, use_messages: bool = True
) -> SearchResult:
    """Return sample inputs on which forward and backward of `function` run.

    The search runs unknown code with made-up arguments hundreds of times: call it in a worker. Sizes and whole numbers are capped; nothing is
    invented for files, paths, URLs, streams, connections or source code. Random state, default dtype, grad mode and warnings are restored.

    Args:
        function: An autograd.Function subclass.
        seed: Of all draws; the same seed gives the same samples.
        seconds: Most seconds of processor time of this thread; whoever runs it in a worker also stops it by the clock.
        evaluations: Most runs of the Function until the first sample; the further samples take at most a few dozen more.
        use_messages: Whether the wording of errors is read.

    Raises:
        TypeError: if `function` is not an autograd.Function subclass.

    Example:
        >>> import torch
        >>> class Swish(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, beta):
        ...         ctx.save_for_backward(x)
        ...         ctx.beta = beta
        ...         return x * torch.sigmoid(beta * x)
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         (x,) = ctx.saved_tensors
        ...         s = torch.sigmoid(ctx.beta * x)
        ...         return dy * (s + ctx.beta * x * s * (1 - s)), None
        >>> find_inputs(Swish).call
        'Swish.apply(x=float64[3, 4], beta=0.7)'
    """
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise TypeError(f"find_inputs takes an autograd.Function subclass, got {function!r}")
    with restored():
        try:
            evidence = gather_evidence(read_function(function))
        except Unsearchable as error:
            return SearchResult("skipped", reason=str(error), skeleton=_bare_skeleton(function))
        made_group = uses_collectives(evidence.source) and ensure_group()
        search = Search(evidence, seed, Budget(evaluations, seconds), use_messages)
        search.search()
        result = _found(search) if search.best is not None else _nothing(search)
    return _with_flags(result, *(("process-group",) if made_group else ()))


def _with_flags(result: SearchResult, *flags: str) -> SearchResult:
    return replace(result, flags=(*result.flags, *flags)) if flags else result


def _bare_skeleton(function: type) -> str:
    return f"import torch\nimport pullback as pb\n\n\ndef pullback_cases():\n    yield pb.case({function.__qualname__}, ...)\n"


def _nothing(search: Search) -> SearchResult:
    evidence, budget = search.evidence, search.budget
    attempt = search.proof or (search.furthest[1] if search.furthest else None)
    name = evidence.source.function.__name__
    if attempt is None:
        return SearchResult("skipped", reason=f"{name} could not be run within the budget", evaluations=budget.used, seconds=budget.elapsed())
    culprits = blamed(attempt, evidence)
    culprit = culprits[0] if culprits else ""
    raises = attempt.stage == "backward"
    call = show_call(name, attempt.state, evidence.slots)
    about = f"`{culprit}`: " if culprit else ""
    return SearchResult(
        "unsure" if raises else "skipped",
        attempted=_case(search, attempt.state, 0),
        best_attempt=call,
        last_error=attempt.message,
        blamed=culprit,
        reason=f"{'every try raises in backward' if raises else 'no try runs'}; the best one, {call}, stops at {about}{attempt.message}",
        skeleton=skeleton(evidence.source.function, attempt.state, evidence.slots, attempt.message, culprit),
        flags=("proved",) if search.proof is not None else (),
        evaluations=budget.used,
        seconds=budget.elapsed(),
    )


def _found(search: Search) -> SearchResult:
    assert search.best is not None
    evidence, budget = search.evidence, search.budget
    budget.evaluations = budget.used + EXTRA_EVALUATIONS
    best = improved(search.best, search)
    first, quality = best.attempt, best.quality
    states: list[State] = [first.state]
    severed: State | None = None
    try:
        for state in _further(first, evidence, search):
            if state not in states:
                states.append(state)
        wanted = with_all_gradients(first.state)
        if wanted is not None and search.evaluate(wanted).stage in ("done", "no-grad"):
            severed = wanted
    except BudgetSpent:
        pass
    name = evidence.source.function.__name__
    leafless = ("non-leaf",) if any(not one.leaf for spec in first.state for one in (spec, *spec.items)) else ()
    return SearchResult(
        "found",
        cases=tuple(_case(search, state, i) for i, state in enumerate(states)),
        calls=tuple(show_call(name, state, evidence.slots) for state in states),
        severed=_case(search, severed, 0) if severed is not None else None,
        best_attempt=show_call(name, first.state, evidence.slots),
        skeleton=skeleton(evidence.source.function, first.state, evidence.slots),
        flags=(*(f"degenerate: {flag}" for flag in quality.flags), *leafless),
        evaluations=budget.used,
        seconds=budget.elapsed(),
    )


def _further(first: Attempt, evidence: Evidence, search: Search) -> Iterator[State]:
    other = structural(first, evidence, search.evaluate, search.seed)
    if other is not None:
        yield other.state
    for index, state in variations(first.state, evidence):
        if search.evaluate(state).passed:
            yield state
        elif state[index].is_tensor and (found := refine(state, index, search)) is not None:
            yield found.attempt.state


def _case(search: Search, state: State, index: int) -> Case:
    evidence = search.evidence
    function = evidence.source.function
    args = build_state(state, evidence.slots, search.seed)
    invented = tuple(slot.name for slot, spec in zip(evidence.slots, state, strict=True) if _invented(spec))
    return Case(function, args, {}, declaration_of(function), "searched", index, invented)


def _invented(spec: Spec) -> bool:
    return spec.kind in INVENTED_KINDS or any(_invented(item) for item in spec.items)
