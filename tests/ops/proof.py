"""An op against its reference in plain torch, in every way that PyTorch will use it."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import pullback as pb
from pullback.authoring.op import Sample

WIDE, HALVES = torch.float64, (torch.bfloat16, torch.float16)
SMALL = 64  # bytes that an op may keep besides its tensors: a seed, a scalar


@dataclass
class Proof:
    """What is proved about one op, and how.

    Args:
        op: The op.
        reference: A function of the same arguments in plain torch; the declared one by default.
        gradient: A function of the same arguments whose autograd gradient is the op's; by default the declared surrogate, else the reference where
            the gradient is exact. None where there is none, for an op with a declared gradient that is the derivative of nothing.
        samples: Calls with float64 tensors; the op's own by default. Every float64 tensor among the arguments is differentiated.
        edges: More calls, for values and first gradients only: empty, of size 1, at kinks.
        second: ``"exact"`` for second derivatives equal to the reference's, ``"refused"`` for an error that names the op, None not to ask.
        kept: Bytes for each element of the output that are kept beyond arguments and output, in float32.
        dtypes: Dtypes in which the first sample must run, with errors like the reference's.
        random: Whether the op draws random numbers: its calls are then made under the same seed as the reference's.
        skip: Names of parts to leave out, with the reason in a comment where it is given.
    """

    op: Any
    reference: Callable[..., Any] | None = None
    gradient: Callable[..., Any] | Literal["declared"] | None = "declared"
    samples: Sequence[Sample] = ()
    edges: Sequence[Sample] = ()
    second: Literal["exact", "refused"] | None = "exact"
    kept: float | None = None
    dtypes: Sequence[torch.dtype] = (torch.float32, *HALVES)
    random: bool = False
    skip: Sequence[str] = ()

    def __post_init__(self) -> None:
        declared = self.op.__pullback__
        self.reference = self.reference or declared["reference"]
        if self.gradient == "declared":
            self.gradient = declared["surrogate"] or (self.reference if declared["exact"] and declared["linear"] else None)
        self.samples = list(self.samples) or list(declared["samples"]())

    def run(self) -> None:
        """Run every part and fail with all that went wrong."""
        parts = ["values", "gradients", "second_order", "func", "forward_mode", "batched", "compiled", "autocast", "strided", "precision", "memory"]
        assert set(self.skip) <= set(parts), f"no such part: {set(self.skip) - set(parts)}"
        failures = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*should not be instantiated", DeprecationWarning)
            warnings.filterwarnings("ignore", ".*torch.jit.*", DeprecationWarning)
            for part in parts:
                if part in self.skip:
                    continue
                torch.manual_seed(11)
                try:
                    getattr(self, part)()
                except Exception:
                    failures.append(f"--- {self.op.__name__}, {part}\n{traceback.format_exc(limit=-6)}")
        assert not failures, "\n".join(failures)

    # the parts

    def values(self) -> None:
        for call in self.calls((*self.samples, *self.edges)):
            close(call(self.op), call(self.reference), call.text)

    def gradients(self) -> None:
        for call in self.calls((*self.samples, *self.edges)):
            got = call.backward(self.op)
            if self.gradient is not None:
                close(got, call.backward(self.gradient, call(self.op)), call.text)
            for grad, x in zip(got, call.tensors, strict=True):
                assert grad is None or (grad.shape == x.shape and grad.dtype == x.dtype), f"a gradient of {grad.shape} {grad.dtype}; {call.text}"

    def second_order(self) -> None:
        for call in self.calls(self.samples):
            if self.second == "exact" and self.gradient is not None:
                close(call.second(self.op), call.second(self.gradient, call(self.op)), call.text)
            elif self.second == "refused":
                with pytest.raises(Exception, match=self.op.__name__):
                    call.second(self.op)

    def func(self) -> None:
        if self.gradient is None:
            return
        for call in self.calls(self.samples):
            if call.tensors:
                argnums = tuple(range(len(call.tensors)))
                got = torch.func.grad(lambda *xs, call=call: loss(call(self.op, xs)), argnums)(*call.tensors)
                close(got, call.backward(self.gradient, call(self.op)), call.text)

    def forward_mode(self) -> None:
        if self.gradient is None:
            return
        for call in self.calls(self.samples):
            if call.tensors:
                tangents = tuple([x.cos() for x in call.tensors])
                want = torch.func.jvp(lambda *xs, call=call: flat(call(self.gradient, xs)), call.tensors, tangents)[1]
                close(torch.func.jvp(lambda *xs, call=call: flat(call(self.op, xs)), call.tensors, tangents)[1], want, call.text)
                with forward_ad.dual_level():
                    outs = call(self.op, [forward_ad.make_dual(x, t) for x, t in zip(call.tensors, tangents, strict=True)])
                    found = [forward_ad.unpack_dual(out) for out in flat(outs)]
                    close([torch.zeros_like(f.primal) if f.tangent is None else f.tangent for f in found], want, call.text)

    def batched(self) -> None:
        for call in self.calls(self.samples):
            if not call.tensors:
                continue
            rows = [torch.stack([x, x * 0.5]) for x in call.tensors]
            kind = "same" if self.random else "error"
            got = torch.vmap(lambda *xs, call=call: flat(call(self.op, xs)), randomness=kind)(*rows)
            want = [flat(call(self.reference, [row[i] for row in rows])) for i in range(2)]
            close(got, [torch.stack(pair) for pair in zip(*want, strict=True)], call.text)
            if self.gradient is not None:
                argnums = tuple(range(len(rows)))
                grads = torch.vmap(torch.func.grad(lambda *xs, call=call: loss(call(self.op, xs)), argnums), randomness=kind)(*rows)
                pairs = [call.backward(self.gradient, call(self.op, at), at) for at in ([row[i] for row in rows] for i in range(2))]
                want = [
                    torch.stack([torch.zeros_like(x) if g is None else g for g in pair])
                    for pair, x in zip(zip(*pairs, strict=True), call.tensors, strict=True)
                ]
                close(grads, want, call.text)

    def compiled(self) -> None:
        call = next(iter(self.calls(self.samples)))
        torch._dynamo.reset()
        compiled = torch.compile(lambda *xs: call(self.op, xs, seeded=False), backend="aot_eager", fullgraph=True)
        close(call.backward_through(compiled), call.backward(self.op), call.text)

    def autocast(self) -> None:
        call = next(iter(self.calls(self.samples, torch.float32)))
        if not call.tensors:
            return
        for dtype in HALVES[:1]:
            xs = [x.detach().requires_grad_() for x in call.tensors]
            with torch.autocast("cpu", dtype):
                out = call(self.op, xs)
            grads = torch.autograd.grad(loss(out), xs, allow_unused=True)
            for grad, x in zip(grads, xs, strict=True):
                assert grad is None or grad.dtype == x.dtype, f"autocast: a gradient of {grad.dtype} for {x.dtype}"
            want = call.backward(self.op)
            close(grads, want, f"autocast, {call.text}", 0.1)

    def strided(self) -> None:
        for call in self.calls(self.samples):
            for layout in (transposed, spread):
                at = [layout(x) for x in call.tensors]
                close(call(self.op, at), call(self.op), f"{layout.__name__}, {call.text}")
                close(call.backward(self.op, at=at), call.backward(self.op), f"{layout.__name__}, {call.text}")
                got = call.backward(self.op, cotangent=layout)
                close(got, call.backward(self.op, cotangent=torch.clone), f"{layout.__name__} cotangent, {call.text}")
            got = call.backward(self.op, cotangent=lambda g: g.new_full((), 0.75).expand(g.shape))
            close(got, call.backward(self.op, cotangent=lambda g: torch.full_like(g, 0.75)), f"expanded cotangent, {call.text}")

    def precision(self) -> None:
        for dtype in self.dtypes:
            call = next(iter(self.calls(self.samples, dtype)))
            wide = call.cast(WIDE)
            outs = flat(call(self.op))
            assert all(out.dtype == dtype for out in outs if out.is_floating_point()), f"{dtype} in, {[out.dtype for out in outs]} out"
            as_exact(outs, call(self.reference), wide(self.reference), dtype, call.text)
            if self.gradient is not None:
                plain, exact = call.backward(self.gradient, call(self.op)), wide.backward(self.gradient, wide(self.op))
                as_exact(call.backward(self.op), plain, exact, dtype, f"gradient, {call.text}")

    def memory(self) -> None:
        if self.kept is None:
            return
        call = next(iter(self.calls(self.samples, torch.float32)))
        xs = [x.detach().requires_grad_() for x in call.tensors]
        out = call(self.op, xs)
        count = sum(o.numel() for o in flat(out))
        extra = pb.saved(out).extra
        assert extra <= self.kept * count + SMALL, f"keeps {extra} bytes for {count} elements; {call.text}"

    def calls(self, samples: Sequence[Sample], dtype: torch.dtype = WIDE) -> list[Call]:
        static = self.op.__pullback__["static"]
        return [Call(s, self.random, static_places(self.op, s, static)).cast(dtype) for s in samples]


class Call:
    """A sample whose float64 tensors can be replaced."""

    def __init__(self, given: Sample, random: bool, static: frozenset[int | str]) -> None:
        self.args, self.kwargs, self.random, self.static = list(given.args), dict(given.kwargs), random, static
        self.text = f"{given}"[:300]

    def cast(self, dtype: torch.dtype) -> Call:
        made = Call(Sample([moved(a, dtype) for a in self.args], {k: moved(v, dtype) for k, v in self.kwargs.items()}), self.random, self.static)
        made.text = self.text
        return made

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple([leaf.detach() for leaf in leaves([value for place, value in self.values() if place not in self.static])])

    def values(self) -> list[tuple[int | str, Any]]:
        return [*enumerate(self.args), *self.kwargs.items()]

    def __call__(self, function: Any, xs: Sequence[Tensor] | None = None, seeded: bool = True) -> Any:
        if self.random and seeded:
            torch.manual_seed(5)
        left = list(self.tensors if xs is None else xs)
        given = {place: value if place in self.static else replaced(value, left) for place, value in self.values()}
        return function(*[given[i] for i in range(len(self.args))], **{name: given[name] for name in self.kwargs})

    def backward(self, function: Any, like: Any = None, at: Sequence[Tensor] | None = None, cotangent: Any = None) -> list[Tensor | None]:
        """Gradients of `loss`, with the cotangents that belong to the outputs `like` where the function's own outputs are others."""
        xs = [x.detach().requires_grad_() for x in (self.tensors if at is None else at)]
        outs = [out for out in flat(self(function, xs)) if out.requires_grad]
        if not outs:
            return [None] * len(xs)
        sources = outs if like is None else [out for out in flat(like) if out.is_floating_point()]
        grads = [cotangents_at(source, i) for i, source in enumerate(sources)]
        grads = grads if cotangent is None else [cotangent(g) for g in grads]
        return list(torch.autograd.grad(outs, xs, grads, allow_unused=True))

    def backward_through(self, compiled: Any) -> list[Tensor | None]:
        if self.random:
            torch.manual_seed(5)
        xs = [x.detach().requires_grad_() for x in self.tensors]
        outs = [out for out in flat(compiled(*xs)) if out.requires_grad]
        return (
            list(torch.autograd.grad(outs, xs, [cotangents_at(out, i) for i, out in enumerate(outs)], allow_unused=True))
            if outs
            else [None] * len(xs)
        )

    def second(self, function: Any, like: Any = None) -> list[Tensor | None]:
        """Gradients of the first gradients, with respect to the arguments and the cotangents."""
        xs = [x.detach().requires_grad_() for x in self.tensors]
        outs = [out for out in flat(self(function, xs)) if out.requires_grad]
        sources = outs if like is None else [out for out in flat(like) if out.is_floating_point()]
        dys = [cotangents_at(source, i).requires_grad_() for i, source in enumerate(sources)]
        first = [g for g in torch.autograd.grad(outs, xs, dys, create_graph=True, allow_unused=True) if g is not None and g.requires_grad]
        if not first:
            return [None] * (len(xs) + len(dys))
        weights = [torch.linspace(0.5, 1.5, g.numel(), dtype=g.dtype).reshape(g.shape) for g in first]
        found = torch.autograd.grad(first, [*xs, *dys], weights, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, [*xs, *dys], strict=True)]


def static_places(op: Any, given: Sample, static: Sequence[str]) -> frozenset[int | str]:
    """Positions and keywords of arguments that are never differentiated."""
    names = list(inspect.signature(op).parameters)
    return frozenset(
        [name for name in given.kwargs if name in static] + [i for i in range(len(given.args)) if names[min(i, len(names) - 1)] in static]
    )


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [leaf for item in items for leaf in leaves(item)]


def replaced(value: Any, left: list[Tensor]) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return left.pop(0)
    return type(value)([replaced(item, left) for item in value]) if isinstance(value, (list, tuple)) and leaves(value) else value


def moved(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype)
    return type(value)([moved(item, dtype) for item in value]) if isinstance(value, (list, tuple)) and leaves(value) else value


def flat(value: Any) -> tuple[Tensor, ...]:
    if isinstance(value, Tensor):
        return (value,)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return tuple([leaf for item in items for leaf in flat(item)])


def cotangents_at(out: Tensor, i: int) -> Tensor:
    """The derivative of `loss` with respect to its i-th output."""
    return ((i + 1) * ((i + 1) * out.detach()).cos()).to(out.dtype)


def loss(value: Any) -> Tensor:
    outs = [out for out in flat(value) if out.is_floating_point()]
    return sum(((i + 1) * out).sin().sum() for i, out in enumerate(outs))  # type: ignore[return-value]


def close(got: Any, want: Any, text: str, tolerance: float = 1e-9) -> None:
    got, want = listed(got), listed(want)
    assert len(got) == len(want), f"{len(got)} results against {len(want)}; {text}"
    for g, w in zip(got, want, strict=True):
        if g is None or w is None:
            other = w if g is None else g
            assert other is None or not other.any(), f"{g} against {w}; {text}"
            continue
        assert g.shape == w.shape, f"{list(g.shape)} against {list(w.shape)}; {text}"
        scale = float(w.abs().nan_to_num().max().clamp(min=1)) if w.numel() and w.dtype.is_floating_point else 1.0
        assert torch.allclose(g.double(), w.double(), rtol=0, atol=tolerance * scale, equal_nan=True), f"\n{g}\nagainst\n{w}\n{text}"


def as_exact(got: Any, plain: Any, truth: Any, dtype: torch.dtype, text: str) -> None:
    """The error may be 4 times that of the same in plain torch, and 4 units in the last place."""
    for g, p, t in zip(listed(got), listed(plain), listed(truth), strict=True):
        if g is None or p is None or t is None:
            close([g], [p], text)
            continue
        scale = float(t.abs().max()) if t.numel() else 0.0
        allowed = 4 * float((p.double() - t).abs().max() if t.numel() else 0) + 4 * torch.finfo(dtype).eps * scale
        error = float((g.double() - t).abs().max()) if t.numel() else 0.0
        assert error <= allowed, f"{dtype}: error {error:.3g}, allowed {allowed:.3g}; {text}"


def listed(value: Any) -> list[Any]:
    if value is None or isinstance(value, Tensor):
        return [value]
    return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in listed(item)]


def transposed(x: Tensor) -> Tensor:
    """The same values, column by column."""
    return x.t().contiguous().t() if x.dim() == 2 else x.movedim(0, -1).contiguous().movedim(-1, 0) if x.dim() > 2 else spread(x)


def spread(x: Tensor) -> Tensor:
    """The same values, every second element of a larger block."""
    if not x.dim():
        return x
    block = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
    block[..., ::2] = x
    return block[..., ::2]


def check_op(op: Any, *, thorough: bool = False, **options: Any) -> pb.Report:
    """Run `pb.check` on the op's samples; an error or a warning is a failure."""
    report = pb.check(op, thorough=thorough, **options)
    bad = [finding for finding in report.findings if finding.severity != "note"]
    assert not bad, f"{report}"
    assert report.ok, f"{report}"
    return report
