"""PB803."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ... import _compat
from ...report.finding import Finding
from ..base import Check
from ..compare import Gap, largest_gap
from ..evaluate import Arguments, Evaluator, UserCodeError
from ..gpu import on_cuda, refusal
from ..keeping import owner
from ..probe import Probe
from ..tensors import copy_tensor, differentiable
from ..words import gradient_name


class WrongStream(Check):
    """On a stream other than the default one the op reads its arguments before they are written, or returns before it has computed.

    Why it matters:
        Data loaders that prefetch, pipelines and CUDA graphs run on side streams; the result is then wrong now and then, and never under a debugger.

    How it is measured:
        With ``--device cuda``: on a side stream that is kept busy, inputs (and then the cotangents) are written late, the op is called at once, and
        its results are read on that stream. They must be those of an undisturbed call.

    Example:
        A kernel launched on stream 0, or on a stream of its own without ``wait_stream``.

    Instead:
        Launch on ``torch.cuda.current_stream()``; around a stream of your own, ``wait_stream`` before and after, and ``record_stream``.
    """

    code = "PB803"
    name = "wrong-stream"
    severity = "error"
    needs = ("backward",)
    tier = "gpu"

    def run(self, probe: Probe) -> Iterator[Finding]:
        evaluator = on_cuda(probe)
        try:
            outcome = evaluator.forward()
            cotangents = probe.cotangents(outcome)
            expected = [y.detach().clone() for y in outcome.live]
            gradients = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
            torch.cuda.synchronize()
            late = _late_forward(evaluator)
            gap = largest_gap(outcome.paths, late, expected)
            if gap is not None:
                yield self._wrong(probe, "forward", "the output" if gap.path == "output" else gap.path, gap)
                return
            gap = largest_gap([leaf.path for leaf in evaluator.wanted], _late_backward(evaluator, cotangents), gradients)
        except UserCodeError as error:
            raise refusal(error) from None
        if gap is not None:
            yield self._wrong(probe, "backward", gradient_name(gap.path), gap)

    def _wrong(self, probe: Probe, stage: str, what: str, gap: Gap) -> Finding:
        return self.finding(
            probe,
            f"{owner(probe)}.{stage} does not run on the current stream: {what} is computed from what was there before",
            location=probe.forward_location if stage == "forward" else probe.backward_location,
            evidence=[gap.evidence("on a side stream whose work is late")],
            attachments=gap.picture(what.removeprefix("the ")),
            cause="kernels are launched on another stream, which does not wait for the current one",
            fix="launch on torch.cuda.current_stream(), or wait_stream before and after",
            path=gap.path if stage == "backward" else None,
        )


def _late_forward(evaluator: Evaluator) -> list[Tensor]:
    """Return the outputs of a call whose inputs are written while the call has long returned to Python."""
    arguments, write = _blank(evaluator)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        _compat.gpu_delay()()
        write()
        found = [y.detach().clone() for y in evaluator.forward(arguments).live]
    torch.cuda.synchronize()
    return found


def _blank(evaluator: Evaluator) -> tuple[Arguments, Callable[[], None]]:
    arguments = evaluator.arguments()
    values = [t.detach().clone() for t in arguments.tensors]
    floating = [(t, v) for t, v in zip(arguments.tensors, values, strict=True) if differentiable(t)]

    def put(source: Callable[[Tensor], Tensor]) -> None:
        with torch.no_grad():
            for tensor, value in floating:
                tensor.detach().copy_(source(value))

    put(torch.zeros_like)
    return arguments, lambda: put(lambda value: value)


def _late_backward(evaluator: Evaluator, cotangents: list[Tensor]) -> list[Tensor | None]:
    """Return the gradients for cotangents that are written late; backward runs on the stream of its forward."""
    late = [torch.zeros_like(c) for c in cotangents]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        outcome = evaluator.forward()
        _compat.gpu_delay()()
        for empty, cotangent in zip(late, cotangents, strict=True):
            empty.copy_(cotangent)
        found = [None if g is None else g.detach().clone() for g in evaluator.vjp(outcome, late)]
    torch.cuda.synchronize()
    return found
