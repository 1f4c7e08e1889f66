"""PB706."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ... import trees
from ...report.finding import Finding
from ..base import Check, Skipped, Unsupported
from ..compare import Gap
from ..compiling import Call, Compilable, attempt, compiled, fresh, gap, paired
from ..evaluate import UserCodeError
from ..keeping import owner
from ..probe import Probe
from ..truth import eager
from ..words import gradient_name

BACKENDS = ("eager", "aot_eager")
Transform = Callable[[Call], Call]


class FuncCompileMismatch(Check):
    """Compiled, a torch.func gradient of the op is not its custom gradient.

    Why it matters:
        ``torch.compile(torch.func.grad(f))`` silently leaves out a custom backward and differentiates the forward instead: a straight-through
        estimator gives zero, a stable formula gives NaN again.

    How it is measured:
        For Functions with ``setup_context``: ``torch.func.grad`` of the op, compiled with backend "eager", against the same uncompiled. With
        ``--thorough`` also ``vjp``, ``jacrev``, ``grad`` of ``grad`` and, where the Function offers a batching rule, ``vmap`` and ``vmap`` of
        ``grad``, each with backends "eager" and "aot_eager". Where the result is that of the plain forward, torch has dropped the backward: a
        warning that names the torch issue. Any other difference is an error.

    Instead:
        Behind ``torch.compiler.allow_in_graph`` on a function at the top of a module the custom gradient is kept.

    References:
        pytorch/pytorch#193279.
    """

    code = "PB706"
    name = "func-compile-mismatch"
    severity = "warning"
    compiler = True
    needs = ("backward", "repeats", "function")
    stage = 4

    def run(self, probe: Probe) -> Iterator[Finding]:
        function = probe.function
        if function is None or function.setup_context is torch.autograd.Function.setup_context:
            raise Skipped("no setup_context: torch.func cannot use it (PB703)")
        op = Compilable(probe)
        thorough = probe.settings.thorough
        refusals: list[Unsupported] = []
        compared = 0
        for name, transform, arguments in _transforms(function, op, thorough=thorough):
            transformed = transform(op.call)
            try:
                expected = _flat(transformed(*arguments))
            except Exception as error:
                refusals.append(Unsupported(f"{name} raises {type(error).__name__}"))
                continue
            for backend in BACKENDS if thorough else BACKENDS[:1]:
                try:
                    got = _flat(attempt(partial(_compiled, transformed, arguments, backend)))
                except Unsupported as refusal:
                    refusals.append(refusal)
                    continue
                compared += 1
                found = gap(_names(op, name, expected), got, expected)
                if found is not None:
                    yield self._wrong(probe, name, backend, found, _drops(probe, op, name, transform, arguments, got))
                    return
        if not compared and refusals:
            raise refusals[0]

    def _wrong(self, probe: Probe, name: str, backend: str, found: Gap, dropped: bool) -> Finding:
        path = found.path if found.path in (leaf.path for leaf in probe.exact.wanted) else None
        what = found.path if path is None else gradient_name(path)
        op = owner(probe)
        evidence = [found.evidence(f"{what}, compiled by the backend {backend} against uncompiled")]
        if dropped:
            return self.finding(
                probe,
                f"torch.compile({name}({op})) leaves out {probe.backward_name}, by a fault of torch",
                severity="warning",
                evidence=evidence,
                cause="a fault of torch: torch.compile drops every custom backward under torch.func and differentiates forward instead",
                certain=True,
                fix="Where torch.func is compiled, call the op through torch.compiler.allow_in_graph(f), f a function at the top of a module; "
                "compiled .backward() is not concerned.",
                upstream="pytorch/pytorch#193279",
                path=path,
                attachments=found.picture(what),
            )
        return self.finding(
            probe,
            f"torch.compile({name}({op})) gives another {what} than uncompiled",
            severity="error",
            evidence=evidence,
            fix="call the op through torch.compiler.allow_in_graph(f), f a function at the top of a module",
            path=path,
            attachments=found.picture(what),
        )


def _transforms(function: type[torch.autograd.Function], op: Compilable, *, thorough: bool) -> Iterator[tuple[str, Transform, tuple[Tensor, ...]]]:
    """Yield names, what makes the transform of a call, and the arguments that it is called with."""
    every = tuple(range(len(op.points)))
    cotangents = op.cotangents

    def gradient(call: Call) -> Call:
        return torch.func.grad(paired(call, cotangents), argnums=every)

    def second(call: Call) -> Call:
        first = gradient(call)

        def squared(*inputs: Any) -> Any:
            total = 0.0
            for g in first(*inputs):
                total = total + (g * g).sum()
            return total

        return torch.func.grad(squared, argnums=every)

    def pulled_back(call: Call) -> Call:
        return lambda *inputs: torch.func.vjp(call, *inputs)[1](cotangents)

    yield "torch.func.grad", gradient, op.points
    if not thorough:
        return
    yield "torch.func.vjp", pulled_back, op.points
    yield "torch.func.jacrev", lambda call: torch.func.jacrev(call, argnums=every), op.points
    if _differentiable_twice(op):
        yield "torch.func.grad of torch.func.grad", second, op.points
    if getattr(function, "generate_vmap_rule", False) or function.vmap is not torch.autograd.Function.vmap:
        batched = tuple(torch.stack([p, 0.75 * p]) for p in op.points)
        yield "torch.vmap", torch.vmap, batched
        yield "torch.vmap of torch.func.grad", lambda call: torch.vmap(gradient(call)), batched


def _differentiable_twice(op: Compilable) -> bool:
    """Return whether gradients depend on the inputs and can be differentiated.

    Asked by `.backward()`: `autograd.grad` returns None for a backward that refuses to be differentiated, without saying so.
    """
    leaves = [p.clone().requires_grad_() for p in op.points]
    try:
        first = torch.autograd.grad(op.call(*leaves), leaves, op.cotangents, create_graph=True, allow_unused=True)
        tracked = [g for g in first if g is not None and g.requires_grad]
        torch.autograd.backward(tracked, [torch.ones_like(g) for g in tracked])
    except Exception:
        return False
    return bool(tracked)


def _compiled(function: Call, arguments: tuple[Tensor, ...], backend: str) -> Any:
    def transformed(*inputs):
        return function(*inputs)

    return compiled(fresh(transformed), backend)(*arguments)


def _flat(results: Any) -> tuple[Tensor, ...]:
    return tuple(t for _, t in trees.leaves(results) if isinstance(t, Tensor))


def _names(op: Compilable, transform: str, results: Any) -> tuple[str, ...]:
    """Return gradients by the names of their inputs, other results by number."""
    return op.paths if len(results) == len(op.paths) and transform != "torch.vmap" else tuple(f"result {i}" for i in range(len(results)))


def _drops(probe: Probe, op: Compilable, name: str, transform: Transform, arguments: tuple[Tensor, ...], got: tuple[Tensor, ...]) -> bool:
    """Return whether the compiled result is what the transform gives of forward without the custom backward."""
    try:
        expected = _flat(transform(Compilable(probe, eager(probe.native)).call)(*arguments))
    except Exception:
        return _is_derivative_of_forward(probe, op, got)
    return len(expected) == len(got) and gap(_names(op, name, expected), got, expected) is None


def _is_derivative_of_forward(probe: Probe, op: Compilable, got: object) -> bool:
    try:
        plain = eager(probe.native)
        outcome = plain.forward()
        if len(outcome.live) != len(op.cotangents):
            return all(not bool(g.any()) for g in got)  # type: ignore[attr-defined]
        expected = plain.vjp(outcome, list(op.cotangents))
    except (UserCodeError, ValueError):
        return False
    return gap(op.paths, got, expected) is None
