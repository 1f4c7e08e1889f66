"""Looks at one step in full: what every submodule gives and receives, and the gradient of every parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .watch_calls import can_hold_nan, norm_of, outputs_of
from .watch_hooks import Hook


@dataclass(frozen=True, slots=True)
class Row:
    """What one submodule gave, or one parameter got, in one step.

    Args:
        name: Its path in the module; ``"block (2)"`` for the second call of a submodule.
        kind: ``"module"`` or ``"parameter"``.
        value: Root mean square of the output, or of the parameter.
        zeros: Share of zeros in the output.
        gradient: Root mean square of the gradient; None where none came.
        gradient_zeros: Share of zeros in the gradient.
        bad: How many elements of both are NaN or Inf.
    """

    name: str
    kind: str
    value: float
    zeros: float
    gradient: float | None
    gradient_zeros: float | None
    bad: int


class Look:
    """The hooks of one step.

    Args:
        module: Whose submodules are looked at.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._given: dict[str, Tensor] = {}
        self._received: dict[str, Tensor] = {}
        self._calls: dict[str, int] = {}
        self._handles = [inner.register_forward_hook(Hook(self._note, name, inner)) for name, inner in module.named_modules() if name]

    def remove(self) -> None:
        """Take the hooks off; gradients that still come are kept."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _note(self, name: str, watched: torch.nn.Module, module: torch.nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if torch.compiler.is_compiling() or module is not watched:
            return
        count = self._calls[name] = self._calls.get(name, 0) + 1
        key = name if count == 1 else f"{name} ({count})"
        for i, output in enumerate(outputs_of(result)):
            self._keep(key if i == 0 else f"{key}[{i}]", output)

    def _keep(self, name: str, output: Tensor) -> None:
        self._given[name] = _summary(output)
        if output.requires_grad:
            output.register_hook(lambda gradient: self._received.__setitem__(name, _summary(gradient)))

    def rows(self) -> tuple[Row, ...]:
        """Return what was seen; this waits for the device."""
        rows = [_row(name, "module", given, self._received.get(name)) for name, given in self._given.items()]
        for name, parameter in self._module.named_parameters():
            if can_hold_nan(parameter):
                gradient = parameter.grad
                rows.append(_row(name, "parameter", _summary(parameter), _summary(gradient) if gradient is not None else None))
        return tuple(rows)


def _summary(tensor: Tensor) -> Tensor:
    """Return mean square, share of zeros and number of bad elements of a tensor, as a tensor."""
    with torch.no_grad():
        data = tensor.detach()
        if not can_hold_nan(data) or not data.numel():
            return torch.zeros(3, dtype=torch.float64, device="cpu")
        size = data.numel()
        norm, nonzero, bad = norm_of(data), data.count_nonzero(), size - data.isfinite().sum()
        return torch.stack([norm.double().square() / size, 1 - nonzero.double() / size, bad.double()])


def _row(name: str, kind: str, given: Tensor, received: Tensor | None) -> Row:
    square, zeros, bad = given.tolist()
    if received is None:
        return Row(name, kind, square**0.5, zeros, None, None, int(bad))
    gradient, gradient_zeros, gradient_bad = received.tolist()
    return Row(name, kind, square**0.5, zeros, gradient**0.5, gradient_zeros, int(bad + gradient_bad))
