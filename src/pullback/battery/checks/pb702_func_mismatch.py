"""PB702."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ...report.clean import clean
from ...report.finding import Finding
from .. import tolerance
from ..base import Check, Skipped, Unsupported
from ..compare import Gap, beyond, unlike
from ..functional import Functional, functional, held
from ..keeping import owner
from ..picture import differences
from ..probe import Probe
from ..words import gradient_name

LARGEST = 4096
Tensors = tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class _Comparison:
    name: str
    transformed: Callable[[], Tensors]
    plain: Callable[[], Tensors]


class FuncMismatch(Check):
    """A torch.func transform of the op gives another derivative than autograd does.

    Why it matters:
        Meta-learning, physics-informed losses and Hessian-vector products use the transforms; the same op then trains differently.

    How it is measured:
        For Functions with ``setup_context``: ``vjp``, ``grad``, ``jacrev`` and ``grad`` nested two and three deep against autograd's gradients,
        Jacobian and repeated backward; where the Function has a ``jvp``, ``func.jvp``, ``jacfwd`` and ``hessian`` against forward mode and double
        backward.

    Example:
        A tensor kept as a ctx attribute (not by save_for_backward), a test for ``x.requires_grad`` in forward.

    Instead:
        Save tensors by save_for_backward, decide by ``ctx.needs_input_grad``, keep forward free of side effects.

    Limits:
        A transform that raises is reported as unsupported; ``jacfwd`` of ``jacfwd`` is left out.
    """

    code = "PB702"
    name = "func-mismatch"
    severity = "error"
    compiler = True
    needs = ("backward", "repeats", "function")

    def run(self, probe: Probe) -> Iterator[Finding]:
        function = probe.function
        if function is None or function.setup_context is torch.autograd.Function.setup_context:
            raise Skipped("no setup_context: torch.func cannot use it (PB703)")
        op = functional(probe)
        refusal, compared = "", 0
        wrong = any(probe.explained(leaf.path, "PB501", "PB507", "PB510") for leaf in probe.exact.wanted)
        for comparison in _comparisons(op, forward_mode="jvp" in vars(function), agree=not wrong):
            try:
                expected = held(comparison.plain)
            except Exception:
                continue
            try:
                got = held(comparison.transformed)
            except Exception as error:
                refusal = clean(f"{comparison.name} raises {type(error).__name__}: {error}", limit=200)
                continue
            compared += 1
            found = _gap(op, got, expected)
            if found is not None:
                yield self._wrong(probe, comparison.name, found)
                return
        if not compared and refusal:
            raise Unsupported(refusal)

    def _wrong(self, probe: Probe, name: str, found: Gap) -> Finding:
        return self.finding(
            probe,
            f"{name} of {owner(probe)} differs from autograd",
            evidence=[found.evidence(f"{name}: {found.path}")],
            cause="backward uses more than what save_for_backward carries through transforms: an attribute, a global, a test of requires_grad",
            fix="save tensors by save_for_backward in setup_context, and decide by ctx.needs_input_grad",
            attachments=found.picture(found.path),
        )


def _comparisons(op: Functional, *, forward_mode: bool, agree: bool) -> Iterator[_Comparison]:
    """Yield transforms and what autograd gives; forward over reverse mode only where `agree`: of two that differ by a fault it makes a third."""
    every = tuple(range(len(op.points)))
    yield _Comparison("torch.func.vjp", lambda: torch.func.vjp(op.call, *op.points)[1](op.cotangents), lambda: _gradients(op))
    yield _Comparison("torch.func.grad", lambda: torch.func.grad(op.scalar, argnums=every)(*op.points), lambda: _gradients(op))
    yield _Comparison("torch.func.grad of torch.func.grad", lambda: _nested(op, every, 2), lambda: _repeated(op, 2))
    yield _Comparison("torch.func.grad, three deep", lambda: _nested(op, every, 3), lambda: _repeated(op, 3))
    inputs, outputs = sum(p.numel() for p in op.points), sum(y.numel() for y in op.outputs)
    if inputs * outputs <= LARGEST:
        yield _Comparison("torch.func.jacrev", lambda: _flat(torch.func.jacrev(op.call, argnums=every)(*op.points)), lambda: _jacobian(op))
    if forward_mode:
        yield _Comparison("torch.func.jvp", lambda: torch.func.jvp(op.call, op.points, _tangents(op))[1], lambda: _forward_mode(op))
        if agree and inputs * inputs <= LARGEST:
            yield _Comparison("torch.func.hessian", lambda: _flat(torch.func.hessian(op.scalar, argnums=every)(*op.points)), lambda: _hessian(op))


def _leaves(op: Functional) -> list[Tensor]:
    return [p.clone().requires_grad_() for p in op.points]


def _gradients(op: Functional) -> Tensors:
    leaves = _leaves(op)
    return torch.autograd.grad(op.call(*leaves), leaves, op.cotangents, allow_unused=True)


def _tangents(op: Functional) -> tuple[Tensor, ...]:
    return tuple(torch.linspace(-1, 1, p.numel(), dtype=p.dtype, device=p.device).view(p.shape) for p in op.points)


def _nested(op: Functional, every: tuple[int, ...], depth: int) -> Tensors:
    """Return the gradient of the gradient's product with fixed tangents, and so on, by nested transforms."""
    function = op.scalar
    for _ in range(depth - 1):
        function = _directional(torch.func.grad(function, argnums=every), _tangents(op))
    return torch.func.grad(function, argnums=every)(*op.points)


def _directional(gradient: Callable[..., Tensors], tangents: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    def directional(*inputs: Tensor) -> Tensor:
        return sum((g * t).sum() for g, t in zip(gradient(*inputs), tangents, strict=True) if g is not None)  # type: ignore[return-value]

    return directional


def _repeated(op: Functional, depth: int) -> Tensors:
    """Return the same by repeated backward."""
    leaves = _leaves(op)
    scalar: object = op.scalar(*leaves)
    for _ in range(depth - 1):
        if not isinstance(scalar, Tensor) or not scalar.requires_grad:
            return tuple(torch.zeros_like(p) for p in op.points)
        gradients = torch.autograd.grad(scalar, leaves, create_graph=True, allow_unused=True)
        scalar = sum((g * t).sum() for g, t in zip(gradients, _tangents(op), strict=True) if g is not None)
    if not isinstance(scalar, Tensor) or not scalar.requires_grad:
        return tuple(torch.zeros_like(p) for p in op.points)
    return torch.autograd.grad(scalar, leaves, allow_unused=True)


def _jacobian(op: Functional) -> Tensors:
    leaves = _leaves(op)
    blocks: list[Tensor] = []
    for y in op.call(*leaves):
        rows = [torch.autograd.grad(entry, leaves, retain_graph=True, allow_unused=True) for entry in y.flatten()]
        for i, leaf in enumerate(leaves):
            filled = [torch.zeros_like(leaf) if (g := row[i]) is None else g for row in rows]
            blocks.append(torch.stack(filled).view(*y.shape, *leaf.shape) if filled else y.new_zeros(*y.shape, *leaf.shape))
    return tuple(blocks)


def _hessian(op: Functional) -> Tensors:
    leaves = _leaves(op)
    first = torch.autograd.grad(op.scalar(*leaves), leaves, create_graph=True)
    blocks: list[Tensor] = []
    for g in first:
        rows = [torch.autograd.grad(entry, leaves, retain_graph=True, allow_unused=True) for entry in g.flatten()]
        for i, leaf in enumerate(leaves):
            blocks.append(torch.stack([torch.zeros_like(leaf) if row[i] is None else row[i] for row in rows]).view(*g.shape, *leaf.shape))
    return tuple(blocks)


def _forward_mode(op: Functional) -> Tensors:
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        outputs = op.call(*(forward_ad.make_dual(p, t) for p, t in zip(op.points, _tangents(op), strict=True)))
        return tuple(forward_ad.unpack_dual(y).tangent for y in outputs)


def _flat(nested: object) -> Tensors:
    if isinstance(nested, Tensor):
        return (nested,)
    return tuple(t for part in nested for t in _flat(part))  # type: ignore[attr-defined]


def _gap(op: Functional, got: Tensors, expected: Tensors) -> Gap | None:
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        name = gradient_name(op.paths[i]) if len(got) == len(op.paths) else f"block {i}"
        if a is None or b is None or a.shape != b.shape:
            other = b if a is None else a
            if (a is None or b is None) and (other is None or not bool(other.any())):
                continue
            return unlike(name, a, b)
        if not a.numel() or not bool(torch.isfinite(b).all()):
            continue
        allowed = tolerance.analytic(b.dtype, float(b.detach().abs().max()))
        found = beyond(name, a.detach(), b.detach(), differences(a, b), allowed)
        if found is not None:
            return found
    return None
