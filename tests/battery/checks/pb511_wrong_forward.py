"""Kills and spares of PB511."""

import torch

import pullback as pb


class SumOfSquares(torch.autograd.Function):
    """Works in chunks of two rows."""

    @staticmethod
    def forward(ctx, x, weight):
        total = sum((x[i : i + 2].square() * weight[i : i + 2, None]).sum() for i in range(0, len(x), 2))
        ctx.save_for_backward(x, weight)
        return total

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return 2 * dy * x * weight[:, None], dy * x.square().sum(-1)


class FirstChunkOnly(torch.autograd.Function):
    """Gives every chunk the weights of the first, in forward and in backward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight[:2].repeat(len(x) // 2))
        return (x.square() * weight[:2].repeat(len(x) // 2)[:, None]).sum()

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        rows = dy * x.square().sum(-1)
        return 2 * dy * x * weight[:, None], torch.cat([rows.reshape(-1, 2).sum(0), torch.zeros(len(x) - 2, dtype=x.dtype)])


def sum_of_squares(x, weight):
    return (x.square() * weight[:, None]).sum()


class LogOfSum(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.logsumexp(-1), x.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, _):
        (x,) = ctx.saved_tensors
        return dy.unsqueeze(-1) * x.softmax(-1)


class IndexOfMinimum(LogOfSum):
    @staticmethod
    def forward(x):
        return x.logsumexp(-1), x.argmin(-1)


class ZeroIsNegative(torch.autograd.Function):
    """Right everywhere but at an input of exactly zero."""

    @staticmethod
    def forward(ctx, x):
        y = torch.where(x == 0, x - 1, x)
        return y * 2

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class SinglePrecision(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.float().tanh()
        ctx.save_for_backward(y)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return (dy.float() * (1 - y * y)).to(dy.dtype)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def log_of_sum(x):
    return x.logsumexp(-1), x.argmax(-1)


class RightRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x > 0)


class KeptByAddress(torch.autograd.Function):
    kept = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        key = KeptByAddress.key(x)
        if key not in KeptByAddress.kept:
            KeptByAddress.kept[key] = x, x.cosh()
        return KeptByAddress.kept[key][1].clone()

    @staticmethod
    def key(x):
        return x.data_ptr(), x.dtype

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.sinh()


class KeptByVersion(torch.autograd.Function):
    """Keeps its argument alive and asks for its version, so that what is kept is right."""

    kept = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        key = x.data_ptr(), x._version, x.shape, x.dtype
        if key not in KeptByVersion.kept:
            KeptByVersion.kept[key] = x, x.cosh()
        return KeptByVersion.kept[key][1].clone()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.sinh()


class LastRowNeverWritten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        torch.mul(x[:-1], 3, out=y[:-1])
        return y

    @staticmethod
    def backward(ctx, dy):
        return 3 * dy


class Standardised(torch.autograd.Function):
    """By torch's kernel, which gives exact zeros for rows of equal entries, where a formula gives a few times the rounding of the mean."""

    @staticmethod
    def forward(ctx, x):
        y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)
        ctx.save_for_backward(x, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, mean, rstd = ctx.saved_tensors
        h = (x - mean) * rstd
        return rstd * (dy - dy.mean(-1, keepdim=True) - h * (dy * h).mean(-1, keepdim=True))


def standardised(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


zeros = torch.zeros(3, dtype=torch.float64, requires_grad=True)

unsteady = ("LastRowNeverWritten",)
kills = [
    pb.case(FirstChunkOnly, x(4, 3), x(4)).against(sum_of_squares),
    pb.case(FirstChunkOnly, x(4, 3, dtype=torch.float32), x(4, dtype=torch.float32)).against(sum_of_squares),
    pb.case(IndexOfMinimum, x(2, 5)).against(log_of_sum),
    pb.case(ZeroIsNegative, x(5)).against(lambda x: 2 * x),
    pb.case(RightRelu, zeros).against(lambda x: torch.where(x >= 0, x, 0 * x)),
    pb.case(SumOfSquares, x(4, 3), x(4)).against(lambda x, weight: x.square() * weight[:, None]),
    pb.case(KeptByAddress, x(3, 2)).against(torch.cosh),
    pb.case(LastRowNeverWritten, x(3, 2)).against(lambda x: 3 * x),
]
spares = [
    pb.case(SumOfSquares, x(4, 3), x(4)).against(sum_of_squares),
    pb.case(SumOfSquares, x(4, 3, dtype=torch.float32), x(4, dtype=torch.float32)).against(sum_of_squares),
    pb.case(SumOfSquares, x(4, 3, dtype=torch.bfloat16), x(4, dtype=torch.bfloat16)).against(sum_of_squares),
    pb.case(LogOfSum, x(2, 5)).against(log_of_sum),
    pb.case(LogOfSum, x(2, 5)).against(lambda x: x.logsumexp(-1)),
    pb.case(SinglePrecision, x(2, 5)).against(torch.tanh),
    pb.case(RightRelu, x(4)).against(torch.relu),
    pb.case(KeptByVersion, x(3, 2)).against(torch.cosh),
    pb.case(Standardised, x(3, 6)).against(standardised),
]


class MeanInChunks(torch.autograd.Function):
    """The mean of the chunks' means: right in one chunk, and in chunks of one size."""

    @staticmethod
    def weights(x, chunks):
        parts = torch.arange(len(x), device=x.device).chunk(chunks)
        return torch.cat([torch.full((len(p),), 1 / len(p) / len(parts), dtype=x.dtype, device=x.device) for p in parts])

    @classmethod
    def forward(cls, ctx, x, chunks=1):
        w = cls.weights(x, chunks)
        ctx.save_for_backward(w)
        return (x * w).sum()

    @staticmethod
    def backward(ctx, dy):
        (w,) = ctx.saved_tensors
        return w * dy, None


class MeanInEvenChunks(MeanInChunks):
    @staticmethod
    def weights(x, chunks):
        return torch.cat([torch.full((len(p),), 1 / len(x), dtype=x.dtype, device=x.device) for p in x.chunk(chunks)])


kills += [pb.case(MeanInChunks, x(5), 1).against(lambda x, chunks: x.mean()), pb.case(MeanInChunks, x(5)).against(lambda x, *_: x.mean())]
spares += [pb.case(MeanInEvenChunks, x(5), 1).against(lambda x, chunks: x.mean()), pb.case(MeanInEvenChunks, x(5)).against(lambda x, *_: x.mean())]
