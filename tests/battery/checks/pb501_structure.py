"""Kills and spares of PB501 of what depends on more than one entry: solutions, projections, permutations."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class Permutes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, axes):
        ctx.axes = axes
        return x.permute(axes).contiguous()

    @staticmethod
    def backward(ctx, dy):
        return dy.permute([ctx.axes.index(i) for i in range(len(ctx.axes))]), None


class PermutesTwice(Permutes):
    """Right where the permutation is its own inverse."""

    @staticmethod
    def backward(ctx, dy):
        return dy.permute(ctx.axes), None


class Equilibrium(torch.autograd.Function):
    """A fixed point, reached for small w; for a large one it is lost, and the iteration jumps."""

    @staticmethod
    def forward(ctx, w, x):
        z = torch.zeros_like(x)
        for _ in range(120):
            z = torch.tanh(w @ z + x)
        ctx.save_for_backward(w, z)
        return z

    @staticmethod
    def system(w, z):
        return torch.eye(len(z), dtype=z.dtype, device=z.device) - w.mT * (1 - z * z)

    @classmethod
    def backward(cls, ctx, dy):
        w, z = ctx.saved_tensors
        dx = torch.linalg.solve(cls.system(w, z), dy) * (1 - z * z)
        return dx[:, None] * z, dx


class EquilibriumUntransposed(Equilibrium):
    @staticmethod
    def system(w, z):
        return torch.eye(len(z), dtype=z.dtype, device=z.device) - w * (1 - z * z)[:, None]


def small(*shape):
    return (x(*shape).detach() * 0.2).requires_grad_()


kills += [pb.case(PermutesTwice, x(2, 3, 4), (0, 2, 1)), pb.case(EquilibriumUntransposed, small(4, 4), x(4))]
spares += [pb.case(Permutes, x(2, 3, 4), (0, 2, 1)), pb.case(Permutes, x(2, 3), (1, 0)), pb.case(Equilibrium, small(4, 4), x(4))]


class ProjectsToSimplex(torch.autograd.Function):
    """Bisection for a sparse softmax: its derivative is that of the limit, and the exponent must exceed 1."""

    POWER: float | None = None

    @staticmethod
    def forward(ctx, x, alpha=1.5, n_iter=60):
        low = ((alpha - 1) * x).max(-1, keepdim=True).values - 1
        width = 1.0
        for _ in range(n_iter):
            width /= 2
            heavy = (((alpha - 1) * x - low - width).clamp(min=0) ** (1 / (alpha - 1))).sum(-1, keepdim=True) >= 1
            low = torch.where(heavy, low + width, low)
        p = ((alpha - 1) * x - low).clamp(min=0) ** (1 / (alpha - 1))
        p = p / p.sum(-1, keepdim=True)
        ctx.alpha = alpha
        ctx.save_for_backward(p)
        return p

    @classmethod
    def gradient(cls, ctx, dy):
        (p,) = ctx.saved_tensors
        weight = torch.where(p > 0, p ** (2 - ctx.alpha if cls.POWER is None else cls.POWER), 0.0)
        dx = dy * weight
        return dx - weight * dx.sum(-1, keepdim=True) / weight.sum(-1, keepdim=True), None, None

    @staticmethod
    def backward(ctx, dy):
        return ProjectsToSimplex.gradient(ctx, dy)


class ProjectsByRoot(ProjectsToSimplex):
    """Right for an exponent of 1.5, which everybody uses."""

    POWER = 0.5

    @staticmethod
    def backward(ctx, dy):
        return ProjectsByRoot.gradient(ctx, dy)


def scores():
    return torch.tensor([[0.3, -0.2, 0.9, 0.1], [0.5, 0.4, -0.6, 0.2]], dtype=torch.float64).requires_grad_()


kills.append(pb.case(ProjectsByRoot, scores()))
spares.append(pb.case(ProjectsToSimplex, scores()))
spares.append(pb.case(ProjectsToSimplex, scores(), 1.5, 50))
