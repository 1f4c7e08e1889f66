"""The Triton kernels of the fused ops against float64, on CUDA or, as a script under TRITON_INTERPRET=1, on CPU.

``TRITON_INTERPRET=1 python tests/ops/fused_kernels.py`` runs every function of `CHECKS`.
"""

from __future__ import annotations

import itertools
from unittest import mock

import torch
from torch import Tensor

import pullback as pb
from pullback.ops.kernels import gpu

ROUNDINGS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def drawn(*shape: int, device: str, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(device, dtype)


def agree(got: list[Tensor], want: list[Tensor], dtype: torch.dtype, text: str, floor: float = 0.0) -> None:
    """Within the rounding of `dtype`, relative to the norm of the result, or to `floor` where terms of that size cancel."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        error = float((g.double() - w.double()).norm()) if g.numel() else 0.0
        allowed = ROUNDINGS[dtype] * max(float(w.double().norm()), floor)
        assert g.shape == w.shape, f"{text}: result {i} has the shape {list(g.shape)}, not {list(w.shape)}"
        assert error <= allowed, f"{text}: result {i} is off by {error:.3g}, allowed {allowed:.3g}"


def results(function, leaves: list[Tensor], dy: Tensor | None) -> list[Tensor]:
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    out = function(*leaves)
    cotangent = None if dy is None else dy.to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, cotangent)]


def rms_norm(device: str) -> int:
    """Rows of every size class, packed and not, with and without weight."""
    from pullback.ops.fused.rms_norm import rms_norm_reference
    from pullback.ops.kernels import triton_rms_norm

    shapes, dtypes = [(3, 5), (70, 64), (2, 3, 200), (5, 4100), (0, 8), (1,)], (torch.float32, torch.bfloat16)
    with mock.patch.object(triton_rms_norm, "backward", wraps=triton_rms_norm.backward) as used:
        for shape, dtype, weighted in itertools.product(shapes, dtypes, (True, False)):
            x, dy = drawn(*shape, device=device, dtype=dtype), drawn(*shape, device=device, dtype=dtype, seed=1)
            leaves = [x, drawn(shape[-1], device=device, dtype=dtype, seed=2)] if weighted else [x]
            want = results(rms_norm_reference, [leaf.double() for leaf in leaves], dy.double())
            floor = float(dy.double().norm())  # the gradient of a row of one entry is almost nothing
            agree(results(pb.ops.rms_norm, leaves, dy), want, dtype, f"rms_norm {shape} {dtype}", floor)
            if len(shape) == 2:
                spread = [leaves[0].t().contiguous().t(), *leaves[1:]]
                agree(results(pb.ops.rms_norm, spread, dy.t().contiguous().t()), want, dtype, f"rms_norm {shape} {dtype}, column by column", floor)
    return used.call_count


def swiglu(device: str) -> int:
    """Sizes below, at and above a block; layouts that the kernel does not take."""
    from pullback.ops.fused.swiglu import swiglu_reference
    from pullback.ops.kernels import triton_swiglu

    with mock.patch.object(triton_swiglu, "backward", wraps=triton_swiglu.backward) as used:
        for shape, dtype in itertools.product([(3,), (1024,), (30, 70), (0, 4)], ROUNDINGS):
            gate, up, dy = (drawn(*shape, device=device, dtype=dtype, seed=i) for i in range(3))
            want = results(swiglu_reference, [gate.double(), up.double()], dy.double())
            agree(results(pb.ops.swiglu, [gate, up], dy), want, dtype, f"swiglu {shape} {dtype}")
            if len(shape) == 2:
                spread = [gate.t().contiguous().t(), up]
                agree(results(pb.ops.swiglu, spread, dy), want, dtype, f"swiglu {shape} {dtype}, column by column")
    return used.call_count


def softmax_cross_entropy(device: str) -> int:
    """Every option, classes fewer and more than a block, rows that do not count."""
    from pullback.ops.fused.softmax_cross_entropy import softmax_cross_entropy_reference
    from pullback.ops.kernels import triton_cross_entropy

    options = [{}, {"label_smoothing": 0.2, "reduction": "sum"}, {"soft_cap": 3.0, "z_loss": 0.05, "reduction": "none"}]
    with mock.patch.object(triton_cross_entropy, "gradients", wraps=triton_cross_entropy.gradients) as used:
        for (rows, classes), dtype, option in itertools.product([(4, 7), (3, 9000), (1, 1)], (torch.float32, torch.bfloat16), options):
            logits = 3 * drawn(rows, classes, device=device, dtype=dtype)
            target = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(3)).to(device)
            if rows > 1:
                target[1] = -100
            dy = drawn(rows, device=device, dtype=torch.float32, seed=1) if option.get("reduction") == "none" else None
            text = f"softmax_cross_entropy [{rows}, {classes}] {dtype} {option}"
            want = results(lambda z, target=target, option=option: softmax_cross_entropy_reference(z, target, **option), [logits.double()], dy)
            for layout in (logits, logits.t().contiguous().t()):
                got = results(lambda z, target=target, option=option: pb.ops.softmax_cross_entropy(z, target, **option), [layout], dy)
                agree(got, want, dtype, text, float(logits.double().norm()) if classes == 1 else 0.0)
    return used.call_count


def linear_cross_entropy(device: str) -> int:
    """In chunks, with gradients made in forward or in backward."""
    from pullback.ops.fused import _chunked
    from pullback.ops.fused.linear_cross_entropy import linear_cross_entropy_reference
    from pullback.ops.kernels import triton_cross_entropy

    small = mock.patch.multiple(_chunked, CHUNK={"cpu": 64}, LEAST={"cpu": 3}, GPU_CHUNK=64, GPU_LEAST=3)
    with small, mock.patch.object(triton_cross_entropy, "gradients", wraps=triton_cross_entropy.gradients) as used:
        for dtype, recompute in itertools.product((torch.float32, torch.bfloat16), (False, True)):
            leaves = [drawn(*shape, device=device, dtype=dtype, seed=i) for i, shape in enumerate(((8, 16), (11, 16), (11,)))]
            target = torch.tensor([0, 3, -100, 10, 5, 5, 1, 2], device=device)

            def call(op, target=target, **option):
                return lambda x, w, b: op(x, w, target, b, label_smoothing=0.1, z_loss=0.01, **option)

            want = results(call(linear_cross_entropy_reference), [leaf.double() for leaf in leaves], None)
            got = results(call(pb.ops.linear_cross_entropy, recompute=recompute), leaves, None)
            agree(got, want, dtype, f"linear_cross_entropy {dtype} recompute={recompute}")
    return used.call_count


CHECKS = (rms_norm, swiglu, softmax_cross_entropy, linear_cross_entropy)


def interpret_loops() -> None:
    """Let the interpreter of triton 3.6 run ``for`` loops with numpy 2.4, which no longer makes an integer of an array of one entry."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


if __name__ == "__main__":
    interpret_loops()
    gpu.DEVICES.append("cpu")
    for check in CHECKS:
        print(f"{check.__name__}: the kernel ran {check('cpu')} times")
