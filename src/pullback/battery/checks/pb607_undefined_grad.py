"""PB607."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from ... import _compat
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..branches import other_settings
from ..compare import Gap, gradient_scales, largest_gap
from ..evaluate import Evaluator, Outcome, UserCodeError
from ..probe import Probe
from ..tensors import copy_tensor
from ..variants import other_branches
from ..words import gradient_name


@dataclass(frozen=True, slots=True)
class Trial:
    """A call whose outputs are left out of the loss.

    Args:
        probe: The case.
        evaluator: The call: the sample, or one with another setting.
        cotangents: One for each output that carries a gradient.
        setting: What is not as in the sample, in words: ``" with output_state=True"``.
    """

    probe: Probe
    evaluator: Evaluator
    cotangents: list[Tensor]
    setting: str


class UndefinedGrad(Check):
    """backward crashes, or is wrong, when an output takes no part in the loss.

    Why it matters:
        An output that the loss does not use, or whose consumer returns None, has no gradient. With ``set_materialize_grads(False)`` backward then
        gets None for it; without, zeros.

    How it is measured:
        Each output in turn is left out of the loss, then all but it, then each one's gradient is made undefined by a consumer that returns None. The
        gradients must be those for zeros in its place. What only a consumer that returns None brings about is a warning. Then the same with the
        first other flag or word with which forward returns more outputs.

    Example:
        ``ctx.set_materialize_grads(False)`` in forward, and ``d_state.to(k)`` in backward without ``if d_state is not None``.

    Instead:
        Ask ``if grad is not None`` for each output, or leave materialization on.
    """

    code = "PB607"
    name = "undefined-grad"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        base = probe.exact.forward()
        count = len(base.carrying)
        found = False
        for finding in self._at(probe, probe.exact, base, ""):
            found = True
            yield finding
        if found:
            return
        for variant in chain(other_branches(probe), other_settings(probe)):
            try:
                more = variant.evaluator.forward()
                variant.evaluator.vjp(variant.evaluator.forward(), [torch.ones_like(y) for y in more.live])
            except UserCodeError:
                continue
            if not variant.guessed and len(more.carrying) > count:
                meant = variant.passed and probe.case.origin != "searched"
                with contextlib.suppress(Skipped):
                    for finding in self._at(probe, variant.evaluator, more, f" with {variant.name}"):
                        yield finding if meant else replace(finding, severity="warning")
                return

    def _at(self, probe: Probe, evaluator: Evaluator, base: Outcome, setting: str) -> Iterator[Finding]:
        cotangents = probe.cotangents(base)
        names = [base.paths[i] for i in base.carrying]
        trial = Trial(probe, evaluator, cotangents, setting)
        if len(names) > 1:
            yield from self._left_out(trial, names)
        else:
            yield from self._undefined(trial, names)

    def _left_out(self, trial: Trial, names: list[str]) -> Iterator[Finding]:
        blamed: set[str] = set()
        for i, name in enumerate(names):
            for missing in ({i}, set(range(len(names))) - {i}):
                if not missing.isdisjoint(names.index(b) for b in blamed):
                    continue
                said = f"{name} takes no part in the loss" if missing == {i} else f"only {name} takes part in the loss"
                found = self._tried(trial, said, missing)
                if found is not None:
                    blamed.update(names[k] for k in missing)
                    yield found
        if not blamed:
            yield from self._undefined(trial, names)

    def _undefined(self, trial: Trial, names: list[str]) -> Iterator[Finding]:
        for i, name in enumerate(names):
            outcome = trial.evaluator.forward()
            ys = list(outcome.live)
            try:
                ys[i] = _compat.undefined_gradient()(ys[i])
            except RuntimeError as error:
                raise Skipped(f"{name} takes no consumer that returns None: {error}") from error
            for index, y in zip(outcome.carrying, ys, strict=True):
                outcome.outputs[index] = y
            said = f"the consumer of {name} returns None"
            try:
                got = trial.evaluator.vjp(outcome, [copy_tensor(c) for c in trial.cotangents])
                found = self._compared(trial, said, {i}, got)
            except UserCodeError as error:
                found = self._raises(trial, said, error)
            if found is not None:
                yield replace(found, severity="warning")
                return

    def _tried(self, trial: Trial, said: str, missing: set[int]) -> Finding | None:
        evaluator = trial.evaluator
        try:
            got = evaluator.vjp(evaluator.forward(), [None if k in missing else copy_tensor(c) for k, c in enumerate(trial.cotangents)])
        except UserCodeError as error:
            return self._raises(trial, said, error)
        return self._compared(trial, said, missing, got)

    def _compared(self, trial: Trial, said: str, missing: set[int], got: list[Tensor | None]) -> Finding | None:
        zeros = [c * 0 if k in missing else copy_tensor(c) for k, c in enumerate(trial.cotangents)]
        try:
            expected = trial.evaluator.vjp(trial.evaluator.forward(), zeros)
        except UserCodeError:
            return None
        gap = largest_gap([leaf.path for leaf in trial.evaluator.wanted], got, expected, gradient_scales(trial.probe))
        return None if gap is None else self._wrong(trial, said, gap)

    def _raises(self, trial: Trial, said: str, error: UserCodeError) -> Finding | None:
        probe, none = trial.probe, "NoneType" in str(error.error)
        if not none and probe.explained("", "PB604"):
            return None
        return self.finding(
            probe,
            f"{probe.backward_name} raises when {said}{trial.setting}",
            evidence=[Evidence(f"backward when {said}{trial.setting}", error.short, "the gradient, as for zeros in its place")],
            cause="grad_output is None there (set_materialize_grads(False)) and is used as a tensor" if none else None,
            certain=none,
            fix="Ask `if grad_output is not None` for each output, or leave out ctx.set_materialize_grads(False).",
        )

    def _wrong(self, trial: Trial, said: str, gap: Gap) -> Finding:
        probe = trial.probe
        name = gradient_name(gap.path)
        return self.finding(
            probe,
            f"{probe.backward_name} returns a wrong {name} when {said}{trial.setting}",
            evidence=[replace(gap.evidence(f"{name} when {said}{trial.setting}"), expected=f"{gap.expected}, as for zeros")],
            attachments=gap.picture(),
            cause="a branch on `is None` drops the terms of other outputs",
            fix="Let each output's gradient add its own terms, whatever the others are.",
            path=gap.path,
        )
