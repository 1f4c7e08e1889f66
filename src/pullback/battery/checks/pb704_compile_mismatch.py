"""PB704."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...report.finding import Finding
from ..base import Check, Unsupported
from ..compare import Gap
from ..compiling import Compilable, attempt, compiled, fresh, gap
from ..keeping import owner
from ..probe import Probe
from ..words import gradient_name

BACKENDS = ("aot_eager", "inductor")


class CompileMismatch(Check):
    """Under torch.compile the op gives other outputs or gradients than without.

    Why it matters:
        Nothing warns: the compiled model trains differently.

    How it is measured:
        Forward and backward, compiled with backends aot_eager and inductor, against the plain call. Graph breaks are allowed here.

    Example:
        A Python side effect in forward that backward relies on; data read through ``.data_ptr()`` of a tensor that the compiler replaced.

    Instead:
        Keep forward and backward functions of their arguments; wrap opaque kernels by ``torch.library.custom_op``.
    """

    code = "PB704"
    name = "compile-mismatch"
    severity = "error"
    compiler = True
    needs = ("backward", "repeats")
    stage = 4
    tier = "thorough"

    def run(self, probe: Probe) -> Iterator[Finding]:
        op = Compilable(probe)
        outputs, gradients = op.both(op.call)
        refusal = None
        for backend in BACKENDS:
            try:
                got = attempt(partial(op.both, compiled(fresh(op.call), backend, fullgraph=False)))
            except Unsupported as error:
                refusal = error
                continue
            found = gap(("output",) * len(outputs), got[0], outputs) or gap(op.paths, got[1], gradients)
            if found is not None:
                yield self._wrong(probe, backend, found)
                return
        if refusal is not None:
            raise refusal

    def _wrong(self, probe: Probe, backend: str, gap: Gap) -> Finding:
        name = gap.path if gap.path == "output" else gradient_name(gap.path)
        return self.finding(
            probe,
            f"{owner(probe)} gives another {name} under torch.compile",
            evidence=[gap.evidence(f"backend {backend}: {name}")],
            cause="something in forward or backward is not a function of its arguments, or reads memory that the compiler moved",
            fix="keep state out of forward and backward; wrap opaque code by torch.library.custom_op",
            attachments=gap.picture(name),
        )
