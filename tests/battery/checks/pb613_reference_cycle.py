"""Kills and spares of PB613."""

import torch

import pullback as pb


class OnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.out = x.exp()
        return ctx.out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return dy * ctx.out


class InList(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp(), x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.all = [inputs[0].shape, list(output)]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, de, dd):
        return de * ctx.all[1][0] + 2 * dd


class SavesView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sigmoid()
        ctx.save_for_backward(y.t())
        return y

    @staticmethod
    def backward(ctx, dy):
        (yt,) = ctx.saved_tensors
        return dy * (yt * (1 - yt)).t()


class SavesOutput(SavesView):
    @staticmethod
    def forward(ctx, x):
        y = x.sigmoid()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (y * (1 - y))


class SavesDetachedView(SavesView):
    @staticmethod
    def forward(ctx, x):
        y = x.sigmoid()
        ctx.save_for_backward(y.detach().t())
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (yt,) = ctx.saved_tensors
        return dy * (yt * (1 - yt)).t()


class KeepsLast(SavesOutput):
    """A cache of the last output is no cycle."""

    last = None

    @staticmethod
    def forward(ctx, x):
        KeepsLast.last = SavesOutput.forward(ctx, x)
        return KeepsLast.last


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.exp_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(OnCtx, x(3)), pb.case(InList, x(2, 3)), pb.case(SavesView, x(2, 3)), pb.case(lambda t: OnCtx.apply(t).sum(), x(4))]
spares = [pb.case(SavesOutput, x(2, 3)), pb.case(SavesDetachedView, x(2, 3)), pb.case(KeepsLast, x(2, 3)), pb.case(InPlace, x(3))]
