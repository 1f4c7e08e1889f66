"""Kills and spares of PB617."""

import torch

import pullback as pb


class DropsNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, training):
        ctx.factor = 1.25 if training else 1.0
        return x * 1.25 if training else x

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class FirstColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        ctx.shape = x.shape
        return x[:, :count]

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(ctx.shape)
        grad[:, : dy.shape[1]] = dy
        return grad, None


class SplitViews(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x[:2], x[2:]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, d_first, d_rest):
        return torch.cat([d_first, d_rest])


class SplitCopies(SplitViews):
    @staticmethod
    def forward(x):
        return x[:2].clone(), x[2:].clone()


class Flattens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.reshape(-1)

    @staticmethod
    def backward(ctx, dy):
        return dy.reshape(ctx.shape)


class ReturnsDetached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x.detach(), x * y

    @staticmethod
    def backward(ctx, d_same, d_product):
        (y,) = ctx.saved_tensors
        return d_same + d_product * y, None


class NamesAlias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        return dy


class Copies(NamesAlias):
    @staticmethod
    def forward(ctx, x):
        return x.clone()


class AddsInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class AddsInPlaceSetUp(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x.add_(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class PassesIndexOn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.mark_non_differentiable(index)
        ctx.rows = len(x)
        return x[index], index

    @staticmethod
    def backward(ctx, dy, _):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows).index_add_(0, index, dy), None


def gather_across(t):
    return torch.distributed.all_reduce(t) if torch.distributed.is_initialized() else t


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dy):
        return gather_across(dy)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def flattens_inside(a):
    return Flattens.apply(a * 2) * 3


def adds_inside(a, b):
    return AddsInPlace.apply(a * 2, b) * 3


kills = [
    pb.case(DropsNothing, x(3), False),
    pb.case(DropsNothing, x(3), True),
    pb.case(FirstColumns, x(3, 4), 2),
    pb.case(SplitViews, x(5)),
    pb.case(Flattens, x(3, 4)),
    pb.case(ReturnsDetached, x(3), torch.ones(3, dtype=torch.float64)),
    pb.case(flattens_inside, x(3, 4)),
]
spares = [
    pb.case(NamesAlias, x(3)),
    pb.case(Copies, x(3)),
    pb.case(SplitCopies, x(5)),
    pb.case(AddsInPlace, x(3), x(3)),
    pb.case(adds_inside, x(3), x(3)),
    pb.case(AddsInPlaceSetUp, x(3), x(3)),
    pb.case(PassesIndexOn, x(4), torch.tensor([2, 0])),
    pb.case(CopyToRegion, x(3)),
]


@torch.library.custom_op("pb617_kills_and_spares::hands_on", mutates_args=())
def hands_on(x: torch.Tensor, p: float) -> torch.Tensor:
    return x if p == 0.0 else x / (1 - p)


@torch.library.custom_op("pb617_kills_and_spares::copies", mutates_args=())
def copies(x: torch.Tensor, p: float) -> torch.Tensor:
    return x.clone() if p == 0.0 else x / (1 - p)


def keep_p(ctx, inputs, output):
    ctx.p = inputs[1]


def grad_of_scaled(ctx, dy):
    return dy / (1 - ctx.p), None


hands_on.register_autograd(grad_of_scaled, setup_context=keep_p)
copies.register_autograd(grad_of_scaled, setup_context=keep_p)
kills.append(pb.case(hands_on, x(3, 4), 0.3))
spares.append(pb.case(copies, x(3, 4), 0.3))


class Fills(torch.autograd.Function):
    """The product lands in a buffer of the caller, which is returned."""

    @staticmethod
    def forward(ctx, a, b, out):
        ctx.save_for_backward(a, b)
        return torch.mul(a, b, out=out)

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return dy * b, dy * a, None


class FillsMarked(Fills):
    @staticmethod
    def forward(ctx, a, b, out):
        ctx.mark_dirty(out)
        return Fills.forward(ctx, a, b, out)


kills.append(pb.case(Fills, x(3, 4), x(3, 4), torch.zeros(3, 4, dtype=torch.float64)))
spares.append(pb.case(FillsMarked, x(3, 4), x(3, 4), torch.zeros(3, 4, dtype=torch.float64)))
