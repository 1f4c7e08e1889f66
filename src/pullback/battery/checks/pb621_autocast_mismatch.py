"""PB621."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import Tensor

from ...capture.calls import Function
from ...report.finding import JSON, Evidence, Finding
from .. import numeric
from ..base import Check, Skipped
from ..evaluate import Evaluator, Outcome, UserCodeError
from ..keeping import owner
from ..mixed import Mixed, mixed_dtypes
from ..picture import differences, picture
from ..probe import Probe
from ..tensors import copy_tensor
from ..truth import eager
from ..words import gradient_name

FACTOR = 8.0
ROUNDINGS = 16
"""Of the low precision, relative to the norm of the gradient: no chain of a few products in it comes near."""
LOW = (torch.bfloat16, torch.float16)


class AutocastMismatch(Check):
    """Under autocast the op raises, or its gradient is wrong.

    Why it matters:
        Whoever wraps a model in ``torch.autocast`` meets it: autocast is on in forward and off in backward, so that saved bfloat16 activations meet
        float32 weights there.

    How it is measured:
        Forward runs on float32 inputs under autocast to bfloat16, and then to float16, backward outside of it, as in training. Its gradient must be
        as near to the float32 gradient as eager's is, within a factor of 8. Raising is an error where the Function declares autocast by
        ``torch.amp.custom_fwd``, else a note. Then, without autocast, one input is of bfloat16 and the others of float32, and the other way round:
        where outputs come out in bfloat16, which promotion would not give, a backward that raises is a warning.

    Example:
        ``ctx.save_for_backward(x, w); return x @ w`` and ``grad_output @ w.t()``: bfloat16 times float32.

    Instead:
        ``@torch.amp.custom_fwd(device_type=..., cast_inputs=...)`` with ``custom_bwd``, or cast in backward: ``w.to(grad_output.dtype)``.

    References:
        pytorch/ao#4616, fla-org/flash-linear-attention#70.
    """

    code = "PB621"
    name = "autocast-mismatch"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        evaluator = probe.native.cast(torch.float32)
        try:
            outcome = evaluator.forward()
            cotangents = probe.cotangents(outcome)
            plain = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
        except UserCodeError:
            raise Skipped("the op does not take float32") from None
        for dtype in LOW:
            found = list(self._under(probe, evaluator, outcome, cotangents, plain, dtype))
            yield from found
            if found:
                break
        for mixed in mixed_dtypes(probe):
            yield self._of_two_dtypes(probe, mixed)

    def _of_two_dtypes(self, probe: Probe, mixed: Mixed) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} raises with {mixed.said}, which forward takes and casts",
            severity="warning",
            evidence=[
                Evidence(f"{mixed.said}; the output is bfloat16, so that forward casts", mixed.error.short, "a gradient for each input in its dtype")
            ],
            cause="forward casts one input to the dtype of another; backward multiplies the saved ones as they came",
            fix="Cast in backward as in forward (weight.to(grad_output.dtype)), or save what forward has cast.",
        )

    def _under(self, probe: Probe, evaluator: Evaluator, outcome: Outcome, cotangents: list[Tensor], plain: list[Tensor | None], dtype: torch.dtype):
        try:
            under, got = _under_autocast(evaluator, cotangents, dtype)
        except UserCodeError as error:
            yield self._raises(probe, error, dtype)
            return
        if probe.repeats.forward_draws or probe.declaration.deliberate or len(under.outputs) != len(outcome.outputs):
            return
        yield from self._wrong(probe, evaluator, cotangents, plain, got, dtype)

    def _raises(self, probe: Probe, error: UserCodeError, dtype: torch.dtype) -> Finding:
        declared = any(_declares_amp(f) for f in probe.baseline.functions)
        return self.finding(
            probe,
            f"{owner(probe)}.{error.stage} raises under autocast",
            severity="error" if declared else "note",
            status="fail" if declared else "unsupported",
            location=probe.forward_location if error.stage == "forward" else None,
            evidence=[
                Evidence(f"float32 inputs, forward under autocast to {_name(dtype)}, backward outside of it", got=error.short, expected="a gradient")
            ],
            cause="dtypes mix: autocast changes the dtype of what forward computes, and is off in backward",
            fix="@torch.amp.custom_fwd(device_type=...) and @torch.amp.custom_bwd(device_type=...), or cast to grad_output's dtype in backward",
        )

    def _wrong(
        self, probe: Probe, evaluator: Evaluator, cotangents: list[Tensor], plain: list[Tensor | None], got: list[Tensor | None], dtype: torch.dtype
    ):
        floor = ROUNDINGS * torch.finfo(dtype).eps / 2
        for i, (leaf, a, b) in enumerate(zip(evaluator.wanted, got, plain, strict=True)):
            error = _distance(a, b)
            if error <= floor:
                continue
            stick = _eager_distance(evaluator, cotangents, i, dtype)
            if stick is None or not error > max(floor, FACTOR * stick) or probe.explained(leaf.path, "PB501", "PB503", "PB601", "PB602"):
                continue
            yield self.finding(
                probe,
                f"{probe.backward_name} returns a wrong gradient for {leaf.path} under autocast",
                evidence=[
                    Evidence(
                        f"{gradient_name(leaf.path)} differs from the float32 gradient by {error:.1e} of its norm; eager's by {stick:.1e}",
                        error=error,
                        tolerance=max(floor, FACTOR * stick),
                        why_tolerance=f"eight times eager's own error under autocast, at least sixteen roundings of {_name(dtype)}",
                    )
                ],
                cause="what forward saves under autocast is not what backward, outside of it, takes it for",
                fix="@torch.amp.custom_fwd(device_type=...) and @torch.amp.custom_bwd(device_type=...), or cast explicitly",
                path=leaf.path,
                attachments=_picture(leaf.path, a, b, max(floor, FACTOR * stick)),
            )


def _under_autocast(evaluator: Evaluator, cotangents: list[Tensor], dtype: torch.dtype) -> tuple[Outcome, list[Tensor | None]]:
    device = next((leaf.template.device.type for leaf in evaluator.wanted), "cpu")
    with torch.autocast(device if device == "cuda" else "cpu", dtype=dtype):
        outcome = evaluator.forward()
    live = outcome.live
    if len(live) != len(cotangents) or any(y.shape != c.shape for y, c in zip(live, cotangents, strict=True)):
        return outcome, [None] * len(evaluator.wanted)
    return outcome, evaluator.vjp(outcome, [copy_tensor(c.to(y.dtype)) for y, c in zip(live, cotangents, strict=True)])


def _eager_distance(evaluator: Evaluator, cotangents: list[Tensor], index: int, dtype: torch.dtype) -> float | None:
    plain = eager(evaluator)
    try:
        right = plain.vjp(plain.forward(), [copy_tensor(c) for c in cotangents])[index]
        low = _under_autocast(plain, cotangents, dtype)[1][index]
    except (UserCodeError, ValueError):
        return None
    return None if right is None or low is None else _distance(low, right)


def _picture(path: str, got: Tensor | None, expected: Tensor | None, allowed: float) -> dict[str, JSON]:
    if got is None or expected is None or got.shape != expected.shape:
        return {}
    apart = differences(got, expected)
    limit = allowed * float(expected.abs().max())
    return picture(gradient_name(path), apart, limit) if bool((apart > limit).any()) else {}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _distance(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None:
        return 0.0 if a is b else 1.0
    if a.numel() == 0 or a.shape != b.shape:
        return 0.0
    a, b = numeric.flat([a]), numeric.flat([b])
    if not bool(torch.isfinite(b).all()):
        return 0.0
    return float(torch.nan_to_num((a - b).norm() / b.norm().clamp_min(torch.finfo(torch.float32).tiny), nan=torch.inf))


def _declares_amp(function: type[Function]) -> bool:
    """Whether forward is wrapped by torch.amp.custom_fwd for the CPU."""
    forward = inspect.getattr_static(function, "forward")
    forward = getattr(forward, "__func__", forward)
    code = getattr(forward, "__code__", None)
    if code is None or not code.co_filename.replace("\\", "/").endswith("torch/amp/autocast_mode.py"):
        return False
    return inspect.getclosurevars(forward).nonlocals.get("device_type") == "cpu"
