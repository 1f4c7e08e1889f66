"""Losses in the styles found in public code."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function


class MSE(Function):
    expects = ("pred",)

    @staticmethod
    def forward(ctx, pred, target, reduction="mean"):
        diff = pred - target
        ctx.save_for_backward(diff)
        ctx.reduction = reduction
        if reduction == "mean":
            return diff.pow(2).mean()
        elif reduction == "sum":
            return diff.pow(2).sum()
        return diff.pow(2)

    @staticmethod
    def backward(ctx, g):
        (diff,) = ctx.saved_tensors
        scale = 2.0 / diff.numel() if ctx.reduction == "mean" else 2.0
        return g * scale * diff, None, None


class CrossEntropyFn(Function):
    expects = ("logits",)

    @staticmethod
    def forward(ctx, logits, target, ignore_index=-100):
        logp = F.log_softmax(logits, dim=1)
        keep = target != ignore_index
        picked = logp.gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)
        n = keep.sum().clamp(min=1)
        ctx.save_for_backward(logp, target, keep)
        ctx.n = n
        return -(picked * keep).sum() / n

    @staticmethod
    def backward(ctx, grad):
        logp, target, keep = ctx.saved_tensors
        g = logp.exp()
        g.scatter_add_(1, target.clamp(min=0).unsqueeze(1), -torch.ones_like(g[:, :1]))
        return grad * g * keep.unsqueeze(1) / ctx.n, None, None


class SigmoidFocalLoss(Function):
    expects = ("logits",)

    @staticmethod
    def forward(ctx, logits, targets, gamma, alpha):
        p = torch.sigmoid(logits)
        pt = p * targets + (1 - p) * (1 - targets)
        at = alpha * targets + (1 - alpha) * (1 - targets)
        ctx.save_for_backward(p, targets)
        ctx.gamma, ctx.alpha = gamma, alpha
        return -at * (1 - pt) ** gamma * pt.log()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        gamma, alpha = ctx.gamma, ctx.alpha
        pt = p * t + (1 - p) * (1 - t)
        at = alpha * t + (1 - alpha) * (1 - t)
        dpt = (2 * t - 1) * p * (1 - p)
        d = at * (gamma * (1 - pt) ** (gamma - 1) * pt.log() - (1 - pt) ** gamma / pt) * dpt
        return g * d, None, None, None


class LabelSmoothingCE(Function):
    expects = ("logits",)

    @staticmethod
    def forward(ctx, logits, labels, smoothing=0.1):
        num_classes = logits.size(-1)
        logp = logits.log_softmax(-1)
        q = torch.full_like(logp, smoothing / num_classes)
        q.scatter_(-1, labels.unsqueeze(-1), 1 - smoothing + smoothing / num_classes)
        ctx.save_for_backward(logp, q)
        return -(q * logp).sum(-1)

    @staticmethod
    def backward(ctx, g):
        logp, q = ctx.saved_tensors
        return g.unsqueeze(-1) * (logp.exp() * q.sum(-1, keepdim=True) - q), None, None


class HuberLossFn(Function):
    expects = ("x", "y")

    @staticmethod
    def forward(ctx, x, y, delta=1.5):
        d = x - y
        ctx.save_for_backward(d)
        ctx.delta = delta
        a = d.abs()
        return torch.where(a < delta, 0.5 * d * d, delta * (a - 0.5 * delta)).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        gx = g * d.clamp(-ctx.delta, ctx.delta) / d.numel()
        return gx, -gx, None


class DiceCoeff(Function):
    expects = ("input",)

    @staticmethod
    def forward(ctx, input, target):
        ctx.save_for_backward(input, target)
        ctx.inter = torch.dot(input.view(-1), target.view(-1))
        ctx.union = torch.sum(input) + torch.sum(target) + 1e-4
        return (2 * ctx.inter + 1e-4) / ctx.union

    @staticmethod
    def backward(ctx, grad_output):
        _, target = ctx.saved_tensors
        grad_input = grad_target = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output * (2 * target * ctx.union - (2 * ctx.inter + 1e-4)) / (ctx.union * ctx.union)
        return grad_input, grad_target


class TripletMargin(Function):
    expects = ("anchor", "positive", "negative")

    @staticmethod
    def forward(ctx, anchor, positive, negative, margin):
        dp, dn = (anchor - positive).pow(2).sum(1), (anchor - negative).pow(2).sum(1)
        loss = (dp - dn + margin).clamp(min=0)
        ctx.save_for_backward(anchor, positive, negative, loss > 0)
        return loss.sum()

    @staticmethod
    def backward(ctx, g):
        a, p, n, active = ctx.saved_tensors
        m = g * active.to(a.dtype).unsqueeze(1) * 2
        return m * (n - p), m * (p - a), m * (a - n), None


class KLWithLogits(Function):
    expects = ("student_logits",)

    @staticmethod
    def forward(ctx, student_logits, teacher_logits, T):
        p = torch.softmax(teacher_logits / T, dim=1)
        logq = torch.log_softmax(student_logits / T, dim=1)
        ctx.save_for_backward(p, logq)
        ctx.T = T
        return (p * (p.log() - logq)).sum() * T**2 / p.size(0)

    @staticmethod
    def backward(ctx, g):
        p, logq = ctx.saved_tensors
        return g * ctx.T * (logq.exp() - p) / p.size(0), None, None


class BCEPosWeight(Function):
    expects = ("logit",)

    @staticmethod
    def forward(ctx, logit, label, pos_weight=None):
        w = torch.ones_like(logit) if pos_weight is None else pos_weight
        ctx.save_for_backward(logit, label, w)
        return (w * label * F.softplus(-logit) + (1 - label) * F.softplus(logit)).mean()

    @staticmethod
    def backward(ctx, g):
        logit, label, w = ctx.saved_tensors
        s = torch.sigmoid(logit)
        return g * (-w * label * (1 - s) + (1 - label) * s) / logit.numel(), None, None


class QuantileLoss(Function):
    expects = ("preds",)

    @staticmethod
    def forward(ctx, preds, target, quantiles: tuple):
        assert preds.size(0) == target.size(0)
        errors = target.unsqueeze(-1) - preds
        q = torch.tensor(quantiles, dtype=preds.dtype)
        ctx.save_for_backward(errors, q)
        return torch.max((q - 1) * errors, q * errors).sum(-1).mean()

    @staticmethod
    def backward(ctx, g):
        errors, q = ctx.saved_tensors
        n = errors[..., 0].numel()
        return -g * torch.where(errors > 0, q.expand_as(errors), (q - 1).expand_as(errors)) / n, None, None


class AddAuxiliaryLoss(Function):
    expects = ("x", "loss")
    exact = False

    @staticmethod
    def forward(ctx, x, loss):
        assert loss.numel() == 1
        ctx.dtype = loss.dtype
        ctx.required_aux_loss = loss.requires_grad
        return x

    @staticmethod
    def backward(ctx, grad_output):
        grad_loss = None
        if ctx.required_aux_loss:
            grad_loss = torch.ones(1, dtype=ctx.dtype, device=grad_output.device)
        return grad_output, grad_loss


class HingeMulticlass(Function):
    expects = ("scores",)

    @staticmethod
    def forward(ctx, scores, y, margin=1.0):
        n = scores.shape[0]
        correct = scores[torch.arange(n), y].unsqueeze(1)
        margins = (scores - correct + margin).clamp(min=0)
        margins[torch.arange(n), y] = 0
        ctx.save_for_backward(margins, y)
        return margins.sum() / n

    @staticmethod
    def backward(ctx, g):
        margins, y = ctx.saved_tensors
        n = margins.shape[0]
        d = (margins > 0).to(margins.dtype)
        d[torch.arange(n), y] = -d.sum(1)
        return g * d / n, None, None


class InfoNCE(Function):
    expects = ("queries", "keys")

    @staticmethod
    def forward(ctx, queries, keys, temperature):
        logits = queries @ keys.t() / temperature
        assert logits.size(0) == logits.size(1), "queries and keys must pair up"
        p = logits.softmax(1)
        ctx.save_for_backward(queries, keys, p)
        ctx.temperature = temperature
        return -torch.diagonal(logits.log_softmax(1)).mean()

    @staticmethod
    def backward(ctx, g):
        q, k, p = ctx.saved_tensors
        d = g * (p - torch.eye(p.size(0), dtype=p.dtype)) / p.size(0) / ctx.temperature
        return d @ k, d.t() @ q, None


class LossByParts(Function):
    """A count that only slices tell to be whole."""

    expects = ("scores",)

    @staticmethod
    def forward(ctx, scores, wanted, part_length):
        ctx.save_for_backward(scores, wanted)
        ctx.part_length = part_length
        losses = []
        for i in range(math.ceil(scores.shape[0] / part_length)):
            here = slice_of(scores, i, part_length), wanted[i * part_length : (i + 1) * part_length]
            losses.append((here[0] - here[1]).square().sum(-1))
        return torch.cat(losses)

    @staticmethod
    def backward(ctx, dy):
        scores, wanted = ctx.saved_tensors
        return 2 * dy.unsqueeze(-1) * (scores - wanted), None, None


def slice_of(tensor, i, length):
    return tensor[i * length : (i + 1) * length]
