"""Loss with integer labels: the mean of -log softmax(x)[label]."""

import torch


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, labels):
        log_p = torch.log_softmax(x, -1)
        ctx.save_for_backward(x, labels)
        return -log_p.gather(1, labels[:, None]).mean()

    @staticmethod
    def backward(ctx, dy):
        x, labels = ctx.saved_tensors
        p = torch.softmax(x, -1)
        one_hot = torch.zeros_like(p).scatter_(1, labels[:, None], 1.0)
        return dy * (p - one_hot) / len(x), None


def inputs():
    return torch.randn(5, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 3, 1, 1, 2])


FAULTS = [
    ("wrong size", "constant-factor", "dy * (p - one_hot) / len(x)", "dy * (p - one_hot)"),
    ("ignored cotangent", "ignores-cotangent", "dy * (p - one_hot) / len(x)", "(p - one_hot) / len(x)"),
    ("sign", "sign", "p - one_hot", "one_hot - p"),
    ("missing term", None, "p - one_hot", "p"),
    ("missing term", None, "p - one_hot", "-one_hot"),
    (
        "off by one",
        None,
        "torch.zeros_like(p).scatter_(1, labels[:, None], 1.0)",
        "torch.zeros_like(p).scatter_(1, ((labels + 1) % x.shape[1])[:, None], 1.0)",
    ),
    ("wrong size", "constant-factor", "len(x)", "x.numel()"),
]
WRAPPED = ["squared cotangent", "partial rows", "low precision inside", "stale gradient", "inputs' strides ignored", "transposed"]
