"""PB708."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...report.finding import Finding
from ..base import Check
from ..compiling import Compilable, attempt, gap
from ..keeping import owner
from ..probe import Probe
from ..words import gradient_name


class ExportDropsBackward(Check):
    """torch.export keeps the op's forward and loses its custom backward.

    Why it matters:
        An exported program that is trained further (fine-tuning, quantisation-aware training) uses the derivative of the forward code instead.

    How it is measured:
        The op is exported, the exported program is differentiated, and its gradients are compared with the custom ones.

    Instead:
        ``torch.library.custom_op`` with ``register_autograd`` stays one node in the exported graph.
    """

    code = "PB708"
    name = "export-drops-backward"
    severity = "note"
    compiler = True
    needs = ("backward", "repeats")
    stage = 4
    tier = "thorough"

    def run(self, probe: Probe) -> Iterator[Finding]:
        op = Compilable(probe)
        expected = op.gradients(op.call)

        class Module(torch.nn.Module):
            def forward(self, *inputs: Any) -> Any:
                return op.call(*inputs)

        got = attempt(lambda: op.gradients(torch.export.export(Module(), op.points).module()))
        found = gap(op.paths, got, expected)
        if found is not None:
            yield self.finding(
                probe,
                f"torch.export drops the custom backward of {owner(probe)}",
                evidence=[found.evidence(f"the exported program's {gradient_name(found.path)}")],
                attachments=found.picture(),
                cause="export records the operators of forward; autograd differentiates those",
                certain=True,
                fix="torch.library.custom_op with register_autograd",
            )
