"""PB614."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import torch
from torch import Tensor

from ...capture.observed_calls import observed_backward
from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import Arguments, Evaluator, Outcome, UserCodeError
from ..one_call import RETURNED, Call, changed_in, gradient_gap, output_gap, overwritten_of, picture_of, value_gap
from ..other_calls import (
    earlier_calls,
    fixed_cotangents,
    held_tensors,
    objects_among,
    other_entries,
    other_inputs,
    with_objects_of,
    with_other_tensors,
)
from ..probe import Probe
from ..state import pristine
from ..tensors import copy_tensor, differentiable, same
from ..variants import other_numbers

NUMBERS, BUDGET = 8, 0.5
"""How many other values of numbers among the arguments are tried in a call after the sample's, and for how many seconds."""
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


class StateAcrossCalls(Check):
    """What one call leaves behind changes another call, or changes what was returned before.

    Why it matters:
        Used once a step the op is right; used twice before backward, in two threads, replicas or dtypes, or with gradient accumulation, it is
        silently wrong.

    How it is measured:
        Two calls with different inputs, numbers and flags, sizes where forward takes them, run before their two backwards, in both orders: gradients
        must be those of the calls alone, and what was returned must not change later; nor may a second forward with the very same arguments change
        the gradient of the first. Each dtype runs first from the state in which the op was found, then after another dtype, after a call under
        ``torch.inference_mode()``, ``torch.no_grad()`` or autocast, and after one in which a single input requires grad. Buffers that forward
        updates must not be updated once more by backward. A call must give what it gives alone after another one with other indices,
        constants or numbers, as long as the same call twice gives the same; where objects among the arguments are kept from call to call, gradients
        must be right whenever outputs are. Tensors are kept alive throughout, so that caches by address stay right.

    Example:
        ``MyOp.saved = x`` in forward; ``ctx.meta.scale`` of a shared object, read in backward; a global work buffer that is returned; a cache whose
        key leaves out the dtype; recomputing batch norm in backward.

    Instead:
        Keep what belongs to a call on its ctx; return fresh tensors; put everything that matters into the key of a cache.

    Limits:
        A cache that is right but for tensors made under ``torch.inference_mode()``, which a later call cannot save, is a note.

    References:
        pytorch/pytorch#16947, pytorch/pytorch#96136.
    """

    code = "PB614"
    name = "state-across-calls"
    severity = "error"
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        self.alive: list[object] = []
        with pristine(probe.pristine, probe.target):
            between = self._interleaved, self._same_arguments, self._shared, self._dtypes
            after = self._updates, self._stale, self._objects, self._histories
            finding = next((f for find in (*between, *after) if (f := find(probe)) is not None), None)
        self.alive.clear()
        if finding is not None:
            yield finding

    def _interleaved(self, probe: Probe) -> Finding | None:
        first = probe.native
        for second, how in other_inputs(first):
            try:
                alone = self._call(probe, first), self._call(probe, second)
                overwritten = overwritten_of(first, alone[0])
                if overwritten:
                    return self._overwrites(probe, overwritten)
                both = [self._forward(probe, e) for e in (first, second)]
                back = [self._forward(probe, e) for e in (first, second)]
            except UserCodeError:
                continue
            for outcomes, order in ((both, (0, 1)), (back, (1, 0))):
                for i in order:
                    evaluator = (first, second)[i]
                    try:
                        got = self._backward(probe, evaluator, outcomes[i])
                    except UserCodeError as error:
                        return self._mixed(probe, how, order, f"the backward of call {i + 1} raised", error.short, "as alone")
                    gap = gradient_gap(evaluator, got.gradients, alone[i].copies)
                    if gap is not None:
                        mixed = self._mixed(probe, how, order, f"{gap[0]} of call {i + 1}", gap[1], gap[2])
                        return replace(mixed, attachments={**mixed.attachments, **picture_of(evaluator, gap[0], got.gradients, alone[i].copies)})
        return None

    def _forward(self, probe: Probe, evaluator: Evaluator, arguments: Arguments | None = None) -> Outcome:
        outcome = evaluator.forward(arguments)
        self.alive.append(outcome)
        return outcome

    def _backward(self, probe: Probe, evaluator: Evaluator, outcome: Outcome) -> Call:
        outputs = [copy_tensor(y) for y in outcome.outputs]
        with observed_backward(*probe.baseline.functions) as calls:
            gradients = evaluator.vjp(outcome, fixed_cotangents(outcome))
        returned = [(g, copy_tensor(g)) for call in calls for g in call.gradients if isinstance(g, Tensor)]
        call = Call(outcome, outputs, gradients, [None if g is None else copy_tensor(g) for g in gradients], returned)
        self.alive.append(call)
        return call

    def _call(self, probe: Probe, evaluator: Evaluator) -> Call:
        return self._backward(probe, evaluator, self._forward(probe, evaluator))

    def _shared(self, probe: Probe) -> Finding | None:
        """Find a backward that changes what the next call with the same arguments (a cache among them) returns.

        A tensor argument that backward writes into is PB609's.
        """
        evaluator = probe.native
        if evaluator.nonleaf:
            return None
        try:
            calm, shared = evaluator.arguments(), evaluator.arguments()
            repeated = [[copy_tensor(y) for y in evaluator.forward(calm).outputs] for _ in range(2)]
            outcome = evaluator.forward(shared)
            before = [copy_tensor(a) for a in shared.args if isinstance(a, Tensor)]
            evaluator.vjp(outcome, fixed_cotangents(outcome))
            if not all(map(same, before, [a.detach() for a in shared.args if isinstance(a, Tensor)])):
                return None
            after = evaluator.forward(shared)
        except UserCodeError:
            return None
        if len(repeated[0]) != len(repeated[1]) or not all(map(same, *repeated)):
            return None
        for path, got, expected in zip(after.paths, after.outputs, repeated[0], strict=False):
            if not same(got.detach(), expected):
                return self._changes_next(probe, path)
        return None

    def _dtypes(self, probe: Probe) -> Finding | None:
        if not all(leaf.template.is_floating_point() for leaf in probe.native.wanted):
            return None
        alone: dict[torch.dtype, tuple[Evaluator, Call]] = {}
        for dtype in DTYPES:
            probe.pristine.restore()
            try:
                evaluator = probe.native.cast(dtype)
                alone[dtype] = evaluator, self._call(probe, evaluator)
            except UserCodeError:
                continue
        for before in alone:
            for dtype, (evaluator, expected) in alone.items():
                if before is dtype:
                    continue
                probe.pristine.restore()
                try:
                    self._call(probe, alone[before][0])
                except UserCodeError:
                    continue
                try:
                    got = self._call(probe, evaluator)
                except UserCodeError as error:
                    return self._after(probe, before, dtype, f"{error.stage} raises", error.short, "as alone")
                gap = output_gap(got, expected) or gradient_gap(evaluator, got.gradients, expected.copies)
                if gap is not None:
                    return self._after(probe, before, dtype, *gap)
        return None

    def _histories(self, probe: Probe) -> Finding | None:
        """Find a call that raises, or returns something else, once the op has run in another mode, or for a gradient of one input alone."""
        evaluator = probe.native
        for earlier, name in earlier_calls(evaluator):
            probe.pristine.restore()
            try:
                expected = self._call(probe, evaluator)
                probe.pristine.restore()
                self.alive.append(earlier())
            except UserCodeError:
                continue
            try:
                got = self._call(probe, evaluator)
            except UserCodeError as error:
                return self._after_history(probe, name, f"{error.stage} raises", error.short, "as alone")
            gap = output_gap(got, expected) or gradient_gap(evaluator, got.copies, expected.copies)
            if gap is not None and self._settled(probe, evaluator, expected):
                return self._after_history(probe, name, *gap)
        return None

    def _same_arguments(self, probe: Probe) -> Finding | None:
        """Find a backward that gives something else once forward has run again with the very same arguments: an object among them has moved on."""
        evaluator = probe.native
        if evaluator.nonleaf or probe.repeats.forward_draws or probe.repeats.backward_draws:
            return None
        try:
            expected = self._call(probe, evaluator)
            arguments = evaluator.arguments()
            held = [copy_tensor(t) for t in arguments.tensors]
            outcome = self._forward(probe, evaluator, arguments)
            self._forward(probe, evaluator, arguments)
            if not all(map(same, held, [t.detach() for t in arguments.tensors])):
                return None
            got = self._backward(probe, evaluator, outcome)
        except UserCodeError:
            return None
        gap = gradient_gap(evaluator, got.copies, expected.copies)
        return None if gap is None else self._moved_on(probe, *gap)

    def _settled(self, probe: Probe, evaluator: Evaluator, expected: Call) -> bool:
        """Whether a second call like the first gives what the first gives."""
        probe.pristine.restore()
        self._call(probe, evaluator)
        return gradient_gap(evaluator, self._call(probe, evaluator).copies, expected.copies) is None

    def _updates(self, probe: Probe) -> Finding | None:
        """Find a buffer that forward updates and that backward updates in just the same way once more."""
        evaluator = probe.native
        first, second = evaluator.arguments(), evaluator.arguments()
        try:
            before = held_tensors(evaluator, first)
            outcome = evaluator.forward(first)
            once = held_tensors(evaluator, first)
            if all(map(same, before.values(), once.values())):
                return None
            evaluator.vjp(outcome, fixed_cotangents(outcome))
            both = held_tensors(evaluator, first)
            evaluator.forward(second)
            evaluator.forward(second)
            twice = held_tensors(evaluator, second)
        except UserCodeError:
            return None
        for path, value in both.items():
            moved = differentiable(value) and not same(before[path], once[path]) and not same(once[path], value)
            if moved and value.shape == twice[path].shape and torch.allclose(value, twice[path], equal_nan=True):
                return self._twice(probe, path)
        return None

    def _stale(self, probe: Probe) -> Finding | None:
        """Find a call that gets what was kept of an earlier one with other contents, though the same call twice gives the same."""
        first = probe.native
        numbers = ((first.variant({v.path: v.value}), v.path) for v in islice(other_numbers(probe), NUMBERS))
        end = time.thread_time() + probe.seconds(BUDGET)
        for second, what in chain(other_entries(first), numbers):
            if time.thread_time() > end:
                return None
            probe.pristine.restore()
            try:
                expected = self._call(probe, second)
                probe.pristine.restore()
                calls = self._call(probe, first), self._call(probe, first)
                if changed_in(first, calls[1], calls[0]) is not None:
                    return None
                got = self._call(probe, second)
            except UserCodeError:
                continue
            gap = changed_in(second, got, expected)
            if gap is not None:
                return self._kept(probe, what, *gap)
        return None

    def _objects(self, probe: Probe) -> Finding | None:
        """Find a gradient made from what an earlier call left in an object among the arguments, though forward pays no heed to it."""
        first = probe.native
        names = objects_among(first)
        second = with_other_tensors(first, names)
        if not names or second is None:
            return None
        try:
            expected = self._call(probe, second)
            earlier = self._call(probe, first).outcome.arguments
            got = self._backward(probe, second, second.forward(with_objects_of(second, earlier, names)))
        except UserCodeError:
            return None
        if output_gap(got, expected) or value_gap(got, expected):
            return None
        gap = gradient_gap(second, got.copies, expected.copies)
        return None if gap is None else self._left_behind(probe, " or ".join(names), *gap)

    def _overwrites(self, probe: Probe, what: str) -> Finding:
        which = "for" if what == RETURNED else "of"
        return self.finding(
            probe,
            f"{probe.target.name} overwrites what it returned: a later call changes {what} {which} an earlier one",
            location=probe.forward_location if what.startswith("output") else probe.backward_location,
            evidence=[Evidence(f"{what} of the first call after a second call with other inputs", got="changed", expected="unchanged")],
            cause="a buffer that is kept between calls is returned",
            certain=True,
            fix="return a fresh tensor, or a clone of the buffer",
            path="",
        )

    def _changes_next(self, probe: Probe, path: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} changes what the next call with the same arguments returns",
            evidence=[
                Evidence(f"{path} of forward, before and after one backward; without it two forwards agree", got="different", expected="the same")
            ],
            cause="backward writes into a cache or a buffer that the arguments hold",
            certain=True,
            fix="work on a copy in backward: the out-of-place operation, or .clone() before the first write",
            path="",
        )

    def _mixed(self, probe: Probe, how: str, order: tuple[int, ...], what: str, got: str, expected: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} is wrong when the op is used twice before backward",
            evidence=[Evidence(f"two calls {how}, then the backward of call {order[0] + 1} first: {what}", got, expected)],
            cause="something of one call is kept where the next call overwrites it: a class attribute, a global, a shared buffer",
            certain=True,
            fix="keep what backward needs on ctx: save_for_backward for tensors, attributes for the rest",
        )

    def _after(self, probe: Probe, before: torch.dtype, dtype: torch.dtype, what: str, got: str, expected: str) -> Finding:
        names = [str(d).removeprefix("torch.") for d in (before, dtype)]
        return self.finding(
            probe,
            f"{probe.target.name} behaves differently in {names[1]} once it has run in {names[0]}",
            evidence=[Evidence(f"{names[1]} after {names[0]}: {what}", got, expected)],
            cause="something made for the first dtype is kept and used again: a cache whose key leaves out the dtype, or a global buffer",
            certain=True,
            fix="make the dtype part of the cache's key, or keep nothing between calls",
            path="",
        )

    def _after_history(self, probe: Probe, name: str, what: str, got: str, expected: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name} behaves differently once it has run {name}",
            severity="note" if "nference tensor" in got else "error",
            evidence=[Evidence(f"a call after one {name}: {what}", got, expected)],
            cause="what the first call made or needed is kept: an inference tensor, which cannot be saved, or one that lacks grad or digits",
            certain=True,
            fix="keep nothing between calls, or make what is kept under torch.inference_mode(False), torch.no_grad() and the dtype it needs",
            path="",
        )

    def _moved_on(self, probe: Probe, where: str, got: str, expected: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} gives something else once forward has run again with the same arguments",
            evidence=[Evidence(f"forward twice with the same arguments, then the backward of the first: {where}", got, f"{expected}, as alone")],
            cause="forward leaves something with an argument that the next forward changes or adds to: a field of an object, a hook",
            certain=True,
            fix="keep what backward needs on ctx at the time of the call, and register nothing on arguments",
            path="",
        )

    def _left_behind(self, probe: Probe, names: str, where: str, got: str, expected: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} uses what an earlier call with other values left in {names}",
            evidence=[
                Evidence(f"a second call with the same {names} and other values, whose outputs are right: {where}", got, f"{expected}, as alone")
            ],
            cause=f"something computed from the tensors of one call is kept in {names}, and not computed anew for the next",
            certain=True,
            fix="keep what belongs to a call on its ctx",
        )

    def _kept(self, probe: Probe, what: str, where: str, got: str, expected: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name} returns something else once it has run with other {what}",
            location=None if where.startswith("grad") else probe.forward_location,
            evidence=[Evidence(f"a call after one that differs in {what}: {where}", got, f"{expected}, as alone")],
            cause=f"something made from the first call's {what} is kept and used again: a cache whose key leaves it out",
            certain=True,
            fix=f"make {what} part of the cache's key, or keep nothing between calls",
            path="",
        )

    def _twice(self, probe: Probe, path: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} updates {path} once more, as forward did",
            evidence=[Evidence(f"{path} after forward and backward equals {path} after two forwards", got="updated twice", expected="updated once")],
            cause="backward recomputes forward together with its side effect",
            certain=True,
            fix=f"leave {path} alone in backward: pass a flag to the recomputation, or keep what forward computed",
            path="",
        )
