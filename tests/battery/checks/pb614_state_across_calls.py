"""Kills and spares of PB614."""

import functools

import torch

import pullback as pb

WORK: dict = {}
BUFFER = None
SCALES: dict = {}
BY_ADDRESS: dict = {}


class OnClass(torch.autograd.Function):
    x = None

    @staticmethod
    def forward(ctx, x, p):
        OnClass.x = x.detach()
        return x**p

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return dy * 3 * OnClass.x**2, None


class OnStack(torch.autograd.Function):
    """A global stack: right only if the backwards come in the reverse order."""

    stack: list = []

    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        OnStack.stack.append(inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = OnStack.stack.pop() if len(OnStack.stack) > 1 else OnStack.stack[0]
        return dy * w.detach(), dy * x.detach()


class ReturnsBuffer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        global BUFFER
        (x,) = ctx.saved_tensors
        if BUFFER is None or BUFFER.shape != x.shape or BUFFER.dtype != x.dtype:
            BUFFER = torch.empty_like(x)
        return torch.mul(dy, x.cos(), out=BUFFER)


class KeyWithoutDtype(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        scale = SCALES.setdefault(x.shape[-1], torch.arange(1, x.shape[-1] + 1, dtype=x.dtype))
        ctx.n = x.shape[-1]
        return x * scale

    @staticmethod
    def backward(ctx, dy):
        return dy * SCALES[ctx.n]


class UpdatesTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mean):
        ctx.save_for_backward(x)
        ctx.mean = mean
        return UpdatesTwice.centre(x, mean) ** 3

    @staticmethod
    def centre(x, mean):
        centre = x.mean(0)
        mean.lerp_(centre.detach(), 0.25)
        return x - centre

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = UpdatesTwice.centre(x, ctx.mean) ** 3
        return torch.autograd.grad(y, x, dy)[0], None


class UpdatesOnce(UpdatesTwice):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = UpdatesTwice.centre(x, ctx.mean.clone()) ** 3
        return torch.autograd.grad(y, x, dy)[0], None


class KeyWithDtype(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        key = x.shape[-1], x.dtype
        if key not in WORK:
            WORK[key] = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        ctx.key = key
        return x * WORK[key]

    @staticmethod
    def backward(ctx, dy):
        return dy * WORK[ctx.key]


@functools.lru_cache
def table(n, dtype):
    return torch.linspace(1, 2, n, dtype=dtype)


class Memoised(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * table(x.shape[-1], x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy * table(dy.shape[-1], dy.dtype)


class ByAddress(torch.autograd.Function):
    """Packs a weight once and keeps the packed form with the weight itself, so that the address stays its own."""

    @staticmethod
    def forward(ctx, x, w):
        key = w.data_ptr()
        if key not in BY_ADDRESS or BY_ADDRESS[key][0] is not w:
            BY_ADDRESS[key] = w, w.detach().t().contiguous()
        ctx.packed = key
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class Counts(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Counts.calls += 1
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


kills = [
    pb.case(OnClass, x(3), 3),
    pb.case(OnStack, x(4), x(4)),
    pb.case(ReturnsBuffer, x(2, 3)),
    pb.case(KeyWithoutDtype, x(2, 3)),
    pb.case(UpdatesTwice, x(4, 3), torch.zeros(3, dtype=torch.float64)),
    pb.case(lambda t: ReturnsBuffer.apply(t * 2), x(3)),
]
spares = [
    pb.case(KeyWithDtype, x(2, 3)),
    pb.case(Memoised, x(2, 3)),
    pb.case(ByAddress, x(2, 3), x(3, 2)),
    pb.case(Counts, x(3)),
    pb.case(UpdatesOnce, x(4, 3), torch.zeros(3, dtype=torch.float64)),
]


class FlipsCache(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cache):
        ctx.cache = cache
        return x @ cache["m"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return dy @ ctx.cache["m"].neg_().t().neg(), None


class FillsCache(torch.autograd.Function):
    """Keeps a factor in the cache that it is given, the same in every call."""

    @staticmethod
    def forward(ctx, x, cache):
        ctx.cache = cache
        return x @ cache["m"]

    @staticmethod
    def backward(ctx, dy):
        transposed = ctx.cache.setdefault("t", ctx.cache["m"].t().contiguous())
        return dy @ transposed, None


def cache():
    return {"m": torch.eye(3, dtype=torch.float64) + 1}


kills.append(pb.case(FlipsCache, x(3), cache()))
spares.append(pb.case(FillsCache, x(3), cache()))


class SparseTimesDense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, x):
        ctx.save_for_backward(a)
        return torch.sparse.mm(a, x)

    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return None, torch.sparse.mm(a.t(), dy)


spares.append(pb.case(SparseTimesDense, torch.eye(3, dtype=torch.float64).to_sparse(), x(3, 2)))


class KeepsScaledTable(torch.autograd.Function):
    """One buffer for the weights of all calls; what differs between two calls may be the scale alone."""

    BUFFER: torch.Tensor | None = None

    @classmethod
    def table(cls, codes, scale):
        if KeepsScaledTable.BUFFER is None or KeepsScaledTable.BUFFER.dtype != scale.dtype or KeepsScaledTable.BUFFER.device != scale.device:
            KeepsScaledTable.BUFFER = torch.empty(codes.shape, dtype=scale.dtype, device=scale.device)
        return torch.mul(codes, scale, out=KeepsScaledTable.BUFFER)

    @staticmethod
    def forward(ctx, x, codes, scale):
        ctx.table = KeepsScaledTable.table(codes, scale)
        return x @ ctx.table

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.table.t(), None, None


class ScalesAgain(KeepsScaledTable):
    @staticmethod
    def forward(ctx, x, codes, scale):
        ctx.save_for_backward(codes, scale)
        return x @ KeepsScaledTable.table(codes, scale)

    @staticmethod
    def backward(ctx, dy):
        return dy @ KeepsScaledTable.table(*ctx.saved_tensors).t(), None, None


def quantised():
    codes = torch.arange(-4, 4).reshape(4, 2)
    return torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_(), codes, torch.tensor(0.25, dtype=torch.float64)


kills.append(pb.case(KeepsScaledTable, *quantised()))
spares.append(pb.case(ScalesAgain, *quantised()))


class KeepsFirstNeighbours(torch.autograd.Function):
    """The pairs are kept by how many points there are: another list of pairs gets those of the first."""

    PAIRS: dict = {}

    @staticmethod
    def forward(ctx, points, pairs):
        kept = KeepsFirstNeighbours.PAIRS.setdefault(len(points), pairs.clone())
        ctx.save_for_backward(kept)
        ctx.count = len(points)
        return points[kept[0]] - 2 * points[kept[1]]

    @staticmethod
    def backward(ctx, dy):
        (kept,) = ctx.saved_tensors
        return dy.new_zeros(ctx.count, dy.shape[1]).index_add(0, kept[0], dy).index_add(0, kept[1], -2 * dy), None


class KeepsNeighboursByContents(KeepsFirstNeighbours):
    PAIRS: dict = {}

    @staticmethod
    def forward(ctx, points, pairs):
        kept = KeepsNeighboursByContents.PAIRS.setdefault((len(points), tuple(pairs.reshape(-1).tolist())), pairs.clone())
        ctx.save_for_backward(kept)
        ctx.count = len(points)
        return points[kept[0]] - 2 * points[kept[1]]


class KeepsFirstWindow(torch.autograd.Function):
    """A window's spectrum, kept by its length."""

    SPECTRA: dict = {}

    @staticmethod
    def forward(ctx, signal, window):
        spectrum = KeepsFirstWindow.SPECTRA.setdefault(len(window), torch.fft.rfft(window).abs())
        ctx.save_for_backward(spectrum)
        return signal * spectrum.sum()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0].sum(), None


def pairs():
    return torch.tensor([[0, 1, 2, 3], [1, 2, 3, 1]])


kills.append(pb.case(KeepsFirstNeighbours, x(4, 2), pairs()))
kills.append(pb.case(KeepsFirstWindow, x(3, 4), torch.arange(1.0, 5.0, dtype=torch.float64)))
spares.append(pb.case(KeepsNeighboursByContents, x(4, 2), pairs()))


class KeepsGainOfFirstMode(torch.autograd.Function):
    """A gain made of the shape alone, kept with the digits of whatever mode the first call runs in."""

    GAINS: dict = {}

    @classmethod
    def gain(cls, x):
        key = x.shape[-1], x.dtype, x.device
        if key not in cls.GAINS:
            turn = torch.linspace(0.1, 1.0, x.shape[-1], dtype=x.dtype, device=x.device)
            cls.GAINS[key] = (turn[:, None] @ turn[None]).sum(0).to(x.dtype)
        return cls.GAINS[key]

    @staticmethod
    def forward(ctx, x):
        gain = KeepsGainOfFirstMode.gain(x)
        ctx.save_for_backward(gain)
        return x * gain

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class KeepsGain(KeepsGainOfFirstMode):
    """The same, by operators that autocast leaves alone; whether inference tensors may be kept is another matter."""

    GAINS: dict = {}

    @staticmethod
    def forward(ctx, x):
        key = x.shape[-1], x.dtype, x.device
        if key not in KeepsGain.GAINS:
            turn = torch.linspace(0.1, 1.0, x.shape[-1], dtype=x.dtype, device=x.device)
            KeepsGain.GAINS[key] = (turn[:, None] * turn[None]).sum(0)
        ctx.save_for_backward(KeepsGain.GAINS[key])
        return x * KeepsGain.GAINS[key]


kills.append(pb.case(KeepsGainOfFirstMode, torch.randn(3, 4).requires_grad_()))
spares.append(pb.case(KeepsGain, torch.randn(3, 4).requires_grad_()))


class Lattice:
    def __init__(self):
        self.kept = {}


class KeepsScores(torch.autograd.Function):
    """Running log sums, kept on the lattice at the first call; forward computes its own, backward trusts them."""

    @staticmethod
    def forward(ctx, lattice, scores):
        sums = scores.logcumsumexp(0)
        lattice.kept.setdefault("sums", sums)
        ctx.lattice = lattice
        ctx.save_for_backward(scores)
        return sums[-1] * 1

    @classmethod
    def backward(cls, ctx, dy):
        (scores,) = ctx.saved_tensors
        return None, dy * (scores - cls.sums(ctx, scores)[-1]).exp()

    @staticmethod
    def sums(ctx, scores):
        return ctx.lattice.kept["sums"]


class KeepsNoScores(KeepsScores):
    @staticmethod
    def sums(ctx, scores):
        return scores.logcumsumexp(0)


class KeepsTheWeight(torch.autograd.Function):
    """A cache that the caller hands over for as long as the weight stays what it is: forward uses it as well."""

    @staticmethod
    def forward(ctx, x, w, kept):
        ctx.save_for_backward(x, kept.setdefault("w", w.detach().t().contiguous()))
        return x @ kept["w"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), dy.t() @ x, None


kills.append(pb.case(KeepsScores, Lattice(), x(5)))
spares.append(pb.case(KeepsNoScores, Lattice(), x(5)))
spares.append(pb.case(KeepsTheWeight, x(3, 4), x(2, 4), {}))


class TurnsByTable(torch.autograd.Function):
    """Angles that fall off with the base; backward takes them from a table that is kept for each width, whatever the base was."""

    tables: dict[object, torch.Tensor] = {}

    @staticmethod
    def angles(x, base):
        steps = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)
        return base ** (-steps / x.shape[-1])

    @classmethod
    def kept(cls, x, base):
        key = x.shape[-1], x.dtype, x.device
        if key not in cls.tables:
            cls.tables[key] = cls.angles(x, base)
        return cls.tables[key]

    @classmethod
    def forward(cls, ctx, x, base):
        ctx.base = base
        return x * cls.angles(x, base)

    @classmethod
    def backward(cls, ctx, dy):
        return dy * cls.kept(dy, ctx.base), None


class TurnsByTableOfBase(TurnsByTable):
    tables: dict[object, torch.Tensor] = {}

    @classmethod
    def kept(cls, x, base):
        key = x.shape[-1], x.dtype, x.device, base
        if key not in cls.tables:
            cls.tables[key] = cls.angles(x, base)
        return cls.tables[key]


kills.append(pb.case(TurnsByTable, x(3, 4), 100.0))
spares.append(pb.case(TurnsByTableOfBase, x(3, 4), 100.0))
