"""One rank of a data-parallel run with dropout: prints the rank's mask and the averaged gradient, twice from the same seed."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pullback as pb


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = pb.ops.dropout(self.layer(x), 0.5)
        self.mask = "".join(str(int(bit)) for bit in (y != 0).flatten()[:64])
        return y.sin().sum()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    net = DistributedDataParallel(Net())
    x = torch.linspace(-1, 1, 3 * 64).reshape(3, 64)
    for _ in range(2):
        torch.manual_seed(10 + rank)
        net.zero_grad()
        net(x).backward()
        print(net.module.mask, float(net.module.layer.weight.grad.double().norm()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
