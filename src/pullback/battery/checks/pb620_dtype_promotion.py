"""PB620."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import trees
from ...capture.observed_calls import ForwardCall, observed_backward
from ...capture.saved import reachable
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..evaluate import UserCodeError
from ..keeping import argument_tensors, observe, owner
from ..probe import Probe
from ..refusals import refuses
from ..tensors import differentiable

_LACKS = re.compile(r"not implemented for|[Uu]nsupported|not supported|[Ll]ow precision|only support", re.IGNORECASE)
"""How torch and numpy say that they have nothing for a dtype."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class _Run:
    """Dtypes at one input dtype: of the outputs of the first call of the Function, and of returned gradients by argument name.

    `reduced` says that every output is smaller than the largest input: a loss, a norm, statistics.
    """

    outputs: tuple[torch.dtype, ...]
    gradients: tuple[tuple[str, torch.dtype], ...]
    reduced: bool


class DtypePromotion(Check):
    """Low-precision inputs come out in a wider dtype, or a gradient comes back in another dtype than its input, or not at all, for some dtypes.

    Why it matters:
        A float32 mask or constant silently turns a bfloat16 model into a float32 one from there on: twice the memory, half the speed, and dtype
        errors in the next matrix product. A gradient made in the default dtype loses the digits of float64.

    How it is measured:
        The op runs with all floating arguments in bfloat16, float16, float32 and float64. Outputs that are wider than every input are reported,
        unless the op gives that dtype whatever it is given (accumulation in float32 on purpose) or another output keeps the dtype. Gradients are
        what backward returns, before the engine casts them. A backward that raises with a dtype that forward takes is reported, unless torch has no
        kernel for it.

    Example:
        ``mask = (torch.rand_like(x) > p).float()``; ``torch.zeros(n)`` without ``dtype=x.dtype``.

    Instead:
        ``.to(x.dtype)``, ``torch.zeros(n, dtype=x.dtype)``, or a boolean mask.
    """

    code = "PB620"
    name = "dtype-promotion"
    severity = "warning"

    def run(self, probe: Probe) -> Iterator[Finding]:
        tried = {dtype: run for dtype in DTYPES if (run := _run(probe, dtype)) is not None}
        runs = {dtype: run for dtype, run in tried.items() if isinstance(run, _Run)}
        late = [(dtype, error) for dtype, error in tried.items() if isinstance(error, UserCodeError)]
        if runs and late:
            yield self._raises(probe, *late[0])
            return
        if len(runs) < 2:
            raise Skipped("the op takes fewer than two floating dtypes")
        wide = [dtype for dtype in runs if _promotes(dtype, runs)]
        if wide:
            yield self._promoted(probe, wide, runs)
            return
        if not any(f.code == "PB603" for f in probe.findings):
            yield from self._gradients(probe, runs)

    def _promoted(self, probe: Probe, wide: list[torch.dtype], runs: dict[torch.dtype, _Run]) -> Finding:
        return self.finding(
            probe,
            f"{owner(probe)}.forward gives a wider dtype than its inputs have",
            location=probe.forward_location,
            evidence=[Evidence(f"all floating arguments {_name(d)}", got=f"output {_name(runs[d].outputs[0])}", expected=_name(d)) for d in wide],
            cause="a tensor of another dtype (a mask, a constant, a buffer in the default dtype) takes part, and the wider dtype wins",
            fix="make it in the input's dtype: .to(x.dtype), or dtype=x.dtype where it is created; a mask can stay boolean",
        )

    def _raises(self, probe: Probe, dtype: torch.dtype, error: UserCodeError) -> Finding:
        late = refuses(error)
        return self.finding(
            probe,
            f"{probe.backward_name} {'refuses' if late else 'raises with'} {_name(dtype)}, which forward takes",
            evidence=[Evidence(f"all floating arguments {_name(dtype)}", got=error.short, expected="gradients, or a refusal in forward")],
            cause="the refusal comes after forward has run" if late else "a tensor that backward makes, or grad_output itself, has another dtype",
            fix="refuse the dtype in forward" if late else "make tensors in backward with dtype=grad_output.dtype, and cast where two dtypes meet",
        )

    def _gradients(self, probe: Probe, runs: dict[torch.dtype, _Run]) -> Iterator[Finding]:
        mixed = [(dtype, name, got) for dtype, run in runs.items() if dtype in run.outputs for name, got in run.gradients if got != dtype]
        if not mixed:
            return
        dtype, name, got = max(mixed, key=lambda m: _bits(m[0]) - _bits(m[2]))
        narrow = _bits(got) < _bits(dtype)
        yield self.finding(
            probe,
            f"{probe.backward_name} returns a {_name(got)} gradient for {name} when the inputs are {_name(dtype)}",
            severity="warning" if narrow else "note",
            evidence=[Evidence(f"all floating arguments {_name(dtype)}, output {_name(dtype)}", got=_name(got), expected=_name(dtype))],
            cause="digits are lost before the engine casts it back"
            if narrow
            else "a tensor of a wider dtype takes part in backward; the engine casts the gradient back",
            fix=f"make tensors in backward with dtype={name}.dtype, or cast the gradient at the end",
            path=name,
        )


def _promotes(dtype: torch.dtype, runs: dict[torch.dtype, _Run]) -> bool:
    outputs = runs[dtype].outputs
    if not outputs or runs[dtype].reduced or any(_bits(o) <= _bits(dtype) for o in outputs):
        return False
    if dtype is torch.bfloat16 and all(o.is_complex for o in outputs):
        return False  # torch has no complex dtype of its digits
    widest = max(runs, key=_bits)
    return widest is not dtype and runs[widest].outputs != outputs


def _run(probe: Probe, dtype: torch.dtype) -> _Run | UserCodeError | None:
    """What happens with one dtype: the dtypes that come out, or what backward raises; None where forward does not take it, or torch cannot."""
    if any(leaf.template.is_complex() for leaf in probe.native.leaves):
        return None
    evaluator = probe.native.cast(dtype)
    try:
        outcome, calls = observe(probe, evaluator)
        if not calls or not _uniform(probe, calls[0], dtype):
            return None
        with observed_backward(calls[0].function) as backward:
            evaluator.vjp(outcome, probe.cotangents(outcome))
    except UserCodeError as error:
        return error if error.stage == "backward" and not _LACKS.search(str(error.error)) else None
    floating = [t for _, t in trees.leaves(calls[0].outputs) if isinstance(t, Tensor) and differentiable(t)]
    largest = max(t.numel() for _, t in argument_tensors(probe, calls[0]) if differentiable(t))
    names = [path for path, _ in argument_tensors(probe, calls[0])]
    gradients: list[tuple[str, torch.dtype]] = []
    for call in backward:
        if call.context is calls[0].context and len(call.gradients) >= len(calls[0].arguments):
            pairs = zip(calls[0].arguments, call.gradients, strict=False)
            tensors = iter(names)
            for argument, gradient in pairs:
                if isinstance(argument, Tensor):
                    name = next(tensors)
                    if isinstance(gradient, Tensor) and argument.dtype == dtype and argument.requires_grad:
                        gradients.append((name, gradient.dtype))
                else:
                    for _ in [leaf for _, leaf in trees.leaves(argument) if isinstance(leaf, Tensor)]:
                        next(tensors)
    return _Run(tuple(t.dtype for t in floating), tuple(gradients), all(t.numel() < largest for t in floating))


def _uniform(probe: Probe, call: ForwardCall, dtype: torch.dtype) -> bool:
    """Whether every floating tensor that reaches the Function has this dtype, also those inside objects."""
    held = [t for value in call.arguments for _, t in reachable(value)]
    return all(t.dtype == dtype for t in held if differentiable(t)) and any(differentiable(t) for t in held)


def _bits(dtype: torch.dtype) -> int:
    return torch.finfo(dtype).bits


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
