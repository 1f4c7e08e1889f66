"""What each process of the distributed tests runs."""

import os
import traceback

import torch
import torch.distributed as dist
import torch.nn.functional as F
from authoring_zoo import linear_gelu, moments, muladd

import pullback as pb


@pb.op(opaque=True, elementwise=True)
def opaque_sin(x):
    return torch.from_numpy(x.numpy().copy()).sin()


@opaque_sin.fake
def _(x):
    return torch.empty_like(x)


@opaque_sin.vjp("x")
def _(dy, x):
    return dy * opaque_cos(x)


@pb.op(opaque=True, elementwise=True)
def opaque_cos(x):
    return torch.from_numpy(x.numpy().copy()).cos()


@opaque_cos.fake
def _(x):
    return torch.empty_like(x)


def placements(x):
    from torch.distributed.tensor import Replicate, Shard

    return [([Replicate()], [Replicate()]), *(([Shard(dim)], [Shard(dim)]) for dim in range(x.ndim))]


opaque_sin.sharding(placements)
opaque_cos.sharding(placements)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Parameter(torch.randn(8, 4))
        self.bias = torch.nn.Parameter(torch.randn(8))
        self.second = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.second(linear_gelu(x, self.first, self.bias)).sin().sum()


def data():
    torch.manual_seed(1)
    return torch.randn(8, 4)


def expected():
    net = Net()
    net(data()).backward()
    return {name: parameter.grad for name, parameter in net.named_parameters()}


def check_ddp(rank, size):
    net = torch.nn.parallel.DistributedDataParallel(Net())
    net(data().chunk(size)[rank]).backward()
    for name, parameter in net.module.named_parameters():
        torch.testing.assert_close(parameter.grad * size, expected()[name])


def check_fsdp(rank, size):
    from torch.distributed.fsdp import fully_shard

    net = Net()
    fully_shard(net)
    net(data().chunk(size)[rank]).backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad.full_tensor() * size, expected()[name])


def check_dtensor(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(2)
    x, w, b = torch.randn(8, 4), torch.randn(8, 4), torch.randn(8)

    def grads(function, *inputs):
        inputs = tuple(value.detach().requires_grad_() for value in inputs)
        out = function(*inputs)
        return torch.autograd.grad(out.sum(), inputs)

    def compare(function, tensors, layouts, reference=None):
        want = grads(reference or function, *tensors)
        got = grads(function, *[distribute_tensor(t, mesh, [p]) for t, p in zip(tensors, layouts, strict=True)])
        for g, e in zip(got, want, strict=True):
            assert isinstance(g, DTensor)
            torch.testing.assert_close(g.full_tensor(), e)

    composite = lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")  # noqa: E731
    for layouts in ([Shard(0), Replicate(), Replicate()], [Replicate(), Shard(0), Shard(0)], [Replicate()] * 3):
        compare(linear_gelu, (x, w, b), layouts, composite)
    compare(muladd, (w, x, b[:4]), [Shard(0), Shard(0), Replicate()], lambda w, x, b: w * x + b)
    for layout in (Shard(0), Shard(1), Replicate()):
        compare(lambda x: opaque_sin(x), (x,), [layout], torch.sin)
    for layout in (Shard(0), Replicate()):
        compare(lambda x: moments(x).mean, (x,), [layout], lambda x: x.mean(-1))


CHECKS = {"ddp": check_ddp, "fsdp": check_fsdp, "dtensor": check_dtensor}


def work(rank, size, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    found = {}
    for name, check in CHECKS.items():
        try:
            check(rank, size)
            found[name] = "equal"
        except Exception:
            found[name] = traceback.format_exc()
            break
    queue.put((rank, found))
    dist.destroy_process_group()
