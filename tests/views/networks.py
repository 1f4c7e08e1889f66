"""Models whose graphs are drawn in the tests and benchmarks."""

import torch
import torch.nn.functional as F
from torch import nn


class Transformer(nn.Module):
    def __init__(self, layers=12):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(layers))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, wide, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(wide, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.short = nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride != 1 or wide != out else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.short(x))


class ResNet(nn.Module):
    def __init__(self, blocks=(2, 2, 2, 2)):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(8)
        widths = [8 * 2**k for k in range(len(blocks))]
        self.stages = nn.ModuleList()
        for k, (count, out) in enumerate(zip(blocks, widths, strict=True)):
            wide = widths[max(k - 1, 0)]
            self.stages.append(nn.Sequential(*(Block(wide if j == 0 else out, out, 2 if k and j == 0 else 1) for j in range(count))))
        self.fc = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.stem(x))), 3, 2, 1)
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def transformer(layers=12):
    model = Transformer(layers)
    return F.cross_entropy(model(torch.randint(0, 50, (2, 7))).flatten(0, 1), torch.randint(0, 50, (14,))), model


def resnet():
    model = ResNet()
    return model(torch.randn(2, 3, 64, 64)).logsumexp(1).sum(), model


def rnn(steps=1000, stack=False):
    cell, h, seen = nn.RNNCell(4, 8), torch.zeros(2, 8), []
    for x in torch.randn(steps, 2, 4):
        h = cell(x, h)
        seen.append(h)
    return (torch.stack(seen) if stack else h).sum(), cell


def chain(length=100_000):
    x = torch.ones(3, requires_grad=True)
    y = x
    for _ in range(length):
        y = y * 1.0001
    return y, {"x": x}


def branchy(width=12, depth=60):
    """A graph without repetition: every node takes two others, chosen by chance."""
    generator = torch.Generator().manual_seed(0)
    found = [torch.ones(2, requires_grad=True) for _ in range(width)]
    for _ in range(width * depth):
        a, b = torch.randint(max(0, len(found) - 3 * width), len(found), (2,), generator=generator).tolist()
        found.append((found[a] + found[b]).sin() if a % 3 else found[a] * found[b])
    return torch.stack(found).sum(), None
