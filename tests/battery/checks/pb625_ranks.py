"""Kills and spares of PB625 with an axis more or less."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class FullyConnected(torch.autograd.Function):
    """Any number of leading axes, as forward says."""

    @staticmethod
    def forward(ctx, x, w, bias):
        ctx.save_for_backward(x, w)
        return torch.addmm(bias, x, w.t()) if x.dim() == 2 else x @ w.t() + bias

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w, dy.flatten(0, -2).t() @ x.flatten(0, -2), dy.flatten(0, -2).sum(0)


class FullyConnectedMatrices(FullyConnected):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w, dy.t() @ x, dy.sum(0)


class MatricesOnly(FullyConnectedMatrices):
    """Takes stacks of matrices by broadcasting; nothing says that they are meant."""

    @staticmethod
    def forward(ctx, x, w, bias):
        ctx.save_for_backward(x, w)
        return x @ w.t() + bias


class Centres(torch.autograd.Function):
    """Deviations from the mean of all entries behind the first two axes."""

    @staticmethod
    def forward(ctx, x):
        z = x.reshape(x.shape[0], x.shape[1], -1)
        ctx.save_for_backward(x)
        return (z - z.mean(-1, keepdim=True)).square().view(x.shape)

    @staticmethod
    def gradient(x, dy, entries):
        z = x.reshape(x.shape[0], x.shape[1], -1)
        d = 2 * (z - z.mean(-1, keepdim=True)) * dy.reshape(z.shape)
        return (d - d.sum(-1, keepdim=True) / entries).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return Centres.gradient(x, dy, x[0, 0].numel())


class CentresByLastAxis(Centres):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return Centres.gradient(x, dy, dy.shape[-1])


class PerGroup(torch.autograd.Function):
    """The second argument may lack the axis of groups."""

    @staticmethod
    def forward(ctx, u, b):
        ctx.grouped = b.dim() != 2
        b = b if ctx.grouped else b[:, None]
        ctx.save_for_backward(u, b)
        length = u.shape[-1]
        return (u.view(len(u), b.shape[1], -1, length) * b[:, :, None]).view(u.shape)

    @staticmethod
    def backward(ctx, dy):
        u, b = ctx.saved_tensors
        length = u.shape[-1]
        dy = dy.view(len(u), b.shape[1], -1, length)
        db = (dy * u.view(dy.shape)).sum(2)
        return (dy * b[:, :, None]).view(u.shape), db if ctx.grouped else db[:, 0]


class PerGroupKeepsAxis(PerGroup):
    @staticmethod
    def backward(ctx, dy):
        u, b = ctx.saved_tensors
        length = u.shape[-1]
        dy = dy.view(len(u), b.shape[1], -1, length)
        return (dy * b[:, :, None]).view(u.shape), (dy * u.view(dy.shape)).sum(2)


class PicksClass(torch.autograd.Function):
    """Indexing takes a third axis, of which nobody thought."""

    @staticmethod
    def forward(ctx, logits, target):
        p = logits.softmax(-1)
        rows = torch.arange(len(target), device=logits.device)
        ctx.save_for_backward(p, target)
        return -p[rows, target].log()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        p, target = ctx.saved_tensors
        d = p.clone()
        d[torch.arange(len(target), device=p.device), target] -= 1
        return d * dy[:, None], None


kills += [
    pb.case(FullyConnectedMatrices, x(3, 4), x(5, 4), x(5)),
    pb.case(CentresByLastAxis, x(2, 3, 5)),
    pb.case(PerGroupKeepsAxis, x(2, 4, 5), x(2, 2, 5)),
]
spares += [
    pb.case(FullyConnected, x(3, 4), x(5, 4), x(5)),
    pb.case(MatricesOnly, x(3, 4), x(5, 4), x(5)),
    pb.case(Centres, x(2, 3, 5)),
    pb.case(PerGroup, x(2, 4, 5), x(2, 2, 5)),
    pb.case(PicksClass, x(3, 5), torch.tensor([0, 4, 2])),
]


class Determinant(torch.autograd.Function):
    """Forward takes batches of matrices; backward scales the inverse of one."""

    @staticmethod
    def forward(ctx, a):
        y = torch.linalg.det(a + 4 * torch.eye(a.shape[-1]).to(a)) + 0 * a.diagonal(dim1=-2, dim2=-1).sum(-1)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        a, y = ctx.saved_tensors
        return (dy * y) * torch.linalg.inv(a + 4 * torch.eye(a.shape[-1]).to(a)).mT


class DeterminantOfBatches(Determinant):
    @staticmethod
    def backward(ctx, dy):
        a, y = ctx.saved_tensors
        return (dy * y)[..., None, None] * torch.linalg.inv(a + 4 * torch.eye(a.shape[-1]).to(a)).mT


class DeterminantOfOne(Determinant):
    """Nothing says that batches are meant: what linalg takes besides is not promised."""

    @staticmethod
    def forward(ctx, a):
        y = torch.linalg.det(a + 4 * torch.eye(a.shape[-1]).to(a))
        ctx.save_for_backward(a, y)
        return y


kills.append(pb.case(Determinant, x(3, 3)))
spares.append(pb.case(DeterminantOfBatches, x(3, 3)))
spares.append(pb.case(DeterminantOfOne, x(3, 3)))


class Projects(torch.autograd.Function):
    """Matmul and mT take stacks of matrices as well, which nobody meant."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mT @ b

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return torch.einsum("ij,kj->ik", b, dy), a @ dy


spares.append(pb.case(Projects, x(3, 3), x(3, 4)))


class SharedOrNot(torch.autograd.Function):
    """One matrix for all rows, or one for each, as the code asks; nobody spoke of more axes."""

    @staticmethod
    def forward(ctx, a, p):
        ctx.save_for_backward(a, p)
        ctx.shared = a.dim() == 2
        return (a.expand(len(p), *a.shape[-2:]) if ctx.shared else a).matmul(p[:, :, None]).squeeze(-1)

    @staticmethod
    def backward(ctx, dy):
        a, p = ctx.saved_tensors
        da = dy[:, :, None] * p[:, None]
        return da.sum(0) if ctx.shared else da, (dy[:, None] @ a)[:, 0]


spares.append(pb.case(SharedOrNot, x(2, 3, 3), x(2, 3)))


class SquaredDistance(torch.autograd.Function):
    """The mean over all rows, however many axes they are laid out in."""

    @staticmethod
    def forward(ctx, x, target):
        d = x - target
        ctx.save_for_backward(d)
        return d.square().sum(-1).mean()

    @staticmethod
    def rows(d):
        return d.shape[:-1].numel()

    @classmethod
    def backward(cls, ctx, dy):
        (d,) = ctx.saved_tensors
        grad = 2 * d * dy / cls.rows(d)
        return grad, -grad


class SquaredDistanceOfBatch(SquaredDistance):
    @staticmethod
    def rows(d):
        return d.shape[0]


class SquaredDistanceOfRows(SquaredDistanceOfBatch):
    """Divides by the batch in both: at one more axis another loss, and its gradient."""

    @staticmethod
    def forward(ctx, x, target):
        d = x - target
        ctx.save_for_backward(d)
        return d.square().sum() / d.shape[0]


class EntropyOfColumns(torch.autograd.Function):
    """The second axis is that of the classes, also where another comes first: then the backward for matrices is wrong, but nobody meant that."""

    @staticmethod
    def forward(ctx, x):
        p = torch.softmax(x, 1)
        ctx.save_for_backward(p)
        return -(p * p.log()).sum(1).mean()

    @staticmethod
    def backward(ctx, dy):
        (p,) = ctx.saved_tensors
        q = p.log() + 1
        return dy / len(p) * p * ((p * q).sum(1, keepdim=True) - q)


kills.append(pb.case(SquaredDistanceOfBatch, x(3, 5), x(3, 5)))
spares += [
    pb.case(SquaredDistance, x(3, 5), x(3, 5)),
    pb.case(SquaredDistanceOfRows, x(3, 5), x(3, 5)),
    pb.case(EntropyOfColumns, x(3, 5)),
]


class Messages(torch.autograd.Function):
    """One weight an edge and channel, or fewer of either; of both the smaller rank is filled up behind the first axis."""

    @staticmethod
    def filled(t, rank):
        return t.reshape(t.shape[:1] + (1,) * (rank - t.dim()) + t.shape[1:])

    @staticmethod
    def forward(ctx, h, e):
        rank = max(h.dim(), e.dim())
        ctx.save_for_backward(h, e)
        return Messages.filled(h, rank) * Messages.filled(e, rank)

    @classmethod
    def backward(cls, ctx, dy):
        h, e = ctx.saved_tensors
        grads = dy * Messages.filled(e, dy.dim()), dy * Messages.filled(h, dy.dim())
        return tuple(cls.reduced(g, t) for g, t in zip(grads, (h, e), strict=True))

    @staticmethod
    def reduced(grad, t):
        return grad if grad.shape == t.shape else grad.sum(-1).reshape(t.shape)


class MessagesOfAnyRank(Messages):
    @staticmethod
    def reduced(grad, t):
        return grad.sum_to_size(Messages.filled(t, grad.dim()).shape).reshape(t.shape)


kills.append(pb.case(Messages, x(4, 3), x(4, 1)))
spares.append(pb.case(MessagesOfAnyRank, x(4, 3), x(4, 1)))
