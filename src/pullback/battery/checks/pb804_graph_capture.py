"""PB804."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...report.clean import clean
from ...report.finding import Evidence, Finding
from ..base import Check
from ..compare import Gap, largest_gap
from ..evaluate import Evaluator, UserCodeError
from ..gpu import on_cuda, refusal
from ..keeping import owner
from ..probe import Probe
from ..tensors import copy_tensor
from ..words import gradient_name

WARM_UPS = 3


class GraphCapture(Check):
    """The op cannot be captured in a CUDA graph, or the replayed graph gives other results.

    Why it matters:
        ``torch.compile(mode="reduce-overhead")``, serving engines and small models use CUDA graphs; an op that synchronises cannot be part of one.

    How it is measured:
        With ``--device cuda``: forward and backward are captured after three warm-up calls, the inputs are overwritten with others, and the
        replayed results are compared with a plain call on those.

    Example:
        ``x.max().item()``, ``.cpu()``, ``.nonzero()``, a mask as an index; a value computed on the host and passed to the kernel.

    Instead:
        Stay on the device: ``torch.where`` instead of indexing by a mask, a tensor instead of a Python number.
    """

    code = "PB804"
    name = "graph-capture"
    severity = "note"
    needs = ("backward",)
    stage = 4
    tier = "gpu"

    def run(self, probe: Probe) -> Iterator[Finding]:
        evaluator = on_cuda(probe)
        others = {leaf.path: leaf.template * 0.75 for leaf in evaluator.wanted}
        try:
            outcome = evaluator.forward(values=others)
            cotangents = probe.cotangents(outcome)
            outputs = [y.detach().clone() for y in outcome.live]
            gradients = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
        except UserCodeError as error:
            raise refusal(error) from None
        try:
            captured, got = _replayed(evaluator, cotangents, others)
        except (UserCodeError, RuntimeError) as error:
            yield self._refuses(probe, error)
            return
        gap = largest_gap(outcome.paths, captured, outputs)
        if gap is None:
            gap = largest_gap([leaf.path for leaf in evaluator.wanted], got, gradients)
            if gap is not None:
                yield self._differs(probe, "backward", gradient_name(gap.path), gap)
            return
        yield self._differs(probe, "forward", "the output" if gap.path == "output" else gap.path, gap)

    def _refuses(self, probe: Probe, error: Exception) -> Finding:
        return self.finding(
            probe,
            f"{owner(probe)} cannot be captured in a CUDA graph",
            status="unsupported",
            location=probe.forward_location,
            evidence=[Evidence("torch.cuda.graph around forward and backward", got=clean(error, limit=300), expected="a graph")],
            cause="something waits for the device, or allocates outside of torch",
            fix="keep values on the device: torch.where instead of masks as indices, tensors instead of .item()",
        )

    def _differs(self, probe: Probe, stage: str, what: str, gap: Gap) -> Finding:
        return self.finding(
            probe,
            f"replayed in a CUDA graph on other values, {owner(probe)}.{stage} gives {what} of the values it was captured with, or garbage",
            severity="warning",
            location=probe.forward_location if stage == "forward" else probe.backward_location,
            evidence=[gap.evidence(f"{what}, replayed and called")],
            attachments=gap.picture(what.removeprefix("the ")),
            cause="a value was computed on the host when the graph was captured, or memory was used that torch does not keep for the graph",
            fix="compute it on the device, in tensors that torch allocates",
            path=gap.path if stage == "backward" else None,
        )


def _replayed(evaluator: Evaluator, cotangents: list[Tensor], others: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return outputs and gradients of a graph that was captured on the sample and replayed on other values."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            _once(evaluator, cotangents)
    torch.cuda.current_stream().wait_stream(stream)
    arguments = evaluator.arguments()
    given = [c.clone() for c in cotangents]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        outcome = evaluator.call(arguments)
        found = torch.autograd.grad(outcome.live, outcome.arguments.roots, given, allow_unused=True)
    with torch.no_grad():
        for leaf, tensor in zip(evaluator.leaves, arguments.tensors, strict=True):
            if leaf.path in others:
                tensor.detach().copy_(others[leaf.path])
    graph.replay()
    torch.cuda.synchronize()
    return [y.detach().clone() for y in outcome.live], [None if g is None else g.clone() for g in found]


def _once(evaluator: Evaluator, cotangents: list[Tensor]) -> None:
    outcome = evaluator.forward()
    evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
