"""Kills and spares of PB701."""

import torch

import pullback as pb


class ForgetsToMove(torch.autograd.Function):
    """A running sum over the first dimension; vmap takes the batch to be there."""

    @staticmethod
    def forward(x):
        return x.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(0).cumsum(0).flip(0)

    @staticmethod
    def vmap(info, in_dims, x):
        return Running.apply(x), in_dims[0]


class Running(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(0).cumsum(0).flip(0)


class IgnoresInDims(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x

    @staticmethod
    def vmap(info, in_dims, x, w):
        x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
        return IgnoresInDims.apply(x, w), 0


class MovesTheFirstOnly(IgnoresInDims):
    """Right while both inputs are batched in the same place."""

    @staticmethod
    def vmap(info, in_dims, x, w):
        if None in in_dims:
            x = x if in_dims[0] is not None else x.unsqueeze(in_dims[1]).expand_as(w)
            w = w if in_dims[1] is not None else w.unsqueeze(in_dims[0]).expand_as(x)
            in_dims = tuple(next(d for d in in_dims if d is not None) for _ in in_dims)
        return IgnoresInDims.apply(x, w), in_dims[0]


class GradientWithoutRule(torch.autograd.Function):
    """Its own batching rule is right; that of the Function that backward uses is not, which second derivatives meet."""

    @staticmethod
    def forward(x):
        return x.cumsum(0) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return ForgetsToMove.apply((2 * dy * x.cumsum(0)).flip(0)).flip(0)

    @staticmethod
    def vmap(info, in_dims, x):
        x = x.movedim(in_dims[0], 0)
        return torch.stack([GradientWithoutRule.apply(row) for row in x]), 0


class Generated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x.cumsum(0) * w, (x * w).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, ds):
        x, w = ctx.saved_tensors
        return (dy * w).flip(0).cumsum(0).flip(0) + ds * w, dy * x.cumsum(0) + ds * x


class Moves(ForgetsToMove):
    @staticmethod
    def vmap(info, in_dims, x):
        return RunningColumns.apply(x.movedim(in_dims[0], -1)), -1


class RunningColumns(Running):
    pass


class Unbatched(Running):
    """Has setup_context, and no batching rule."""


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(ForgetsToMove, x(4)), pb.case(IgnoresInDims, x(3), x(3)), pb.case(MovesTheFirstOnly, x(3), x(3)), pb.case(GradientWithoutRule, x(4))]
spares = [pb.case(Generated, x(4), x(4)), pb.case(Moves, x(4)), pb.case(Moves, x(4, 2)), pb.case(Unbatched, x(4))]


class LowerFactor(torch.autograd.Function):
    """Defined for positive definite matrices only: entries that change places leave them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a):
        return torch.linalg.cholesky((a + a.mT) / 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, dy):
        (factor,) = ctx.saved_tensors
        lower = (factor.mT @ dy).tril()
        half = torch.linalg.solve_triangular(factor.mT, lower - lower.diagonal(0, -2, -1).diag_embed() / 2, upper=True)
        grad = torch.linalg.solve_triangular(factor, half, upper=False, left=False)
        return (grad + grad.mT) / 2


def definite():
    a = torch.randn(4, 4, dtype=torch.float64)
    return (a @ a.mT + torch.eye(4, dtype=torch.float64)).requires_grad_()


class WrongFactorUnderVmap(LowerFactor):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, a):
        return LowerFactor.apply(a.movedim(in_dims[0], 0)).mT, 0


kills += [pb.case(WrongFactorUnderVmap, definite())]
spares += [pb.case(LowerFactor, definite())]


class RuleDetaches(torch.autograd.Function):
    """The outputs of a batch are right, and carry no gradient."""

    @staticmethod
    def forward(x, w):
        return x * w.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w.tanh(), dy * x / w.cosh() ** 2

    @staticmethod
    def vmap(info, in_dims, x, w):
        x, w = (t if d is None else t.movedim(d, 0) for t, d in zip((x, w), in_dims, strict=True))
        return x.detach() * w.detach().tanh(), 0


class RuleCallsApply(RuleDetaches):
    @staticmethod
    def vmap(info, in_dims, x, w):
        x, w = (t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0) for t, d in zip((x, w), in_dims, strict=True))
        return RuleCallsApply.apply(x, w), 0


kills.append(pb.case(RuleDetaches, torch.randn(3, 4, dtype=torch.float64).requires_grad_(), torch.randn(3, 4, dtype=torch.float64).requires_grad_()))
spares.append(
    pb.case(RuleCallsApply, torch.randn(3, 4, dtype=torch.float64).requires_grad_(), torch.randn(3, 4, dtype=torch.float64).requires_grad_())
)
