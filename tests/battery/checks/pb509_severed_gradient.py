"""Kills and spares of PB509."""

import torch

import pullback as pb


class ForgetsWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        (weight,) = ctx.saved_tensors
        return dy * weight, None


class ForgetsInSetupStyle(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, power):
        return scale * x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, ctx.power = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        return dy * scale * ctx.power * x ** (ctx.power - 1), None, None


class MarksEverything(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.mark_non_differentiable(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


def cuts_the_graph(x):
    return Square.apply(x.detach())


class MaxWithIndex(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        value, index = x.max(-1)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        ctx.mark_non_differentiable(index)
        return value, index

    @staticmethod
    def backward(ctx, dy, _):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.shape).scatter(-1, index.unsqueeze(-1), dy.unsqueeze(-1))


class WithStatistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mean = x.mean()
        ctx.mark_non_differentiable(mean)
        return 2 * x, mean

    @staticmethod
    def backward(ctx, dy, _):
        return 2 * dy


class Unused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, flag=None):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy, None, None


class StopGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return None


class Target(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return (x - target).square().sum()

    @staticmethod
    def backward(ctx, dy):
        x, target = ctx.saved_tensors
        return 2 * dy * (x - target), None


class Codes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul(4).round().to(torch.int64)

    @staticmethod
    def backward(ctx, dy):
        return None


def t(*shape, grad=True):
    return torch.randn(shape, dtype=torch.float64, requires_grad=grad)


kills = [
    pb.case(ForgetsWeight, t(3, 4), t(4)),
    pb.case(ForgetsWeight, t(3, 4), t(4, grad=False)),
    pb.case(ForgetsWeight, t(3, 4).float().detach().requires_grad_(), t(4).float().detach().requires_grad_()),
    pb.case(ForgetsInSetupStyle, t(5), t(), 3),
    pb.case(MarksEverything, t(3)),
    pb.case(cuts_the_graph, t(3)),
]
spares = [
    pb.case(MaxWithIndex, t(3, 4)),
    pb.case(WithStatistics, t(3)),
    pb.case(Unused, t(3), t(3)),
    pb.case(StopGradient, t(3)),
    pb.case(Target, t(3), t(3, grad=False)),
    pb.case(Target, t(3), t(3)).declare(static=["target"], reason="labels"),
    pb.case(Codes, t(3)),
]


class AddsToMainGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.main_grad = w.main_grad
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        ctx.main_grad.add_(x.t() @ dy)
        return dy @ w.t(), None


def with_main_grad():
    w = t(4, 2)
    w.main_grad = torch.zeros(4, 2, dtype=torch.float64)
    return w


spares.append(pb.case(AddsToMainGrad, t(3, 4), with_main_grad()))


class Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        y = x @ weight.t()
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy @ weight, dy.t() @ x, dy.sum(0) if ctx.biased else None


class ForgetsBias(Affine):
    """Whoever tests it without a bias sees nothing."""

    @staticmethod
    def backward(ctx, dy):
        return *Affine.backward(ctx, dy)[:2], None


kills += [pb.case(ForgetsBias, t(3, 4), t(5, 4)), pb.case(ForgetsBias, t(3, 4), t(5, 4), None)]
spares += [
    pb.case(Affine, t(3, 4), t(5, 4)),
    pb.case(Affine, t(3, 4), t(5, 4), None),
    pb.case(ForgetsBias, t(3, 4), t(5, 4)).declare(static=["bias"], reason="never trained"),
]


class WeighsClasses(torch.autograd.Function):
    """A loss whose classes may be weighted: those weights are chosen, not trained."""

    @staticmethod
    def forward(ctx, logits, target, weight=None):
        each = torch.ones_like(logits[:, 0]) if weight is None else weight[target]
        ctx.save_for_backward(logits, target, each)
        return -(each * logits.log_softmax(1).gather(1, target[:, None]).squeeze(1)).sum()

    @staticmethod
    def backward(ctx, dy):
        logits, target, each = ctx.saved_tensors
        return dy * each[:, None] * (logits.softmax(1) - torch.nn.functional.one_hot(target, logits.shape[1])), None, None


class ProjectsAndCompares(torch.autograd.Function):
    """A head and its loss in one: this weight is a parameter, labels or not."""

    @staticmethod
    def forward(ctx, x, weight, target):
        ctx.save_for_backward(x, weight, target)
        return -(x @ weight.t()).log_softmax(1).gather(1, target[:, None]).sum()

    @staticmethod
    def backward(ctx, dy):
        x, weight, target = ctx.saved_tensors
        logits = x @ weight.t()
        return dy * (logits.softmax(1) - torch.nn.functional.one_hot(target, logits.shape[1])) @ weight, None, None


labels = torch.tensor([0, 2, 1])
kills.append(pb.case(ProjectsAndCompares, t(3, 4), t(5, 4).detach(), labels))
spares.append(pb.case(WeighsClasses, t(3, 4), labels))
spares.append(pb.case(WeighsClasses, t(3, 4), labels, torch.tensor([0.2, 0.5, 1.5, 0.7], dtype=torch.float64)))
