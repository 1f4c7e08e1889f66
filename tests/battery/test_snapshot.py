"""What the checked code keeps outside of its calls can be put back."""

import functools
import sys
import types

import torch

from pullback.battery.state import Snapshot, pristine
from pullback.capture.calls import resolve_target


def a_module(name):
    module = types.ModuleType(name)
    source = """
import functools, torch
CACHE = {"a": [1]}
SEEN = set()
TABLE = torch.zeros(2)

@functools.cache
def doubled(n):
    return 2 * n

class Op(torch.autograd.Function):
    last = None
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, dy):
        return dy
"""
    sys.modules[name] = module
    exec(source, module.__dict__)
    return module


def disturb(module):
    module.CACHE["b"] = 2
    module.CACHE["a"].append(3)
    module.SEEN.add(1)
    module.TABLE += 1
    module.NEW = 5
    module.Op.last = "x"
    module.doubled(4)


def state(module):
    cached = module.doubled.cache_info().currsize
    return dict(module.CACHE), list(module.CACHE["a"]), set(module.SEEN), module.TABLE.tolist(), hasattr(module, "NEW"), module.Op.last, cached


def test_restores_globals_attributes_containers_tensors_and_caches():
    module = a_module("snapshot_of_state")
    before = state(module)
    identities = module.CACHE, module.TABLE
    snapshot = Snapshot(resolve_target(module.Op))
    disturb(module)
    assert state(module) != before
    snapshot.restore()
    assert state(module) == before
    assert identities[0] is module.CACHE
    assert identities[1] is module.TABLE


def test_what_was_found_is_put_back_after_pristine_work():
    module = a_module("snapshot_put_back")
    target = resolve_target(module.Op)
    snapshot = Snapshot(target)
    before = state(module)
    disturb(module)
    found = state(module)
    with pristine(snapshot, target):
        assert state(module) == before
        module.CACHE.clear()
    # A cache that was filled in the meantime is emptied, since nothing else can be done with it.
    assert state(module)[:-1] == found[:-1]


def test_modules_of_torch_are_left_alone():
    snapshot = Snapshot(resolve_target(torch.sin))
    snapshot.restore()
    assert functools.reduce(lambda a, b: a + b, [1, 2]) == 3


def test_a_cache_that_holds_tensors_without_memory_is_put_back():
    module = a_module("snapshot_of_meta")
    module.CACHE["meta"] = torch.zeros(3, device="meta")
    snapshot = Snapshot(resolve_target(module.Op))
    before = dict(module.CACHE)
    disturb(module)
    snapshot.restore()
    assert before == module.CACHE
