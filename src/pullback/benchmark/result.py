"""`Bench`: what was measured, of what, on what; it prints, compares, draws and stores itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..report.finding import JSON
from ..views.files import write_form
from .spread import Spread

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Run:
    """One contender at one size.

    Args:
        name: The contender.
        forward: Seconds of a call.
        backward: Seconds of its backward, release of its results included; None where nothing has a gradient.
        time: Seconds of both.
        ratio: Time of the benched op over this contender's, round by round; None for the op itself.
        forward_ratio: The same for forward alone.
        backward_ratio: The same for backward alone.
        of_limit: Time over that of the plain copy that moves the bytes which the leanest contender must move, round by round.
        kept: Bytes kept for backward beside arguments, parameters and outputs; each block of memory once, tensors hidden on ctx too.
        peak: Most bytes in use at once during forward and backward, beyond those before.
        moved: Bytes that must move: arguments, outputs, cotangents, gradients and all that is kept, each once.
        flops: Operations of matrix products and convolutions; 0 where torch counts none.
    """

    name: str
    forward: Spread
    backward: Spread | None
    time: Spread
    ratio: Spread | None = None
    forward_ratio: Spread | None = None
    backward_ratio: Spread | None = None
    of_limit: Spread | None = None
    kept: int = 0
    peak: int = 0
    moved: int = 0
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """All contenders with the same inputs.

    Args:
        size: Elements asked for; 0 where the inputs were taken as they are.
        elements: Elements of the largest differentiated argument.
        inputs: The arguments, in words.
        runs: One for each contender, the benched op first.
        overhead: Whether the inputs are so small that what is measured is the cost of a call.
        rounds: How often every contender took its turn.
        copy_rate: Bytes a second of a plain copy of as many bytes as must move; 0 where it was not measured.
        product_rate: FLOP/s of a matrix product; 0 where it was not measured.
    """

    size: int
    elements: int
    inputs: str
    runs: tuple[Run, ...]
    overhead: bool = False
    rounds: int = 0
    copy_rate: float = 0.0
    product_rate: float = 0.0

    def run(self, name: str) -> Run | None:
        """Return the run of that contender."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def limit(self) -> float:
        """Seconds that forward and backward take at least: the bytes at the copy's rate, or the products at theirs."""
        bytes_ = min((run.moved for run in self.runs), default=0)
        flops = min((run.flops for run in self.runs if run.flops), default=0)
        return max(bytes_ / self.copy_rate if self.copy_rate else 0.0, flops / self.product_rate if self.product_rate else 0.0)


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of `pullback.bench`. Print it.

    Args:
        subject: Qualified name of the benched op.
        names: The contenders; the benched op is the first.
        points: By size, smallest first; before them the overhead of a call.
        notes: What a reader must know: where inputs come from, what could not be measured, which contender computes something else.
        environment: Versions, device, threads, dtype.
        schema: Version of the JSON form.
    """

    subject: str
    names: tuple[str, ...]
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    environment: Mapping[str, JSON] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def sizes(self) -> tuple[Point, ...]:
        """The points without that of the overhead."""
        return tuple(point for point in self.points if not point.overhead)

    def to_json(self, *, indent: int | None = 1) -> str:
        """Return it as JSON text; `from_json` reads it back."""
        return json.dumps(asdict(self), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Bench:
        """Return what `to_json` wrote.

        Raises:
            ValueError: if the text is no such result, or one of a newer schema.
        """
        try:
            data = json.loads(text)
            schema = data["schema"]
            if not isinstance(schema, int) or schema > SCHEMA:
                raise ValueError(f"this benchmark has schema {schema!r}, newer than {SCHEMA}: update pullback to read it")
            points = tuple(_point(point) for point in data["points"])
            return cls(data["subject"], tuple(data["names"]), points, tuple(data["notes"]), data["environment"], schema)
        except (TypeError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"not a benchmark that pullback saved: {type(error).__name__}: {error}") from error

    def to_text(self) -> str:
        """Return the table."""
        from .text import table_text

        return table_text(self)

    def to_svg(self) -> str:
        """Return time over size, forward, backward and memory as one SVG picture."""
        from .plot import picture

        return picture(self)

    def sections(self) -> list[dict[str, Any]]:
        """Return the charts as sections of a report page."""
        from .plot import sections

        return sections(self)

    def failures(self, conditions: str, baseline: Bench | None = None) -> list[str]:
        """Return what is beyond a limit, in words; empty where nothing is.

        Args:
            conditions: ``"time>1.1, kept>1"``: ratios of time (forward and backward), forward, backward, kept, peak or overhead (the cost of a call)
                that are too much. A time counts where the median and three rounds of four are beyond.
            baseline: What an earlier benchmark of the op found; None: the ratios are those to the contenders.

        Raises:
            ValueError: for other conditions, or a baseline of another op or of other sizes.
        """
        from . import gate

        comparisons = gate.to_contenders(self) if baseline is None else gate.to_baseline(self, baseline)
        return gate.failures(comparisons, gate.parse(conditions))

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends with .json, .txt or .svg.

        Raises:
            ValueError: for another ending.
        """
        write_form("Bench", {".json": self.to_json, ".txt": self.to_text, ".svg": self.to_svg}, path)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<pullback.Bench of {self.subject} against {', '.join(self.names[1:]) or 'nothing'}, {len(self.sizes)} sizes>"

    def __rich__(self) -> Any:
        from .text import renderable

        return renderable(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        bundle = {"text/plain": self.to_text()}
        return bundle | {"image/svg+xml": self.to_svg()} if self.sizes else bundle


def _point(data: dict[str, Any]) -> Point:
    return Point(**{**data, "runs": tuple(_run(run) for run in data["runs"])})


def _run(data: dict[str, Any]) -> Run:
    values: dict[str, Any] = {key: Spread(**value) if isinstance(value, dict) else value for key, value in data.items()}
    return Run(**values)
