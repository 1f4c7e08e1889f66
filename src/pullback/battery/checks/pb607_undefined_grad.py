"""PB607."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from ... import _compat
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..compare import Gap, gradient_scales, largest_gap
from ..evaluate import UserCodeError
from ..probe import Probe
from ..tensors import copy_tensor
from ..words import gradient_name


class UndefinedGrad(Check):
    """backward crashes, or is wrong, when an output takes no part in the loss.

    Why it matters:
        An output that the loss does not use, or whose consumer returns None, has no gradient. With ``set_materialize_grads(False)`` backward then
        gets None for it; without, zeros.

    How it is measured:
        Each output in turn is left out of the loss, then all but it, then each one's gradient is made undefined by a consumer that returns None. The
        gradients must be those for zeros in its place. What only a consumer that returns None brings about is a warning.

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
        cotangents = probe.cotangents(base)
        names = [base.paths[i] for i in base.carrying]
        if len(names) > 1:
            yield from self._left_out(probe, names, cotangents)
        else:
            yield from self._undefined(probe, names, cotangents)

    def _left_out(self, probe: Probe, names: list[str], cotangents: list[Tensor]) -> Iterator[Finding]:
        blamed: set[str] = set()
        for i, name in enumerate(names):
            for missing in ({i}, set(range(len(names))) - {i}):
                if not missing.isdisjoint(names.index(b) for b in blamed):
                    continue
                said = f"{name} takes no part in the loss" if missing == {i} else f"only {name} takes part in the loss"
                found = self._tried(probe, said, cotangents, missing)
                if found is not None:
                    blamed.update(names[k] for k in missing)
                    yield found
        if not blamed:
            yield from self._undefined(probe, names, cotangents)

    def _undefined(self, probe: Probe, names: list[str], cotangents: list[Tensor]) -> Iterator[Finding]:
        for i, name in enumerate(names):
            outcome = probe.exact.forward()
            ys = list(outcome.live)
            try:
                ys[i] = _compat.undefined_gradient()(ys[i])
            except RuntimeError as error:
                raise Skipped(f"{name} takes no consumer that returns None: {error}") from error
            for index, y in zip(outcome.carrying, ys, strict=True):
                outcome.outputs[index] = y
            said = f"the consumer of {name} returns None"
            try:
                got = probe.exact.vjp(outcome, [copy_tensor(c) for c in cotangents])
                found = self._compared(probe, said, cotangents, {i}, got)
            except UserCodeError as error:
                found = self._raises(probe, said, error)
            if found is not None:
                yield replace(found, severity="warning")
                return

    def _tried(self, probe: Probe, said: str, cotangents: list[Tensor], missing: set[int]) -> Finding | None:
        try:
            got = probe.exact.vjp(probe.exact.forward(), [None if k in missing else copy_tensor(c) for k, c in enumerate(cotangents)])
        except UserCodeError as error:
            return self._raises(probe, said, error)
        return self._compared(probe, said, cotangents, missing, got)

    def _compared(self, probe: Probe, said: str, cotangents: list[Tensor], missing: set[int], got: list[Tensor | None]) -> Finding | None:
        zeros = [c * 0 if k in missing else copy_tensor(c) for k, c in enumerate(cotangents)]
        try:
            expected = probe.exact.vjp(probe.exact.forward(), zeros)
        except UserCodeError:
            return None
        gap = largest_gap([leaf.path for leaf in probe.exact.wanted], got, expected, gradient_scales(probe))
        return None if gap is None else self._wrong(probe, said, gap)

    def _raises(self, probe: Probe, said: str, error: UserCodeError) -> Finding | None:
        none = "NoneType" in str(error.error)
        if not none and probe.explained("", "PB604"):
            return None
        return self.finding(
            probe,
            f"{probe.backward_name} raises when {said}",
            evidence=[Evidence(f"backward when {said}", error.short, "the gradient, as for zeros in its place")],
            cause="grad_output is None there (set_materialize_grads(False)) and is used as a tensor" if none else None,
            certain=none,
            fix="Ask `if grad_output is not None` for each output, or leave out ctx.set_materialize_grads(False).",
        )

    def _wrong(self, probe: Probe, said: str, gap: Gap) -> Finding:
        name = gradient_name(gap.path)
        return self.finding(
            probe,
            f"{probe.backward_name} returns a wrong {name} when {said}",
            evidence=[replace(gap.evidence(f"{name} when {said}"), expected=f"{gap.expected}, as for zeros")],
            attachments=gap.picture(),
            cause="a branch on `is None` drops the terms of other outputs",
            fix="Let each output's gradient add its own terms, whatever the others are.",
            path=gap.path,
        )
