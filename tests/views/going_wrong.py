"""Networks that go wrong in a chosen way at a marked line, and a program that trains them."""

import math
from dataclasses import dataclass

import torch
from torch import nn


def line_of(marker):
    with open(__file__, encoding="utf-8") as source:
        return next(number for number, text in enumerate(source, 1) if f"# at {marker}\n" in text)


class DividesByZero(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * dy / (x - x)  # at function backward


class NaNForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x - 1e9).sqrt()  # at function forward

    @staticmethod
    def backward(ctx, dy):
        return dy


class Inner(nn.Module):
    def forward(self, x):
        return (x.abs() - 1e9).log()  # at inner


class Net(nn.Module):
    """A small network that goes wrong in a chosen way."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.inner, self.last = nn.Linear(8, 8), nn.Dropout(0.5), Inner(), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8)
        self.way = ""

    def forward(self, x):
        h = self.norm(self.first(x))
        h = self.ways().get(self.way, lambda h: h)(h)  # at function call
        return self.last(self.drop(h))

    def ways(self):
        return {
            "log": lambda h: (h - 1e9).log(),  # at log
            "sqrt": lambda h: (h * 0).sqrt(),  # at sqrt
            "function": DividesByZero.apply,
            "function forward": NaNForward.apply,
            "overflow": self.overflow,
            "mask": lambda h: h.masked_fill(h == h, -math.inf).softmax(1),  # at mask
            "inner": self.inner,
            "inplace": lambda h: h.clone().sub_(1e9).log_(),  # at inplace
        }

    def overflow(self, h):
        e = torch.exp(1000 * h)  # at exp
        return e / e.sum(1, keepdim=True)  # at division


def program(model, steps=6, bad=4, way="", optimizer=True):
    """Train; return outputs, gradients, buffers and random state of every step."""
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    step = torch.optim.SGD(model.parameters(), 0.01).step if optimizer else lambda: None
    seen = []
    for i in range(steps):
        model.way = way if i == bad else ""
        model.zero_grad()
        y = model(x)
        y.square().mean().backward()
        seen += [y.detach().clone(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers()), torch.get_rng_state()]
        if i != bad:
            step()
    return seen


def net():
    torch.manual_seed(1)
    return Net()


def hooks_of(model):
    return [
        len(hooks) for m in model.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks, m._forward_hooks_with_kwargs, m._backward_hooks)
    ]


class Loss(nn.Module):
    def forward(self, y):
        return (y * 0).sqrt().sum()  # at loss


@dataclass
class Result:
    y: torch.Tensor
    index: torch.Tensor


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)

    def forward(self, x, *, bad=False):
        y = self.shared(self.shared(x))
        return Result((y - 1e9).log() if bad else y, y.argmax(1))  # at container
