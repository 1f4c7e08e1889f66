"""The table of a recording: per derivative its calls, times, bytes kept, layouts, dtypes and autocast states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..capture.recorded import FunctionRecord, Recording, Signature
from ..report.clean import clean

_SIGNATURES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One derivative.

    Args:
        name: Qualified name.
        calls: Calls of forward, and of backward.
        forward_seconds: Time on the host in all calls of forward.
        backward_seconds: The same for backward.
        kept_bytes: What all calls kept for backward, together.
        signatures: One line for each way in which it was called, most frequent first.
    """

    name: str
    calls: tuple[int, int]
    forward_seconds: float
    backward_seconds: float
    kept_bytes: int
    signatures: tuple[str, ...]


class Profile:
    """What a recording shows without any check; print it, or read `rows`.

    Args:
        recording: The recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.rows = tuple(_row(record) for record in recording.functions)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def to_data(self) -> list[dict[str, Any]]:
        """Return the rows as plain data for JSON."""
        return [
            {
                "name": row.name,
                "calls": row.calls[0],
                "backward_calls": row.calls[1],
                "forward_seconds": row.forward_seconds,
                "backward_seconds": row.backward_seconds,
                "kept_bytes": row.kept_bytes,
                "signatures": list(row.signatures),
            }
            for row in self.rows
        ]

    def _lines(self) -> Iterable[str]:
        if not self.rows:
            yield "no custom Function, op or torch.library op was applied"
        widest = max((len(row.name) for row in self.rows), default=0)
        if self.rows:
            yield f"{'':{widest}}  {'calls':>8}  {'forward':>9}  {'backward':>8}  {'backward':>9}  {'kept a call':>11}   (times on the host)"
        for row in self.rows:
            forward, backward = (f"{1e3 * seconds:.2f} ms" for seconds in (row.forward_seconds, row.backward_seconds))
            kept = _bytes(row.kept_bytes / max(row.calls[0], 1))
            yield f"{clean(row.name):{widest}}  {row.calls[0]:>8}  {forward:>9}  {row.calls[1]:>8}  {backward:>9}  {kept:>11}"
            yield from (f"  {clean(line)}" for line in row.signatures[:_SIGNATURES_SHOWN])
            if len(row.signatures) > _SIGNATURES_SHOWN:
                yield f"  and {len(row.signatures) - _SIGNATURES_SHOWN} other signatures"
        if self.recording.compiled_graphs:
            names = f": {', '.join(clean(name) for name in self.recording.compiled)}" if self.recording.compiled else ""
            yield f"compiled: not recorded ({self.recording.compiled_graphs} graphs of torch.compile{names})"


def _row(record: FunctionRecord) -> Row:
    signatures = sorted(record.signatures, key=lambda s: -s.calls)
    return Row(
        record.name,
        (sum(s.calls for s in signatures), sum(s.backward_calls for s in signatures)),
        sum(s.forward_seconds for s in signatures),
        sum(s.backward_seconds for s in signatures),
        sum(s.kept_bytes * s.calls for s in signatures),
        (*(describe(s) for s in signatures), *(f"{count} × {where}: only counted" for where, count in record.elsewhere.items())),
    )


def describe(signature: Signature) -> str:
    """Return a signature as one line, with what came back as grad_output."""
    parts = [f"{signature.calls} × {', '.join(signature.arguments)}"]
    parts += [f"autocast {signature.autocast}"] if signature.autocast else []
    parts += [] if signature.grad else ["no graph"]
    parts += list(signature.where)
    parts += [f"{signature.raised} raised"] if signature.raised else []
    layouts = ["(" + ", ".join(str(one) for one in layout) + ")" for layout in list(signature.gradients)[:3]]
    more = f" and {len(signature.gradients) - 3} other layouts" if len(signature.gradients) > 3 else ""
    if layouts:
        parts.append(f"grad_output {' or '.join(layouts)}{more}")
    return "; ".join(parts)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
