"""What a watch keeps of one call of a module, so that it can be made once more: arguments, random state, autocast, cotangents."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
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
_FLATTENED = _compat.flattened()
_HOST_STATE = torch.default_generator.get_state
_LOW = (torch.float16, torch.bfloat16)
_COMMON = (torch.float32, torch.float64)


class Call:
    """One call of a watched module.

    Args:
        module: What was called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        parameters: The parameters of the module.
        frame: The innermost frame of the reader's code.
        random: The random state when it began; None where its beginning was not seen.
    """

    autocast: tuple[tuple[str, bool, torch.dtype], ...] = ()
    small: Tensor | None = None
    returned: Sequence[Tensor] = ()
    _outputs: Sequence[Tensor] = ()
    _norm: Tensor | float | None = None

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
        self._at = (frame.f_code, frame.f_lasti) if frame is not None else None
        self.grad_mode = torch.is_grad_enabled()
        if _ANY_AUTOCAST():
            self.autocast = _autocast()
        self._parameters = parameters
        self._versions = self._written()
        self.cotangents: dict[int, Tensor] = {}

    @property
    def place(self) -> Location | None:
        """The line that called."""
        if self._at is None:
            return None
        code, instruction = self._at
        line = next((line for begin, end, line in code.co_lines() if begin <= instruction < end and line is not None), code.co_firstlineno)
        return location(code.co_filename, line)

    def unchanged(self) -> bool:
        """Whether parameters and arguments are what they were when the call returned, as far as torch counts writes."""
        return self._versions == self._written()

    def _written(self) -> list[int]:
        found = [value for value in self.args if isinstance(value, Tensor)]
        found += self._parameters[-1:]
        return _compat.versions_of(found)

    def keep(self, outputs: list[Tensor]) -> None:
        """Keep the outputs if they are small, else their norm, for `norm`; without waiting for the device. One small output is `small` too."""
        if len(outputs) == 1 and (output := outputs[0]).numel() <= SMALL:
            self.small = output.detach()
            self._outputs = (self.small,)
        elif sum(output.numel() for output in outputs) <= SMALL:
            self._outputs = [output.detach() for output in outputs]
        else:
            self._norm = torch.linalg.vector_norm(torch.stack([norm_of(output).float() for output in outputs]))

    @property
    def norm(self) -> float:
        """The 2-norm of the outputs together; this waits for the device."""
        if self._norm is None:
            self._norm = math.hypot(*(float(norm_of(output)) for output in self._outputs))
        return float(self._norm)

    def listen(self, outputs: list[Tensor], arrived: Callable[[Call, int, Tensor], None]) -> bool:
        """Tell `arrived` of the cotangent of every output when it comes; return whether one can come."""
        listening = False
        for i, output in enumerate(outputs):
            if output.requires_grad:
                listening = True
                _compat.on_gradient(output, functools.partial(arrived, self, i))
        if listening and not self._parameters:
            self._hear_arguments()
        return listening

    def _hear_arguments(self) -> None:
        """Keep the gradients of the arguments, where there is no parameter whose gradient tells."""
        returned: list[Tensor] = []
        self.returned = returned
        for tensor in outputs_of((self.args, list(self.kwargs.values()))):
            if tensor.requires_grad and tensor.grad_fn is not None:
                _compat.on_gradient(tensor, returned.append)

    def gradients(self) -> list[Tensor]:
        """Return the gradients that the call has led to: of the parameters, or of the arguments of a module without parameters."""
        tensors = self._parameters or outputs_of((self.args, list(self.kwargs.values())))
        return [*self.returned, *(t.grad for t in tensors if t.is_leaf and t.grad is not None and can_hold_nan(t.grad))]

    def is_bad_at_arguments(self) -> bool:
        """Whether a gradient of an argument is not finite, for a module without parameters."""
        norm = None if self._parameters else grouped_norm(self.gradients())
        return norm is not None and not math.isfinite(float(norm))

    @contextlib.contextmanager
    def conditions(self) -> Iterator[None]:
        """A context with the grad mode, autocast and random state of the call, as far as torch has them; afterwards all is as before."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_random_again(self.random or random_state(self._parameters)))
            stack.enter_context(torch.set_grad_enabled(self.grad_mode))
            for device, enabled, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            yield


def outputs_of(result: Any) -> list[Tensor]:
    """Return the tensors of a result that can hold NaN, in the order of its leaves."""
    if type(result) is Tensor and result.dtype in _COMMON and result.layout is torch.strided and not result.is_meta:
        return [result]
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
        plain = len(kinds) == 1 and all(dtype in _COMMON for dtype, _ in kinds) and sum(p.numel() for p in parameters) <= SMALL
        self._kind = next(iter(kinds)) if plain else None
        self._alike = len(kinds) == 1 and not any(dtype in _LOW for dtype, _ in kinds) and all(p.numel() <= SMALL for p in parameters)

    def norms_with(self, output: Tensor | None) -> tuple[float, float] | None:
        """Return the 2-norm of all gradients together, and that of a small output, if both are finite.

        None also where there are no gradients, and where they are large or of another kind than the output.
        """
        if output is None or self._kind != (output.dtype, output.device):
            return None
        found = [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None]
        if not found:
            return None
        try:
            flat = _FLATTENED(found)
        except RuntimeError:  # a gradient may be sparse, or of a dtype of its own
            return None
        if flat.requires_grad:
            flat = flat.detach()
        norms = torch.linalg.vector_norm(flat).item(), torch.linalg.vector_norm(output).item()
        return norms if sum(norms) < math.inf else None

    def norm(self) -> float | None:
        """Return the 2-norm of all gradients together; None where there are none. This waits for the device."""
        found = [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None]
        if not found:
            return None
        if self._alike:
            try:
                return float(torch.linalg.vector_norm(_FLATTENED(found).detach()))
            except RuntimeError:  # a gradient may be sparse, or of a dtype of its own
                pass
        norm = grouped_norm(found)
        return float(norm) if norm is not None else None


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
        found += [torch.linalg.vector_norm(_FLATTENED(together))] if together else []
        found += _compat.norms(alone) if alone else []
    if len(found) < 2:
        return found[0] if found else None
    return torch.linalg.vector_norm(torch.stack([norm.float().to(found[0].device) for norm in found]))


def kind_of(tensors: list[Tensor]) -> str:
    """Return ``"NaN"`` or ``"Inf"``, whichever worse is in the tensors; empty where all is finite."""
    flags = [(bool(tensor.isnan().any()), bool(tensor.isinf().any())) for tensor in tensors]
    return "NaN" if any(nan for nan, _ in flags) else "Inf" if any(inf for _, inf in flags) else ""


def _autocast() -> tuple[tuple[str, bool, torch.dtype], ...]:
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    return tuple((device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices)


def random_state(parameters: list[Tensor]) -> RandomState:
    """Return torch's random state, of the host and of the device that holds the parameters."""
    cuda = torch.cuda.get_rng_state(parameters[0].device) if parameters and parameters[0].is_cuda else None
    return _HOST_STATE(), cuda


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
