"""`gradcheck` and `gradgradcheck` for tests: drop-in replacements for torch's, judged as `pullback.check` judges.

Change the import and keep the calls::

    from pullback.testing import gradcheck, gradgradcheck

Beyond torch's they use signed grad_outputs, so that `|g|`, clipping and guided gradients fail; they find one wrong entry among a thousand; and they
take float32 inputs, since the tolerance follows from the measured noise.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from .battery.evaluate import UserCodeError
from .battery.forward_mode import wrong_tangent
from .battery.probe import Probe
from .battery.process_state import muted_output, preserved_state
from .battery.session import run_case
from .battery.settings import Settings
from .battery.tensors import copy_tensor, differentiable, random_like
from .capture.calls import Target, backward_of, resolve_target
from .capture.case import Case
from .declare import declaration_of
from .report.finding import Finding
from .report.report import Report

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Outputs = Tensor | Sequence[Tensor]
ATOL = 1e-5
RTOL = 1e-3
_VALUES = frozenset({"PB501", "PB503", "PB509", "PB510", "PB512"})


def gradcheck(
    func: Callable[..., Outputs],
    inputs: Outputs,
    *,
    eps: float = 1e-6,
    atol: float = ATOL,
    rtol: float = RTOL,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Return True if the gradients of `func` are right; a drop-in for `torch.autograd.gradcheck`.

    Args:
        func: Takes tensors, returns a tensor or a tuple of tensors; a Function's `apply`, or any callable.
        inputs: The arguments. Those that require grad are differentiated; float32, bfloat16 and float16 are judged by their own noise.
        eps: Taken for the signature's sake: the step follows from dtype and measured noise.
        atol: Errors of a gradient up to this are let pass, where it is larger than the default.
        rtol: Likewise, relative.
        raise_exception: Whether to raise on failure instead of returning False.
        nondet_tol: If larger than 0, results that do not repeat are let pass unjudged; random ops that repeat under a held seed need none.
        check_undefined_grad: Whether backward must take grad_outputs that are undefined.
        check_grad_dtypes: Whether gradients must have the dtype and device of their inputs.
        check_batched_grad: Whether backward must work under vmap.
        check_batched_forward_grad: Whether forward mode must work under vmap.
        check_forward_ad: Whether forward mode must be right.
        check_backward_ad: Whether backward is checked.
        fast_mode: Taken for the signature's sake: there is one mode, as fast as that.
        masked: Passed on to torch for sparse inputs.

    Raises:
        GradcheckError: (torch's, a RuntimeError) if a gradient is wrong; the message is the printed finding.
        ValueError: if no input requires grad.
        AssertionError: if the options contradict each other.

    Example:
        >>> import torch
        >>> from pullback.testing import gradcheck
        >>> gradcheck(torch.sin, torch.randn(3, requires_grad=True))
        True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("at least one of check_forward_ad and check_backward_ad must be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("check_batched_grad=True needs check_backward_ad=True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("check_batched_forward_grad=True needs check_forward_ad=True")
    arguments = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if any(isinstance(a, Tensor) and a.layout is not torch.strided for a in arguments):
        return _torch_gradcheck(dict(locals()))
    _require_differentiable(arguments)
    codes = set(_VALUES) | ({"PB607"} if check_undefined_grad else set()) | ({"PB603"} if check_grad_dtypes else set())
    leave = (atol if atol > ATOL else 0.0, rtol if rtol > RTOL else 0.0)
    settings = Settings(select=frozenset(codes), leave=leave)
    case = Case(func, arguments, {}, declaration_of(resolve_target(func).function or func))
    try:
        with preserved_state(), warnings.catch_warnings(), muted_output():
            warnings.simplefilter("ignore")
            if check_backward_ad:
                _check_backward(case, settings, nondet_tol)
            if check_forward_ad:
                _check_forward(case, settings)
            if check_batched_grad:
                _check_batched(case, settings)
            if check_batched_forward_grad:
                _check_batched_forward(case, settings)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Outputs],
    inputs: Outputs,
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = ATOL,
    rtol: float = RTOL,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Return True if the gradients of the gradients of `func` are right; a drop-in for `torch.autograd.gradgradcheck`.

    Args:
        func: As for `gradcheck`.
        inputs: As for `gradcheck`.
        grad_outputs: The grad_outputs at which the gradients are taken; None: random ones that require grad.
        eps: As for `gradcheck`.
        atol: As for `gradcheck`.
        rtol: As for `gradcheck`.
        gen_non_contig_grad_outputs: Whether the random grad_outputs are non-contiguous.
        raise_exception: As for `gradcheck`.
        nondet_tol: As for `gradcheck`.
        check_undefined_grad: As for `gradcheck`.
        check_grad_dtypes: As for `gradcheck`.
        check_batched_grad: As for `gradcheck`.
        check_fwd_over_rev: Whether forward mode over backward is checked.
        check_rev_over_rev: Whether backward over backward is checked.
        fast_mode: As for `gradcheck`.
        masked: As for `gradcheck`.

    Raises:
        GradcheckError: (torch's, a RuntimeError) if a second derivative is wrong; the message is the printed finding.
        ValueError: if no input requires grad.
        AssertionError: if the options contradict each other.

    Example:
        >>> import torch
        >>> from pullback.testing import gradgradcheck
        >>> gradgradcheck(torch.sin, torch.randn(3, dtype=torch.float64, requires_grad=True))
        True
    """
    arguments = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    _require_differentiable(arguments)
    cotangents = _given_or_random(func, arguments, grad_outputs, gen_non_contig_grad_outputs)
    wanted = [i for i, a in enumerate(arguments) if isinstance(a, Tensor) and a.requires_grad]
    count = len(cotangents)

    def gradients(*everything: Any) -> tuple[Tensor, ...]:
        given, dys = everything[:-count], everything[-count:]
        outputs = _differentiable(func(*given))
        found = torch.autograd.grad(outputs, [given[i] for i in wanted], dys, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    _pose_as(gradients, resolve_target(func), len(arguments), count)
    return gradcheck(
        gradients,
        (*arguments, *cotangents),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _pose_as(gradients: Any, target: Target, inputs: int, outputs: int) -> None:
    """Give the function that returns gradients the name, place and argument names of the op it differentiates."""
    cotangents = ["grad_output"] if outputs == 1 else [f"grad_output_{i}" for i in range(outputs)]
    names = [name if name.isidentifier() else f"argument_{i}" for i, name in enumerate(target.positional(inputs))]
    kind = inspect.Parameter.POSITIONAL_ONLY
    gradients.__name__ = gradients.__qualname__ = f"gradient of {target.name}"
    gradients.__module__ = target.subject.rpartition(".")[0]
    gradients.__wrapped__ = backward_of(target.function) if target.function else target.call
    gradients.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in (*names, *cotangents)])


def _torch_gradcheck(options: dict[str, Any]) -> bool:
    """Sparse and other layouts: torch's own check knows their rules."""
    options.pop("arguments")
    return torch.autograd.gradcheck(**options)


def _require_differentiable(arguments: Sequence[Any]) -> None:
    wanted = [(i, a) for i, a in enumerate(arguments) if isinstance(a, Tensor) and a.requires_grad]
    if not wanted:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True.")
    for i, tensor in wanted:
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            raise RuntimeError(
                f"input {i} has a dimension with stride 0, so that its entries share memory and cannot be moved one by one; "
                "call .contiguous() on it before passing it to gradcheck"
            )


def _check_backward(case: Case, settings: Settings, nondet_tol: float) -> None:
    probe = Probe(case, settings)
    base = probe.baseline
    for error in (base.forward_error, base.backward_error):
        if error is not None:
            raise error.error
    if base.outcome is not None and base.outcome.carrying and not (probe.repeats.forward and probe.repeats.backward):
        if nondet_tol > 0:
            return
        raise GradcheckError(f"{probe.target.name}: results do not repeat for the same inputs under a held random state (nondet_tol=0)")
    report = run_case(case, settings)
    failed = [f for f in report.findings if f.severity == "error" or f.code in ("PB503", "PB512") or (f.code == "PB603" and f.severity == "warning")]
    if failed:
        raise GradcheckError(_printed(failed))
    unjudged = next((run.reason for run in report.checks if run.code == "PB501" and run.status == "skipped"), "")
    if unjudged and base.outcome is not None and base.outcome.carrying and not case.declaration.deliberate:
        raise GradcheckError(f"{probe.target.name}: the gradient could not be judged: {unjudged}")


def _printed(findings: Sequence[Finding]) -> str:
    return str(Report(tuple(findings)))


def _check_forward(case: Case, settings: Settings) -> None:
    evaluator = Probe(case, settings).exact
    try:
        wrong = wrong_tangent(evaluator, settings.seed)
    except UserCodeError as error:
        raise error.error from None
    if wrong is not None:
        name = resolve_target(case.target).name
        raise GradcheckError(
            f"forward mode of {name} gives a wrong derivative along {wrong.path}: {wrong.got:.6g} instead of {wrong.low:.6g} … {wrong.high:.6g} "
            f"(error {wrong.error:.2g}, tolerance {wrong.allowed:.2g})"
        )


def _check_batched(case: Case, settings: Settings) -> None:
    evaluator = Probe(case, settings).exact
    generator = torch.Generator().manual_seed(settings.seed)
    outcome = evaluator.forward()
    rows = [[random_like(y, generator, (0.5, 1.0, 2.0)) for y in outcome.live] for _ in range(2)]
    single = [evaluator.vjp(outcome, [copy_tensor(c) for c in row], retain_graph=True) for row in rows]
    stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
    try:
        together = torch.autograd.grad(outcome.live, outcome.arguments.roots, stacked, is_grads_batched=True, allow_unused=True)
    except Exception as error:
        raise GradcheckError(f"the backward of {resolve_target(case.target).name} does not work under vmap: {error}") from error
    for leaf, batch, *each in zip(evaluator.wanted, together, *single, strict=True):
        if batch is not None and not torch.allclose(batch, torch.stack([torch.zeros_like(batch[0]) if g is None else g for g in each])):
            raise GradcheckError(f"the backward of {resolve_target(case.target).name} gives another gradient for {leaf.path} under vmap")


def _check_batched_forward(case: Case, settings: Settings) -> None:
    """torch's own test: forward mode under vmap rests on a batching rule that only its private vmap has (torch 2.13)."""
    arguments = Probe(case, settings).exact.arguments()
    torch.autograd.gradcheck(case.target, arguments.args, check_forward_ad=True, check_backward_ad=False, check_batched_forward_grad=True)


def _differentiable(outputs: Any) -> tuple[Tensor, ...]:
    every = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    return tuple(y for y in every if isinstance(y, Tensor) and y.requires_grad)


def _given_or_random(func: Callable[..., Any], arguments: Sequence[Any], given: Any, strided: bool) -> tuple[Tensor, ...]:
    if given is not None:
        return (given,) if isinstance(given, Tensor) else tuple(given)
    with preserved_state():
        torch.manual_seed(0)
        outputs = _differentiable(func(*(copy_tensor(a).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in arguments)))
        return tuple(_cotangent(y, strided) for y in outputs)


def _cotangent(y: Tensor, strided: bool) -> Tensor:
    dtype = y.dtype if differentiable(y) else torch.float64
    return torch.testing.make_tensor(y.shape, dtype=dtype, device=y.device, low=-1, high=1, requires_grad=True, noncontiguous=strided)
