"""Linear algebra in the styles found in public code."""

from __future__ import annotations

import torch
from torch.autograd import Function


class Inverse(Function):
    expects = ("A",)

    @staticmethod
    def forward(ctx, A):
        inv = torch.linalg.inv(A)
        ctx.save_for_backward(inv)
        return inv

    @staticmethod
    def backward(ctx, g):
        (inv,) = ctx.saved_tensors
        return -inv.mT @ g @ inv.mT


class MatrixSquareRoot(Function):
    """Right for symmetric positive definite matrices only."""

    expects = ("input",)
    domain = "symmetric positive definite"

    @staticmethod
    def forward(ctx, input):
        values, vectors = torch.linalg.eigh(input)
        if (values <= 0).any():
            raise ValueError("input must be positive definite")
        root = vectors @ torch.diag_embed(values.sqrt()) @ vectors.mT
        ctx.save_for_backward(values.sqrt(), vectors)
        return root

    @staticmethod
    def backward(ctx, g):
        s, v = ctx.saved_tensors
        inner = v.mT @ ((g + g.mT) / 2) @ v
        return v @ (inner / (s.unsqueeze(-1) + s.unsqueeze(-2))) @ v.mT


class CholeskySolve(Function):
    """Right for symmetric matrices only: the solution is read as if the whole of K mattered."""

    expects = ("K", "y")
    domain = "symmetric positive definite"

    @staticmethod
    def forward(ctx, K, y):
        L = torch.linalg.cholesky(K)
        x = torch.cholesky_solve(y, L)
        ctx.save_for_backward(L, x)
        return x

    @staticmethod
    def backward(ctx, g):
        L, x = ctx.saved_tensors
        gy = torch.cholesky_solve(g, L)
        return -gy @ x.mT, gy


class LogDet(Function):
    expects = ("matrix",)

    @staticmethod
    def forward(ctx, matrix):
        _, logabs = torch.linalg.slogdet(matrix)
        ctx.save_for_backward(matrix)
        return logabs

    @staticmethod
    def backward(ctx, g):
        (matrix,) = ctx.saved_tensors
        return g[..., None, None] * torch.linalg.inv(matrix).mT


class TriangularSolve(Function):
    """Right for lower triangular matrices only: what lies above the diagonal is never read."""

    expects = ("L", "b")

    @staticmethod
    def forward(ctx, L, b):
        x = torch.linalg.solve_triangular(L, b, upper=False)
        ctx.save_for_backward(L, x)
        return x

    @staticmethod
    def backward(ctx, g):
        L, x = ctx.saved_tensors
        gb = torch.linalg.solve_triangular(L.mT, g, upper=True)
        return (-gb @ x.mT).tril(), gb


class ConjugateGradientSolve(Function):
    """Solves with a symmetric operator given as a callable."""

    expects = ("rhs",)

    @staticmethod
    def forward(ctx, matvec, rhs, max_iter, tol):
        ctx.matvec, ctx.max_iter, ctx.tol = matvec, max_iter, tol
        return ConjugateGradientSolve.solve(matvec, rhs, max_iter, tol)

    @staticmethod
    def solve(matvec, rhs, max_iter, tol):
        x = torch.zeros_like(rhs)
        for _ in range(max_iter):
            x = x + 0.1 * (rhs - matvec(x))
        return x

    @staticmethod
    def backward(ctx, g):
        return None, ConjugateGradientSolve.solve(ctx.matvec, g, ctx.max_iter, ctx.tol), None, None


class PairwiseDistance(Function):
    expects = ("x1", "x2")

    @staticmethod
    def forward(ctx, x1, x2):
        _n, d = x1.shape
        _m, d2 = x2.shape
        if d != d2:
            raise ValueError(f"feature sizes differ: {d} and {d2}")
        dist = (x1.unsqueeze(1) - x2.unsqueeze(0)).pow(2).sum(-1).sqrt()
        ctx.save_for_backward(x1, x2, dist)
        return dist

    @staticmethod
    def backward(ctx, g):
        x1, x2, dist = ctx.saved_tensors
        w = g / dist.clamp(min=1e-12)
        diff = x1.unsqueeze(1) - x2.unsqueeze(0)
        return (w.unsqueeze(-1) * diff).sum(1), -(w.unsqueeze(-1) * diff).sum(0)


class SinkhornPlan(Function):
    expects = ("C",)

    @staticmethod
    def forward(ctx, C, reg, n_iters):
        K = torch.exp(-C / reg)
        _n, m = C.shape
        us, vs = [], []
        v = torch.ones(m, dtype=C.dtype)
        for _ in range(n_iters):
            u = 1.0 / (K @ v)
            us.append(u)
            v = 1.0 / (K.t() @ u)
            vs.append(v)
        ctx.save_for_backward(K, *us, *vs)
        ctx.reg, ctx.n = reg, n_iters
        return u[:, None] * K * v[None, :]

    @staticmethod
    def backward(ctx, g):
        K, *uv = ctx.saved_tensors
        us, vs = uv[: ctx.n], uv[ctx.n :]
        gK = g * us[-1][:, None] * vs[-1][None, :]
        gu, gv = (g * K * vs[-1][None, :]).sum(1), (g * K * us[-1][:, None]).sum(0)
        for i in reversed(range(ctx.n)):
            ga = -gv * vs[i] ** 2
            gK = gK + torch.outer(us[i], ga)
            gu = gu + K @ ga
            gb = -gu * us[i] ** 2
            before = vs[i - 1] if i else torch.ones_like(vs[0])
            gK = gK + torch.outer(gb, before)
            gv, gu = K.t() @ gb, torch.zeros_like(gu)
        return -gK * K / ctx.reg, None, None


class MatrixPower(Function):
    expects = ("M",)

    @staticmethod
    def forward(ctx, M, n):
        assert M.dim() == 2
        assert M.size(0) == M.size(1), "M must be a square matrix"
        powers = [torch.eye(M.size(0), dtype=M.dtype)]
        for _ in range(n):
            powers.append(powers[-1] @ M)
        ctx.powers = powers
        return powers[-1]

    @staticmethod
    def backward(ctx, g):
        n = len(ctx.powers) - 1
        grad = torch.zeros_like(g)
        for i in range(n):
            grad = grad + ctx.powers[i].t() @ g @ ctx.powers[n - 1 - i].t()
        return grad, None


class BatchOuter(Function):
    expects = ("a", "b")

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.bmm(a.unsqueeze(2), b.unsqueeze(1))

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return torch.bmm(g, b.unsqueeze(2)).squeeze(2), torch.bmm(a.unsqueeze(1), g).squeeze(1)


class BilinearForm(Function):
    expects = ("x", "W", "y")

    @staticmethod
    def forward(ctx, x, W, y):
        ctx.save_for_backward(x, W, y)
        return torch.einsum("bi,ij,bj->b", x, W, y)

    @staticmethod
    def backward(ctx, g):
        x, W, y = ctx.saved_tensors
        return g[:, None] * (y @ W.t()), torch.einsum("b,bi,bj->ij", g, x, y), g[:, None] * (x @ W)


class RealFFT(Function):
    expects = ("signal",)

    @staticmethod
    def forward(ctx, signal, n=None):
        ctx.length = signal.size(-1)
        return torch.view_as_real(torch.fft.fft(signal, dim=-1))

    @staticmethod
    def backward(ctx, g):
        return torch.fft.fft(torch.view_as_complex(g.contiguous()).conj(), dim=-1).real, None
