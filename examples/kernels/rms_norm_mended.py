"""The kernel of rms_norm.py with a backward that takes any layout of grad_output."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import pullback as pb
from rms_norm_kernel import library


class FusedRMSNorm(Function):
    """x / sqrt(mean(x², last dim) + eps) · weight for float32 tensors on the CPU."""

    @staticmethod
    def forward(ctx, x, weight, eps=1e-6):
        if x.device.type != "cpu" or {x.dtype, weight.dtype} != {torch.float32}:
            raise TypeError(f"FusedRMSNorm takes float32 tensors on the CPU, got {x.dtype} and {weight.dtype} on {x.device}")
        if weight.shape != x.shape[-1:]:
            raise ValueError(f"FusedRMSNorm: weight must have the shape of a row, {tuple(x.shape[-1:])}, got {tuple(weight.shape)}")
        x, weight = x.contiguous(), weight.contiguous()
        y, r = torch.empty_like(x), x.new_empty(x.shape[:-1])
        library().rms_norm(x.data_ptr(), weight.data_ptr(), eps, r.numel(), x.shape[-1], y.data_ptr(), r.data_ptr())
        ctx.save_for_backward(x, weight, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, r = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float64)
        library().rms_norm_backward(
            grad_output.data_ptr(), x.data_ptr(), weight.data_ptr(), r.data_ptr(), r.numel(), x.shape[-1], grad_x.data_ptr(), grad_weight.data_ptr()
        )
        return grad_x, grad_weight.float(), None


def rms_norm_reference(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def pullback_cases():
    x, weight = torch.randn(6, 16, requires_grad=True), torch.rand(16, requires_grad=True)
    yield pb.case(FusedRMSNorm, x, weight).against(rms_norm_reference)
