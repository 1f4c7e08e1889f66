"""What a watch keeps of one call of a module, so that it can be made once more: arguments, random state, autocast, cotangents."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..report.finding import Location
from ..trees import leaves
from .places import location

SMALL = 16_384
RandomState = tuple[Tensor, Tensor | None]
_ANY_AUTOCAST = _compat.any_autocast()
_LOW = (torch.float16, torch.bfloat16)


class Call:
    """One call of a watched module.

    Args:
        module: What was called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        parameters: The parameters of the module.
        frame: The innermost frame of the reader's code.
        random: The random state when it began; None where the module was not seen to use any.
    """

    __slots__ = ("_at", "_parameters", "_versions", "args", "autocast", "cotangents", "grad_mode", "kwargs", "module", "norm", "random", "returned")

    def __init__(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        parameters: list[Tensor],
        frame: FrameType | None,
        random: RandomState | None,
    ) -> None:
        self.module, self.args, self.kwargs, self.random = module, args, kwargs, random
        self._at = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None
        self.grad_mode = torch.is_grad_enabled()
        self.autocast = _autocast() if _ANY_AUTOCAST() else ()
        self._parameters = parameters
        self._versions = self._written()
        self.norm: Tensor | float | None = None
        self.cotangents: dict[int, Tensor] = {}
        self.returned: list[Tensor] = []

    @property
    def place(self) -> Location | None:
        """The line that called."""
        return location(*self._at) if self._at is not None else None

    def unchanged(self) -> bool:
        """Whether parameters and arguments are what they were when the call returned, as far as torch counts writes."""
        return self._versions == self._written()

    def _written(self) -> list[int]:
        ends = (*self._parameters[:1], *self._parameters[-1:], *self.args)
        return [_compat.version_of(tensor) for tensor in ends if isinstance(tensor, Tensor)]

    def measure(self, outputs: list[Tensor]) -> None:
        """Take the norm of the outputs, without waiting for the device."""
        found = [norm_of(output) for output in outputs]
        self.norm = found[0] if len(found) == 1 else None if not found else torch.stack([norm.float() for norm in found]).norm()

    def listen(self, outputs: list[Tensor], arrived: Callable[[Call], None]) -> bool:
        """Keep the cotangent of every output when it comes, and tell `arrived`; return whether one can come."""
        listening = False
        for i, output in enumerate(outputs):
            if output.requires_grad:
                listening = True
                _compat.on_gradient(output, _listener(self, i, arrived))
        if listening and not self._parameters:
            self._hear_arguments()
        return listening

    def _hear_arguments(self) -> None:
        """Keep the gradients of the arguments, where there is no parameter whose gradient tells."""
        for tensor in outputs_of((self.args, list(self.kwargs.values()))):
            if tensor.requires_grad and tensor.grad_fn is not None:
                _compat.on_gradient(tensor, self.returned.append)

    def gradient_norm(self) -> Tensor | None:
        """Return the 2-norm of the gradients of the arguments, for a module without parameters."""
        if self._parameters:
            return None
        leaves = [tensor.grad for tensor in outputs_of((self.args, list(self.kwargs.values()))) if tensor.is_leaf and tensor.grad is not None]
        return grouped_norm([*self.returned, *leaves])

    @contextlib.contextmanager
    def conditions(self) -> Iterator[None]:
        """A context with the grad mode, autocast and random state of the call, as far as torch has them; afterwards all is as before."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_random_again(self.random or random_state(self._parameters)))
            stack.enter_context(torch.set_grad_enabled(self.grad_mode))
            for device, enabled, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            yield


def _listener(call: Call, i: int, arrived: Callable[[Call], None]) -> Callable[[Tensor], None]:
    def listen(cotangent: Tensor) -> None:
        call.cotangents[i] = cotangent
        arrived(call)

    return listen


def outputs_of(result: Any) -> list[Tensor]:
    """Return the tensors of a result that can hold NaN, in the order of its leaves."""
    found = [result] if isinstance(result, Tensor) else [leaf for _, leaf in leaves(result) if isinstance(leaf, Tensor)]
    return [tensor for tensor in found if can_hold_nan(tensor)]


def can_hold_nan(tensor: Tensor) -> bool:
    """Whether a tensor is of a kind whose elements are looked at."""
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.layout == torch.strided and tensor.device.type != "meta"


def norm_of(tensor: Tensor) -> Tensor:
    """Return the 2-norm of a tensor as a tensor, in single precision at least."""
    tensor = tensor.detach()
    return torch.linalg.vector_norm(tensor, dtype=torch.float32) if tensor.dtype in _LOW else torch.linalg.vector_norm(tensor)


class Gradients:
    """The gradients of some parameters, measured together where they are small, and where they lie where they are large."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self._parameters = parameters
        kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
        self._alike = len(kinds) == 1 and not any(dtype in _LOW for dtype, _ in kinds) and all(p.numel() <= SMALL for p in parameters)

    def norm(self) -> Tensor | None:
        """Return the 2-norm of all gradients together; None where there are none."""
        found = [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None]
        if not found:
            return None
        if self._alike:
            with contextlib.suppress(RuntimeError):  # a gradient may be sparse, or of a dtype of its own
                return torch.linalg.vector_norm(_compat.flattened(found).detach())
        return grouped_norm(found)


def grouped_norm(gradients: list[Tensor]) -> Tensor | None:
    """Return the 2-norm of dense tensors of any dtypes together; None where there are none."""
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for gradient in gradients:
        if gradient.layout == torch.strided:
            groups.setdefault((gradient.dtype, gradient.device), []).append(gradient.detach())
    found: list[Tensor] = []
    for (dtype, _), alike in groups.items():
        if dtype in _LOW:
            found += [norm_of(gradient) for gradient in alike]
            continue
        together = [gradient for gradient in alike if gradient.numel() <= SMALL]
        alone = [gradient for gradient in alike if gradient.numel() > SMALL]
        found += [torch.linalg.vector_norm(_compat.flattened(together))] if together else []
        found += _compat.norms(alone) if alone else []
    if len(found) < 2:
        return found[0] if found else None
    return torch.linalg.vector_norm(torch.stack([norm.float().to(found[0].device) for norm in found]))


def kind_of(tensors: list[Tensor]) -> str:
    """Return ``"NaN"`` or ``"Inf"``, whichever worse is in the tensors; empty where all is finite."""
    flags = [(bool(tensor.isnan().any()), bool(tensor.isinf().any())) for tensor in tensors]
    return "NaN" if any(nan for nan, _ in flags) else "Inf" if any(inf for _, inf in flags) else ""


def is_suspect(norm: Tensor | float | None) -> bool:
    """Whether a norm says that something may not be finite; this waits for the device."""
    return norm is not None and not math.isfinite(float(norm))


def _autocast() -> tuple[tuple[str, bool, torch.dtype], ...]:
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    return tuple((device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices)


def random_state(parameters: list[Tensor]) -> RandomState:
    """Return torch's random state, of the host and of the device that holds the parameters."""
    cuda = torch.cuda.get_rng_state(parameters[0].device) if parameters and parameters[0].is_cuda else None
    return torch.get_rng_state(), cuda


@contextlib.contextmanager
def _random_again(state: RandomState) -> Iterator[None]:
    cpu, cuda = state
    before = torch.get_rng_state(), torch.cuda.get_rng_state_all() if cuda is not None else None
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        if before[1] is not None:
            torch.cuda.set_rng_state_all(before[1])
