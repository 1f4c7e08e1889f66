"""What is known about one parameter: scores per kind, a rank, constants it is compared with, attributes read from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KIND_ORDER = (
    "tensor",
    "index",
    "mask",
    "float",
    "int",
    "bool",
    "str",
    "ints",
    "tensors",
    "none",
    "default",
    "callable",
    "callables",
    "module",
    "group",
    "dtype",
    "device",
    "instance",
    "object",
    "dict",
)


@dataclass(slots=True)
class Trait:
    """Evidence for one parameter, added up from independent sources of which none decides.

    Args:
        scores: Weight per kind.
        rank: Exact number of dimensions where the code unpacks the shape.
        least: Least number of dimensions seen in indexing.
        draws: How values might be drawn, as (kind, draw), in the order seen.
        usual: A value or rank by kind, suggested by the name.
        defaults: The signature's default by kind.
        constants: Values it is compared with.
        classes: Classes that the code asks whether it belongs to.
        attributes: Attributes read from it, in the order seen.
        optional: Whether None is plainly allowed.
        grad: False where its gradient is literally always None, True where it never is, None if unknown.
        square: Whether the last two sizes should be equal.
        members: Number of members where the code unpacks a list.
        arity: Most arguments it is called with.
        refused: Why no value may be invented.
        role: The most telling role it has in a call: dim, weight, shape, ...
        shape: Its sizes where the code states them.
        filled: Whether the code stores into it or asks whether a key is in it.
        steering: Whether the code branches on it.
        cuts: How long its last axis must be for the pieces that the code takes of it: 3 and 7 for ``x[..., 3:7]``.
        alike: Parameters of which the same piece is taken and combined with one of it, entry by entry: they have as many dimensions.
    """

    scores: dict[str, float] = field(default_factory=dict)
    rank: int | None = None
    least: int = 0
    draws: list[tuple[str, str]] = field(default_factory=list)
    usual: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)
    classes: list[type] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    optional: bool = False
    grad: bool | None = None
    square: bool = False
    members: int = 0
    arity: int = 0
    refused: str = ""
    filled: bool = False
    steering: bool = False
    role: str = ""
    shape: tuple[int, ...] = ()
    cuts: set[int] = field(default_factory=set)
    alike: set[str] = field(default_factory=set)

    def score(self, kind: str, weight: float) -> None:
        """Add `weight` to a kind."""
        self.scores[kind] = self.scores.get(kind, 0.0) + weight

    def see_rank(self, rank: int) -> None:
        """Note an exact rank; the first one seen counts."""
        if self.rank is None:
            self.rank = rank

    def see_constant(self, value: Any) -> None:
        """Note a value that the parameter is compared with."""
        if value not in self.constants:
            self.constants.append(value)

    def see_attribute(self, name: str) -> None:
        """Note an attribute read from the parameter."""
        if name not in self.attributes:
            self.attributes.append(name)

    def kinds(self) -> list[str]:
        """Return all kinds, likeliest first; ties in the fixed order above."""
        return sorted(KIND_ORDER, key=lambda kind: (-self.scores.get(kind, 0.0), KIND_ORDER.index(kind)))

    def distance(self, kind: str) -> float:
        """Return how far `kind` is from the likeliest one, 0 to 1."""
        top = max(self.scores.values(), default=0.0)
        return min(1.0, (top - self.scores.get(kind, 0.0)) / 3.0)
