"""Where NaN or Inf first appeared, and how that reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..report.finding import Location
from . import measures
from .places import code_at


@dataclass(frozen=True, slots=True)
class Fault:
    """Where NaN or Inf first appeared.

    Args:
        kind: ``"NaN"`` or ``"Inf"``.
        phase: ``"forward"`` or ``"backward"`` where one operation made it out of finite values; ``"argument"`` and ``"parameter"`` where the
            module was given it; ``"outside"`` where it came in with the cotangent; ``"unlocated"``.
        op: The operation, ``"log"``, or a custom Function's method, ``"Scale.backward"``; else what held it.
        module: The path of the submodule, ``"blocks.3.norm"``; empty for the module itself.
        location: The line.
        text: What was seen, in words.
        since: Where an infinity began that became NaN here.
        step: The step, from 1.
    """

    kind: str
    phase: str
    op: str
    module: str = ""
    location: Location | None = None
    text: str = ""
    since: Location | None = None
    step: int = 0


def shown(fault: Fault) -> Iterator[str]:
    """Yield a fault as lines: where, the code there, and what was seen."""
    ways = {
        "forward": f"first {fault.kind} in the forward of step {fault.step}, made by {fault.op}",
        "backward": f"first {fault.kind} in the backward of step {fault.step}, made by {fault.op}",
        "argument": f"{fault.kind} comes into step {fault.step} with the argument {fault.op}",
        "parameter": f"{fault.kind} is in the parameter {fault.op} when step {fault.step} begins",
        "outside": f"{fault.kind} comes into the backward of step {fault.step} from outside of the module",
    }
    yield ways.get(fault.phase, f"{fault.kind} in step {fault.step}, not located")
    if fault.location is not None:
        code = code_at(fault.location)
        yield f"  {measures.place(fault.location)}" + (f"   {code}" if code else "")
    yield from (f"  {label:<9} {text}" for label, text in _details(fault) if text)


def _details(fault: Fault) -> Iterator[tuple[str, str]]:
    yield "module", fault.module
    yield "seen", fault.text
    if fault.since is not None and fault.since != fault.location:
        word = "Inf since" if fault.phase == "forward" else "forward"
        yield word, f"{measures.place(fault.since)}   {code_at(fault.since)}".rstrip()
    yield (
        "next",
        {
            "outside": "watch what follows the module too, as a module: pb.watch(model, loss)",
            "parameter": "the update before it went wrong: look at the learning rate, and at the gradient norm of the step before",
        }.get(fault.phase, ""),
    )
