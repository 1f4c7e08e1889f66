"""What a call keeps until backward."""

import functools

import torch

from pullback.capture.saved import kept_by, reachable, saved_names, storages


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        mask = x > 0
        ctx.save_for_backward(x, mask, None)
        ctx.shape = x.shape
        ctx.cache = {"row": y[0]}
        ctx.run = lambda: y
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy


class Branches(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.dim():
            ctx.save_for_backward(x)
        else:
            ctx.save_for_backward(x + 1)
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = tensor


def test_kept_names_and_places():
    x = torch.ones(2, 3, requires_grad=True)
    y = Keeps.apply(x)
    kept = kept_by(y.grad_fn, Keeps)
    assert [(k.path, k.name, k.saved) for k in kept] == [
        ("saved_tensors[0]", "x", True),
        ("saved_tensors[1]", "mask", True),
        ("ctx.cache['row']", "ctx.cache['row']", False),
        ("ctx.run (its closure's y)", "ctx.run (its closure's y)", False),
    ]
    assert [k.attribute for k in kept] == ["", "", "cache", "run"]
    assert kept[0].tensor is x
    assert kept[3].tensor is y


def test_each_memory_block_counts_once_and_whole():
    block = torch.zeros(10, 8)
    assert list(storages([block[0], block[1], block.t()]).values()) == [320]


def test_ambiguous_names_are_not_guessed():
    assert saved_names(Branches, 1) == ["saved_tensors[0]"]
    assert saved_names(Keeps, 2) == ["saved_tensors[0]", "saved_tensors[1]"]


def test_reaches_through_objects_closures_and_partials():
    a, b, c, d = (torch.full((1,), float(i)) for i in range(4))
    c.main_grad = d
    module = torch.nn.Linear(1, 1, bias=False)
    loop = [a]
    loop.append(loop)
    things = {"slot": Slotted(a), "partial": functools.partial(print, b), "tensor": c, "module": module, "loop": loop, "text": "x", "kind": Slotted}
    found = dict(reachable(things, "t"))
    assert {path: value.item() for path, value in found.items() if "module" not in path} == {
        "t['slot'].tensor": 0.0,
        "t['partial'].args[0]": 1.0,
        "t['tensor']": 2.0,
        "t['tensor'].main_grad": 3.0,
    }
    assert found["t['module'].weight"] is module.weight
