"""`pb.keep` and `pb.sample`: the two values that an op's author makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Kept(NamedTuple):
    """An op's output together with inner values that its rules may name."""

    out: Any
    values: dict[str, Any]


def keep(out: T, /, **values: Any) -> T:
    """Return `out` from an op's body, with inner values that rules may name.

    A value is kept for backward only if a rule that is wanted names it. A floating value gets an output of its own in the autograd graph, so that
    second derivatives through it are right where rules with ``of=`` say how, and raise where none does. Called by itself, a body returns the pair.

    Args:
        out: The op's output.
        **values: Tensors (or None, or plain numbers) by name.

    Example:
        >>> import torch, pullback as pb
        >>> @pb.op
        ... def square_exp(x):
        ...     e = torch.exp(x)
        ...     return pb.keep(e * e, e=e)
        >>> @square_exp.vjp("x")
        ... def _(dy, e):
        ...     return 2 * e * e * dy
        >>> square_exp(torch.zeros(2))
        tensor([1., 1.])
    """
    return Kept(out, values) if values else out  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Sample:
    """The arguments of one call, for checks and benchmarks."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def sample(*args: Any, **kwargs: Any) -> Sample:
    """Return the arguments of one call, to be yielded by a function under ``@op.samples``.

    Example:
        >>> import torch, pullback as pb
        >>> pb.sample(torch.ones(2), dim=0).kwargs
        {'dim': 0}
    """
    return Sample(args, kwargs)
