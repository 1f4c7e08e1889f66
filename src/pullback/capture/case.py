"""`Case`: one call to check, with what its author declares about the gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..declare import Declaration, declaration_of

Origin = Literal["given", "case", "recorded", "searched"]


@dataclass(frozen=True, slots=True)
class Case:
    """One call of an op: what is called, with what, and what is declared about it.

    Args:
        target: A Function subclass, its `apply`, an op, or any callable or module that uses custom Functions inside.
        args: Positional arguments of the call, without `ctx`.
        kwargs: Keyword arguments of the call.
        declaration: What the author promises; `against` and `declare` lay more over it.
        origin: Who chose the inputs. Findings on ``"searched"`` inputs are guarded more strictly.
        index: Position in the printed list of samples, the ``--case`` number.
        invented: Names of arguments that the search made up and whose contract is unknown (callables, modules, objects).
        only: Codes that this case is for; empty: all.
    """

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    declaration: Declaration = field(default_factory=Declaration)
    origin: Origin = "given"
    index: int = 0
    invented: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def against(self, reference: Callable[..., Any]) -> Case:
        """Return this case with a reference: a callable of the same arguments that computes the same with plain torch."""
        return self.declare(reference=reference)

    def declare(self, **declaration: Any) -> Case:
        """Return this case with a declaration: exact, linear, orders, surrogate, reference, static, reason.

        Raises:
            pullback.declare.DeclarationError: for an unknown key or a value of the wrong type.
        """
        return replace(self, declaration=self.declaration.update("pb.case(...).declare", **declaration))


def case(target: Any, /, *args: Any, **kwargs: Any) -> Case:
    """Return a `Case`: one call of `target` with these arguments, which are the op's own.

    Example:
        >>> import torch, pullback as pb
        >>> class Double(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         return 2 * dy
        >>> pb.case(Double, torch.ones(3)).against(lambda x: x + x).args
        (tensor([1., 1., 1.]),)
    """
    owner = getattr(target, "__self__", target)
    return Case(target, args, kwargs, declaration_of(owner if isinstance(owner, type) else target), origin="case")
