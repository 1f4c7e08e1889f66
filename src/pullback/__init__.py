"""pullback: check, author and explain custom derivatives in PyTorch.

Importing pullback is cheap: nothing below, and no torch, is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._lazy import resolve

if TYPE_CHECKING:
    from . import ops as ops
    from . import testing as testing
    from .authoring.op import Op as Op
    from .authoring.op import keep as keep
    from .authoring.op import op as op
    from .authoring.op import sample as sample
    from .battery.check import check as check
    from .benchmark.call import BenchError as BenchError
    from .benchmark.compare import bench as bench
    from .benchmark.result import Bench as Bench
    from .capture.case import Case as Case
    from .capture.case import case as case
    from .recorder.run import recording as recording
    from .report.finding import CheckRun as CheckRun
    from .report.finding import Edit as Edit
    from .report.finding import Evidence as Evidence
    from .report.finding import Finding as Finding
    from .report.finding import Location as Location
    from .report.report import CheckFailed as CheckFailed
    from .report.report import Report as Report
    from .views.errors import explain_errors as explain_errors
    from .views.graph import Graph as Graph
    from .views.graph import graph as graph
    from .views.saved_memory import Saved as Saved
    from .views.saved_memory import saved as saved
    from .views.trace import Trace as Trace
    from .views.trace import trace as trace
    from .views.watch import Watch as Watch
    from .views.watch import watch as watch

__version__ = "0.1.0"

_HOMES = {
    "Op": "authoring.op",
    "keep": "authoring.op",
    "op": "authoring.op",
    "sample": "authoring.op",
    "check": "battery.check",
    "Bench": "benchmark.result",
    "BenchError": "benchmark.call",
    "bench": "benchmark.compare",
    "Case": "capture.case",
    "case": "capture.case",
    "recording": "recorder.run",
    "CheckRun": "report.finding",
    "Edit": "report.finding",
    "Evidence": "report.finding",
    "Finding": "report.finding",
    "Location": "report.finding",
    "CheckFailed": "report.report",
    "Report": "report.report",
    "explain_errors": "views.errors",
    "Graph": "views.graph",
    "graph": "views.graph",
    "Saved": "views.saved_memory",
    "saved": "views.saved_memory",
    "Trace": "views.trace",
    "trace": "views.trace",
    "Watch": "views.watch",
    "watch": "views.watch",
}
_MODULES = ("ops", "testing")


if not TYPE_CHECKING:  # for a type checker, a name that is not written above is a mistake
    __all__ = [*_HOMES, "__version__"]

    def __getattr__(name: str) -> Any:
        return importlib.import_module(f".{name}", __name__) if name in _MODULES else resolve(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_MODULES, *(name for name in globals() if name.startswith("__"))])
