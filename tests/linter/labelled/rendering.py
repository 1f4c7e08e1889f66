# ruff: noqa: RUF059
"""Rasterisers, point operators and geometry with compiled extensions, as vision libraries write them."""

import numpy as np
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from . import _C
from ._ext import roi_backward, roi_forward


class RoiPool(Function):
    @staticmethod
    def forward(ctx, features, rois, size, scale=1.0):
        ctx.size = size
        ctx.scale = scale
        ctx.features_shape = features.size()
        out, argmax = _C.roi_pool_forward(features, rois, size, scale)
        ctx.save_for_backward(rois, argmax)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        rois, argmax = ctx.saved_tensors
        grad = _C.roi_pool_backward(grad_output.contiguous(), rois, argmax, ctx.features_shape, ctx.size, ctx.scale)
        return grad, None, None, None, None  # expect: PB302


class RoiAlign(Function):
    @staticmethod
    def forward(ctx, features, rois, size):
        ctx.rois = rois
        ctx.size = size  # expect: PB204
        out = features.new_zeros(rois.size(0), features.size(1), size, size)
        roi_forward(features, rois, out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.new_zeros(1)
        roi_backward(grad_output, ctx.rois, grad)
        return grad, None  # expect: PB109


class BallQuery(Function):
    @staticmethod
    def forward(ctx, radius, nsample, xyz, new_xyz):
        idx = _C.ball_query(new_xyz, xyz, radius, nsample)
        ctx.mark_non_differentiable(idx)
        return idx

    @staticmethod
    def backward(ctx, a=None):
        return None, None, None, None


class Gather(Function):
    @staticmethod
    def forward(ctx, features, idx):
        ctx.for_backwards = (idx, features.size(2))
        return torch.gather(features, 2, idx[:, None].expand(-1, features.size(1), -1))

    @staticmethod
    def backward(ctx, grad_out):
        idx, n = ctx.for_backwards
        out = torch.zeros(*grad_out.shape[:2], n, device=grad_out.device)
        return out.scatter_add_(2, idx[:, None].expand_as(grad_out), grad_out), None


class ThreeInterpolate(Function):
    @staticmethod
    def forward(ctx, features, idx, weight):
        ctx.save_for_backward(idx, weight, features)  # expect: PB203
        ctx.m = features.size(2)
        return _C.three_interpolate(features, idx, weight)

    @staticmethod
    def backward(ctx, grad_out):
        idx, weight, features = ctx.saved_tensors
        return _C.three_interpolate_grad(grad_out.contiguous(), idx, weight, ctx.m), None, None


class Rasterize(Function):
    @staticmethod
    def forward(ctx, means, scales, rotations, opacity, settings):
        n, colour, radii, geom = _C.rasterize(means, scales, rotations, opacity, settings)
        ctx.settings = settings
        ctx.n = n
        ctx.save_for_backward(means, scales, rotations, radii, geom)
        return colour, radii

    @staticmethod
    def backward(ctx, grad_colour, _):
        means, scales, rotations, radii, geom = ctx.saved_tensors
        g = _C.rasterize_backward(means, scales, rotations, radii, geom, grad_colour, ctx.n, ctx.settings)
        means.absgrad = g[1]  # expect: PB215
        return g[0], g[2], g[3]  # expect: PB109


class NumpyDistance(Function):
    @staticmethod
    def forward(ctx, x, y):
        d = np.linalg.norm(x.detach().numpy() - y.detach().numpy())
        ctx.save_for_backward(x, y)
        ctx.d = d
        return x.new_tensor(d)

    @staticmethod
    def backward(ctx, g):  # expect: PB305
        x, y = ctx.saved_tensors
        direction = (x.numpy() - y.numpy()) / ctx.d * g.numpy()
        return torch.from_numpy(direction), torch.from_numpy(-direction)


class FourierShift(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.as_tensor(np.abs(np.fft.rfft2(x.numpy())))

    @staticmethod
    def backward(ctx, g):  # expect: PB305
        out = np.fft.irfft2(g.numpy())
        return torch.as_tensor(out)


class Correlation(Function):
    @staticmethod
    def forward(ctx, first, second, pad=4):
        ctx.save_for_backward(first, second)
        ctx.pad = pad
        with torch.cuda.device_of(first):
            out = first.new()
            _C.correlation(first, second, out, pad)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        first, second = ctx.saved_tensors
        with torch.cuda.device_of(first):
            g1, g2 = first.new(), second.new()
            _C.correlation_backward(first, second, grad_output, g1, g2, ctx.pad)
        return g1, g2  # expect: PB110


def correlate(a, b):
    return Correlation.apply(a, b, 8)


class AlphaComposite(Function):
    @staticmethod
    def forward(ctx, alpha, colour):
        t = torch.cumprod(1 - alpha + 1e-10, -1)
        w = alpha * t
        ctx.weights = w  # expect: PB202
        ctx.save_for_backward(alpha, colour, t)  # expect: PB203
        return (w[..., None] * colour).sum(-2), w

    @staticmethod
    def backward(ctx, g, gw):  # expect: PB116
        alpha, colour, t = ctx.saved_tensors
        gcolour = ctx.weights[..., None] * g[..., None, :]
        galpha = (colour * g[..., None, :]).sum(-1) * t
        return galpha, gcolour


class TruncExp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0]
        return g * torch.exp(x.clamp(-15, 15))


class GridSample(Function):
    @staticmethod
    def forward(ctx, grid, coords, calc_grad_inputs=False):
        out, jac = _C.grid_encode(grid, coords, calc_grad_inputs)
        ctx.save_for_backward(grid, coords, jac)
        ctx.calc = calc_grad_inputs  # expect: PB204
        ctx.dims = [coords.shape[0], grid.shape[-1]]
        return out

    @staticmethod
    def backward(ctx, grad):
        grid, coords, jac = ctx.saved_tensors
        b, d = ctx.dims
        grad = grad.view(b, -1).permute(1, 0).contiguous()  # expect: PB214
        g = torch.zeros_like(grid)
        _C.grid_encode_backward(grad, grid, coords, g, jac)
        return g, None


class SphericalHarmonics(Function):
    @staticmethod
    def forward(ctx, dirs, degree):
        out = torch.stack([torch.ones_like(dirs[..., 0]) * 0.28, dirs[..., 1] * -0.48, dirs[..., 2] * 0.48], -1)
        ctx.dirs = dirs  # expect: PB201
        ctx.degree = degree
        return out

    @staticmethod
    def backward(ctx, g):
        if ctx.degree > 1:
            return None, None
        d = torch.zeros_like(ctx.dirs)
        d[..., 1] = -0.48 * g[..., 1]
        d[..., 2] = 0.48 * g[..., 2]
        return d, None


class Interp(Function):
    @staticmethod
    def forward(ctx, value, table):
        idx = (value * (len(table) - 1)).long().clamp(0, len(table) - 2)
        frac = value * (len(table) - 1) - idx
        ctx.idx = idx
        ctx.frac = frac  # expect: PB201
        ctx.table = table  # expect: PB201
        return table[idx] * (1 - frac) + table[idx + 1] * frac

    @staticmethod
    def backward(ctx, g):
        slope = ctx.table[ctx.idx + 1] - ctx.table[ctx.idx]
        gt = torch.zeros_like(ctx.table)
        gt.index_add_(0, ctx.idx, g * (1 - ctx.frac))
        return g * slope * (len(ctx.table) - 1), gt


class Solve(Function):
    @staticmethod
    def forward(ctx, f, z, *params):
        ctx.f = f
        ctx.n = len(params)  # expect: PB204
        ctx.save_for_backward(z, *params)
        return f.fixed_point(z, *params)

    @staticmethod
    def backward(ctx, g):
        z, *params = ctx.saved_tensors
        grads = ctx.f.adjoint(z, params, g)
        return None, grads[0], *grads[-len(params) :]  # expect: PB112


class SolveDivided(Function):
    @staticmethod
    def forward(ctx, a, b):
        x = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, g):
        a = ctx.saved_tensors[0]
        x = ctx.saved_tensors[1]  # expect: PB308
        gb = torch.linalg.solve(a.mT, g)
        return -gb @ x.mT, gb


class Eigh(Function):
    @staticmethod
    def forward(ctx, a):
        w, v = torch.symeig(a, eigenvectors=True)  # expect: PB310
        ctx.save_for_backward(w, v)
        return w, v

    @staticmethod
    def backward(ctx, gw, gv):
        w, v = ctx.saved_tensors
        f = 1 / (w[None] - w[:, None] + 1e-12)
        f.fill_diagonal_(0)
        return v @ (torch.diag(gw) + f * (v.t() @ gv)) @ v.t()
