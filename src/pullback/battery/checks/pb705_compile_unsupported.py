"""PB705."""

from __future__ import annotations

from collections.abc import Iterator

from ...report.clean import clean
from ...report.finding import Evidence, Finding
from ..base import Check, Unsupported
from ..compiling import Compilable, attempt, compiled, fresh
from ..keeping import owner
from ..probe import Probe


class CompileUnsupported(Check):
    """torch.compile cannot take the op in one graph.

    Why it matters:
        The graph breaks at the op: what could be fused around it is not, and ``fullgraph=True`` raises.

    How it is measured:
        The op and its backward, compiled with backend "eager" and ``fullgraph=True``.

    Instead:
        Keep forward and backward to torch operators, or wrap what the compiler cannot see by ``torch.library.custom_op``.
    """

    code = "PB705"
    name = "compile-unsupported"
    severity = "note"
    compiler = True
    needs = ("backward", "repeats")
    stage = 4
    tier = "thorough"

    def run(self, probe: Probe) -> Iterator[Finding]:
        op = Compilable(probe)
        try:
            attempt(lambda: op.gradients(compiled(fresh(op.call), "eager")))
        except Unsupported as refusal:
            yield self.finding(
                probe,
                f"torch.compile cannot take {owner(probe)} in one graph",
                status="unsupported",
                evidence=[Evidence("torch.compile(fullgraph=True), backend eager", got=clean(refusal, limit=300), expected="one graph")],
                cause="something in forward or backward cannot be traced",
                fix="wrap it by torch.library.custom_op with register_fake and register_autograd",
            )
