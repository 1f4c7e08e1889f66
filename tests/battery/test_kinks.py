"""What is said of the value that backward takes at a kink."""

import torch

import pullback as pb


class Contrast(torch.autograd.Function):
    """Where all rows are equal every entry of the gradient cancels, up to rounding."""

    @staticmethod
    def forward(ctx, a, b, temperature=0.07):
        a_size, b_size = a.norm(dim=-1, keepdim=True), b.norm(dim=-1, keepdim=True)
        logits = (a / a_size) @ (b / b_size).t() / temperature
        ctx.save_for_backward(a / a_size, b / b_size, logits, a_size, b_size)
        ctx.temperature = temperature
        return -logits.log_softmax(-1).diagonal().mean()

    @staticmethod
    def backward(ctx, dy):
        a, b, logits, a_size, b_size = ctx.saved_tensors
        n = logits.shape[0]
        d = dy * (logits.softmax(-1) - torch.eye(n, dtype=dy.dtype, device=dy.device)) / (n * ctx.temperature)
        da, db = d @ b, d.t() @ a
        return (da - a * (a * da).sum(-1, keepdim=True)) / a_size, (db - b * (b * db).sum(-1, keepdim=True)) / b_size, None


class AbsoluteFromTheRight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x < 0, -dy, dy)


def said(function, *inputs):
    return [f.message for f in pb.check(function, inputs, select=["PB502"]).findings]


def test_rounding_is_no_choice():
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(2)]
    assert not [message for message in said(Contrast, *rows) if "at a kink" in message]


def test_a_choice_is_told():
    (message,) = said(AbsoluteFromTheRight, torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64, requires_grad=True))
    assert "takes another value than autograd for x at a kink" in message
