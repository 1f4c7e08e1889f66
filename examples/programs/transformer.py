"""A small transformer language model whose layer norm and activation are custom Functions.

``python examples/programs/transformer.py [--faulty] [--steps N]``. The faulty layer norm reads grad_output as if its rows were packed. Inside the
model time comes first and they are; after the last norm the batch comes first, so that the gradient which comes back there is a transposed one.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn


class LayerNorm(torch.autograd.Function):
    """Normalize rows to mean 0 and variance 1, then scale and shift."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, keepdim=True, correction=0) + eps).rsqrt()
        normal = (x - mean) * rstd
        ctx.save_for_backward(normal, rstd, weight)
        return normal * weight + bias

    @staticmethod
    def rows(dy: Tensor) -> Tensor:
        return dy

    @classmethod
    def gradients(cls, ctx, dy: Tensor):
        normal, rstd, weight = ctx.saved_tensors
        dy = cls.rows(dy)
        batch = tuple(range(dy.dim() - 1))
        dn = dy * weight
        dx = (dn - dn.mean(-1, keepdim=True) - normal * (dn * normal).mean(-1, keepdim=True)) * rstd
        return dx, (dy * normal).sum(batch), dy.sum(batch), None

    @staticmethod
    def backward(ctx, dy: Tensor):
        return LayerNorm.gradients(ctx, dy)


class PackedLayerNorm(LayerNorm):
    """The same, with a backward that takes rows of grad_output to lie one behind the other, as a kernel does that is given a pointer only."""

    @staticmethod
    def rows(dy: Tensor) -> Tensor:
        packed = [1]
        for size in reversed(dy.shape[1:]):
            packed.insert(0, packed[0] * size)
        room = dy.untyped_storage().nbytes() // dy.element_size() - dy.storage_offset()
        return dy.as_strided(dy.shape, packed) if room >= dy.numel() else dy

    @staticmethod
    def backward(ctx, dy: Tensor):
        return PackedLayerNorm.gradients(ctx, dy)


class Swish(torch.autograd.Function):
    """x · sigmoid(x), with only x kept."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * (s + x * s * (1 - s))


class Norm(nn.Module):
    """Layer norm with parameters."""

    def __init__(self, width: int, function: type[LayerNorm]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension of `x`."""
        return self.function.apply(x, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    """Attention and a two-layer network, each after a norm."""

    def __init__(self, width: int, heads: int, function: type[LayerNorm]) -> None:
        super().__init__()
        self.norms = nn.ModuleList([Norm(width, function) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Map `x`, of shape ``[time, batch, width]``."""
        time, batch, width = x.shape
        q, k, v = (t.reshape(time, batch * self.heads, -1).transpose(0, 1) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(0, 1).reshape(time, batch, width))
        return x + self.down(Swish.apply(self.up(self.norms[1](x))))


class Model(nn.Module):
    """A language model over `tokens` symbols, with a memory slot in front of the text."""

    def __init__(self, function: type[LayerNorm], tokens: int = 16, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.slot = nn.Parameter(torch.randn(1, 1, width))
        self.blocks = nn.ModuleList([Block(width, 2, function) for _ in range(2)])
        self.last = Norm(width, function)
        self.head = nn.Linear(width, tokens)

    def forward(self, text: Tensor) -> Tensor:
        """Return logits ``[batch, time, tokens]`` for `text`, of shape ``[batch, time]``."""
        x = self.embed(text).transpose(0, 1)
        x = torch.cat([self.slot.expand(1, text.shape[0], -1), x])
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x[:-1]).transpose(0, 1))


def main() -> None:
    """Train for some steps on sums modulo the number of tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faulty", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    model = Model(PackedLayerNorm if given.faulty else LayerNorm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(given.steps):
        text = torch.randint(16, (4, 8)).cumsum(1) % 16
        loss = nn.functional.cross_entropy(model(text).flatten(0, 1), text.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
