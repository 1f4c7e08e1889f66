# ruff: noqa: F821, RUF059
"""Losses whose gradient is made in forward, and the like."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function, Variable


class SmoothCrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, labels, smoothing=0.0):
        n, v = logits.shape
        p = logits.float().softmax(-1)
        target = torch.full_like(p, smoothing / v)
        target.scatter_(1, labels[:, None], 1 - smoothing)
        ctx.save_for_backward((p - target) / n)
        return -(target * p.log()).sum() / n

    @staticmethod
    def backward(ctx, grad_output):
        (grad,) = ctx.saved_tensors
        return grad, None, None  # expect: PB115


class InPlaceLoss(Function):
    @staticmethod
    def forward(ctx, logits, labels):
        logits.sub_(logits.max(-1, keepdim=True).values)  # expect: PB107
        e = logits.exp()
        z = e.sum(-1)
        loss = z.log() - logits.gather(1, labels[:, None])[:, 0]
        e.div_(z[:, None])
        ctx.save_for_backward(e, labels)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, labels = ctx.saved_tensors
        grad_input = softmax
        grad_2d = grad_input.view(-1, grad_input.shape[-1])
        grad_2d[torch.arange(len(labels)), labels] -= 1  # expect: PB104
        grad_input.mul_(grad_output.unsqueeze(-1))  # expect: PB104
        return grad_input, None


class ScaledLoss(Function):
    @staticmethod
    def forward(ctx, x, y, weight=None, reduction="mean"):
        d = x - y
        ctx.save_for_backward(d, weight)
        ctx.reduction = reduction  # expect: PB204
        ctx.n = d.numel()
        return (d * d).mean()

    @staticmethod
    def backward(ctx, grad_output):
        d, weight = ctx.saved_tensors
        g = 2 * d * grad_output.item() / ctx.n  # expect: PB309
        if weight is not None:
            g = g * weight
        return g, -g  # expect: PB110


def weighted(x, y, w):
    return ScaledLoss.apply(x, y, w)


class Dice(Function):
    @staticmethod
    def forward(self, input, target):
        self.save_for_backward(input, target)  # expect: PB203
        eps = 0.0001
        self.inter = torch.dot(input.view(-1), target.view(-1))  # expect: PB201
        self.union = torch.sum(input) + torch.sum(target) + eps  # expect: PB201
        return (2 * self.inter.float() + eps) / self.union.float()

    @staticmethod
    def backward(self, grad_output):
        input, target = self.saved_variables  # expect: PB310
        grad_input = grad_target = None
        if self.needs_input_grad[0]:
            grad_input = grad_output * 2 * (target * self.union - self.inter) / (self.union * self.union)
        if self.needs_input_grad[1]:
            grad_target = None
        return grad_input, grad_target


class Focal(Function):
    @staticmethod
    def forward(ctx, logit, target, gamma: float, alpha: float):
        p = torch.sigmoid(logit)
        ctx.p = p  # expect: PB201
        ctx.gamma = gamma
        ctx.save_for_backward(logit, target)  # expect: PB203
        return -(alpha * (1 - p) ** gamma * target * p.log()).sum()

    @staticmethod
    def backward(ctx, grad_output):
        logit, target = ctx.saved_tensors
        p = ctx.p
        g = (1 - p) ** ctx.gamma * (ctx.gamma * p * p.log() + p - 1)
        return grad_output * g * target, None, None, None, None  # expect: PB302


class HingeRank(Function):
    @staticmethod
    def forward(ctx, scores, labels):
        margin = 1 - labels * scores
        ctx.save_for_backward(scores, labels, margin)
        return margin.clamp(min=0).mean()

    @staticmethod
    def backward(ctx, grad_output):
        scores, labels, margin = ctx.saved_tensors
        grad_output.resize_as_(scores).copy_(labels).mul_(-1)  # expect: PB101
        grad_output.mul_(margin.gt(0).to(scores.dtype))  # expect: PB101
        return grad_output, None


class CtcLike(Function):
    @staticmethod
    def forward(ctx, acts, labels, act_lens, label_lens):
        costs, grads = ctc_engine(acts, labels, act_lens, label_lens)
        costs = torch.FloatTensor([costs.sum()])
        ctx.grads = Variable(grads)  # expect: PB201 PB310
        return costs

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.grads * grad_output.to(ctx.grads.device), None, None, None


class Triplet(Function):
    @staticmethod
    def forward(ctx, anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
        ctx.save_for_backward(anchor, positive, negative)
        ctx.margin = margin  # expect: PB204
        d = (anchor - positive).pow(2).sum(-1) - (anchor - negative).pow(2).sum(-1) + margin
        ctx.active = d > 0
        return d.clamp(min=0).sum()

    @staticmethod
    def backward(ctx, grad_output):
        if not ctx.needs_input_grad[0]:
            return None, None, None, None  # expect: PB113
        anchor, positive, negative = ctx.saved_tensors
        m = (ctx.active.to(anchor.dtype) * 2 * grad_output)[:, None]
        return m * (negative - positive), m * (positive - anchor), m * (anchor - negative), None


class PairwiseKL(Function):
    @staticmethod
    def forward(ctx, p, q):
        lp, lq = p.log(), q.log()
        ctx.save_for_backward(p, q, lp, lq)
        return (p * (lp - lq)).sum()

    @staticmethod
    def backward(ctx, grad_output):
        p, q, lp, lq = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            gp = grad_output * (lp - lq + 1)
        if ctx.needs_input_grad[1]:
            gq = -grad_output * p / q
        return gp, gq  # expect: PB114


class Poly(Function):
    @staticmethod
    def forward(ctx, x, target, epsilon):
        logp = F.log_softmax(x, -1)
        ctx.save_for_backward(logp, target)
        ctx.epsilon = epsilon  # expect: PB204
        pt = logp.gather(-1, target[:, None]).exp()
        return -logp.gather(-1, target[:, None]).mean() + epsilon * (1 - pt).mean(), pt

    @staticmethod
    def backward(ctx, grad_loss, grad_pt):  # expect: PB116
        logp, target = ctx.saved_tensors
        p = logp.exp()
        p.scatter_add_(-1, target[:, None], -torch.ones_like(p))
        return p * grad_loss / len(target), None, None


class ZLoss(Function):
    @staticmethod
    def forward(ctx, logits, scale):
        lse = torch.logsumexp(logits, -1)
        ctx.save_for_backward(logits, lse)
        ctx.scale = scale
        return scale * (lse**2).sum(), lse

    @staticmethod
    def backward(ctx, dloss, dlse):  # expect: PB116
        logits, lse = ctx.saved_tensors
        p = (logits - lse[:, None]).exp()
        return p * (2 * ctx.scale * lse * dloss)[:, None], None


class LabelSmoothTargets(Function):
    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits.softmax(-1), labels)
        return F.cross_entropy(logits, labels)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = torch.ones_like(grad_output)
        p, labels = ctx.saved_tensors
        p = p.clone()
        p[torch.arange(len(labels)), labels] -= 1
        return p / len(labels), None  # expect: PB115


class RankNet(Function):
    @staticmethod
    def forward(ctx, s):
        ctx.save_for_backward(s)
        return F.softplus(s[None] - s[:, None]).sum()

    @staticmethod
    def backward(ctx, grad_output):
        s = ctx.saved_tensors[0]
        d = torch.sigmoid(s[None] - s[:, None])
        return grad_output.view(-1) * (d.sum(0) - d.sum(1))  # expect: PB214


class Distance(Function):
    @staticmethod
    def forward(ctx, a, b):
        return [(a - b).pow(2).sum(-1), (a - b).abs().sum(-1)]  # expect: PB208

    @staticmethod
    def backward(ctx, g2, g1):
        return g2, g1
