"""One run of forward and backward: how far it came, what it raised and where."""

from __future__ import annotations

import dis
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType, TracebackType
from typing import Any, Literal

import torch

from ...capture.frames import is_checkers, is_standard, is_torchs
from ...trees import leaves
from .specs import Slot, State, build_state

Stage = Literal["forward", "no-output", "no-grad", "backward", "not-finite", "done"]
COTANGENTS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class UserFrame:
    """A frame of the checked code in a traceback.

    Args:
        code: Its code object.
        line: The failing line in its file.
        span: Start and end (line, column) of the failing expression, where known.
        values: Local variables.
    """

    code: CodeType
    line: int
    span: tuple[int, int, int, int] | None
    values: dict[str, Any]


@dataclass(slots=True)
class Attempt:
    """What happened when forward, then backward, ran on one state.

    Args:
        state: The arguments as specs.
        args: Their values.
        stage: The step that failed, or done.
        error: What it raised.
        message: The error's text, or a sentence for outputs that cannot be differentiated.
        frames: Frames of the checked code, outermost first.
        outputs: Differentiable tensors that forward returned.
        gradients: One entry per differentiated tensor; None where there is no gradient.
        refused: Whether the checked code raised the error itself, by raise or assert.
        inputs: Paths and tensors that were differentiated.
    """

    state: State
    args: tuple[Any, ...] = ()
    stage: Stage = "forward"
    error: BaseException | None = None
    message: str = ""
    frames: list[UserFrame] = field(default_factory=list)
    outputs: tuple[torch.Tensor, ...] = ()
    gradients: tuple[torch.Tensor | None, ...] = ()
    inputs: tuple[tuple[str, torch.Tensor], ...] = ()
    refused: bool = False

    @property
    def passed(self) -> bool:
        """Whether forward and backward ran and everything is finite."""
        return self.stage == "done"

    @property
    def key(self) -> tuple[str, tuple[int, int], str]:
        """The failure, digits masked: two attempts with the same key failed in the same way."""
        last = self.frames[-1] if self.frames else None
        place = (last.line, last.span[3] if last.span else 0) if last else (0, 0)
        return self.stage, place, re.sub(r"\d+", "#", self.message)[:160]


def named_arguments(args: Sequence[Any], slots: Sequence[Slot]) -> list[tuple[str, Any]]:
    """Return (path, argument) for the positional arguments of a call, ``args[0]`` and so on for ``*args``."""
    names: list[tuple[str, Any]] = []
    for slot in slots:
        if slot.star:
            names += [(f"{slot.name}[{i}]", value) for i, value in enumerate(args[slot.index :])]
        elif slot.index < len(args):
            names.append((slot.name, args[slot.index]))
    return names


def differentiated(args: Sequence[Any], slots: Sequence[Slot]) -> tuple[tuple[str, torch.Tensor], ...]:
    """Return (path, tensor) of the top-level tensors, and those in ``*args``, that require grad."""
    return tuple((path, value) for path, value in named_arguments(args, slots) if isinstance(value, torch.Tensor) and value.requires_grad)


def passed_arguments(state: State, slots: Sequence[Slot], args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments to hand to apply: copies of those tensors that the state wants as non-leaves."""
    copies: list[Any] = list(args)
    for spec, slot in zip(state, slots, strict=True):
        specs = spec.items if slot.star else (spec,)
        for i, one in enumerate(specs):
            if one.differentiable and not one.leaf:
                copies[slot.index + i] = args[slot.index + i].clone()
    return tuple(copies)


def output_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors in what apply returned."""
    return tuple(leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor))


def run_forward(function: Any, state: State, slots: Sequence[Slot], seed: int) -> tuple[Attempt, Any]:
    """Run apply once; return the attempt and what apply returned."""
    attempt = Attempt(state)
    try:
        attempt.args = build_state(state, slots, seed)
        attempt.inputs = differentiated(attempt.args, slots)
        torch.default_generator.manual_seed(seed)
        with torch.enable_grad():
            result = function.apply(*passed_arguments(state, slots, attempt.args))
    except BaseException as error:
        if _is_outside(error):
            raise
        _note_error(attempt, error, "forward")
        return attempt, None
    return attempt, result


def run(function: Any, state: State, slots: Sequence[Slot], seed: int) -> Attempt:
    """Run apply and its backward with random signed cotangents."""
    attempt, result = run_forward(function, state, slots, seed)
    if attempt.error is not None:
        return attempt
    tensors = output_tensors(result)
    attempt.outputs = tuple(t for t in tensors if t.requires_grad)
    if not tensors or not any(t.numel() for t in tensors):
        attempt.stage, attempt.message = "no-output", "forward returns no tensor with elements"
        return attempt
    if not attempt.outputs:
        attempt.stage, attempt.message = "no-grad", "no output of forward requires grad"
        return attempt
    try:
        attempt.gradients = _backward(attempt, seed)
    except BaseException as error:
        if _is_outside(error):
            raise
        _note_error(attempt, error, "backward")
        return attempt
    finite = [*attempt.outputs, *(g for g in attempt.gradients if g is not None)]
    if not all(bool(torch.isfinite(t.detach().to_dense() if t.is_sparse else t.detach()).all()) for t in finite):
        attempt.stage, attempt.message = "not-finite", "an output or gradient is not finite"
    elif all(g is None for g in attempt.gradients):
        attempt.stage, attempt.message = "no-grad", "backward returns no gradient"
    else:
        attempt.stage = "done"
    return attempt


def cotangents(outputs: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Return random signed cotangents of the outputs' shapes and dtypes."""
    generator = torch.Generator().manual_seed(seed + 77)
    table = torch.tensor(COTANGENTS, dtype=torch.float64)
    return [table[torch.randint(0, len(COTANGENTS), tuple(o.shape), generator=generator)].to(o.dtype).to(o.device) for o in outputs]


def _backward(attempt: Attempt, seed: int) -> tuple[torch.Tensor | None, ...]:
    tensors = [tensor for _, tensor in attempt.inputs]
    dys = cotangents(attempt.outputs, seed)
    try:
        return torch.autograd.grad(attempt.outputs, tensors, dys, allow_unused=True, retain_graph=True)
    except RuntimeError as error:
        if ".grad()" not in str(error) and "autograd.grad" not in str(error):
            raise
    torch.autograd.backward(attempt.outputs, dys)
    return tuple(tensor.grad for tensor in tensors)


class Interrupted(BaseException):
    """The search's own stop; never caught by the code under search as an Exception, never by the search as a failure."""


def _is_outside(error: BaseException) -> bool:
    return isinstance(error, Interrupted)


def _note_error(attempt: Attempt, error: BaseException, stage: Stage) -> None:
    attempt.stage, attempt.error = stage, error
    text = str(error).strip()
    if "TorchScript" in text:
        text = text.splitlines()[-1]
    attempt.message = f"{type(error).__name__}: {text}"
    attempt.frames = user_frames(error.__traceback__)
    attempt.refused = _raised_by_code(error.__traceback__)
    error.__traceback__ = None


def user_frames(traceback: TracebackType | None) -> list[UserFrame]:
    """Return the frames of the checked code in a traceback, outermost first."""
    frames: list[UserFrame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not _is_ours(code.co_filename):
            frames.append(UserFrame(code, traceback.tb_lineno, _span(code, traceback.tb_lasti), dict(traceback.tb_frame.f_locals)))
        traceback = traceback.tb_next
    return frames


def _raised_by_code(traceback: TracebackType | None) -> bool:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or _is_ours(traceback.tb_frame.f_code.co_filename):
        return False
    return traceback.tb_frame.f_code.co_code[traceback.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _is_ours(path: str) -> bool:
    """Whether a frame is none of the code under search, which may be that of an installed package or an op of pullback."""
    return path.startswith("<frozen") or is_torchs(path) or is_checkers(path) or is_standard(path)


def _span(code: CodeType, index: int) -> tuple[int, int, int, int] | None:
    positions = list(code.co_positions())
    if index < 0 or index // 2 >= len(positions):
        return None
    line, end_line, column, end_column = positions[index // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, end_line, column, end_column
