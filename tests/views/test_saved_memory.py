"""Bytes kept for backward equal what was constructed, whoever keeps them and however they are hidden."""

import functools
import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import pullback as pb

F64 = 8


def leaf(*shape):
    return torch.ones(*shape, dtype=torch.float64, requires_grad=True)


def keeping(keep):
    """Return an op of one tensor whose forward runs ``keep(ctx, x)``, and that keeps nothing else."""

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            keep(ctx, x)
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    return Keeps.apply


def fresh(count):
    return torch.zeros(count, dtype=torch.float64)


@dataclass
class Cache:
    table: torch.Tensor


class Slotted:
    __slots__ = ("table",)

    def __init__(self, table):
        self.table = table


def on_ctx(value_of):
    return keeping(lambda ctx, x: setattr(ctx, "kept", value_of(x)))


def saving(*tensors_of):
    return keeping(lambda ctx, x: ctx.save_for_backward(*(make(x) for make in tensors_of)))


def closure_of(tensor):
    return lambda: tensor


def default_argument(tensor):
    def read(kept=tensor):
        return kept

    return read


def same_twice(ctx, x):
    table = fresh(7)
    ctx.save_for_backward(table)
    ctx.again = {"t": table}


def saved_output():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.saved_tensors[0]

    return Exp.apply(leaf(5))


def packed(pack, make):
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        return make()


CASES = {
    "nothing": (lambda: keeping(lambda ctx, x: None)(leaf(4)), 0),
    "a new tensor": (lambda: saving(lambda x: fresh(6))(leaf(4)), 6 * F64),
    "an argument": (lambda: saving(lambda x: x)(leaf(4)), 4 * F64),
    "an argument twice": (lambda: saving(lambda x: x, lambda x: x)(leaf(4)), 4 * F64),
    "an output": (saved_output, 5 * F64),
    "a view of a large storage": (lambda: saving(lambda x: fresh(1000)[:3])(leaf(4)), 1000 * F64),
    "two views of one storage": (lambda: saving(lambda x: x[:2], lambda x: x[2:])(leaf(4)), 4 * F64),
    "a transposed argument": (lambda: saving(lambda x: x.t())(leaf(3, 5)), 15 * F64),
    "an expanded tensor": (lambda: saving(lambda x: fresh(1).expand(1000))(leaf(4)), 1 * F64),
    "an attribute": (lambda: on_ctx(lambda x: fresh(9))(leaf(4)), 9 * F64),
    "a list": (lambda: on_ctx(lambda x: [fresh(1), fresh(2)])(leaf(4)), 3 * F64),
    "a dict of dicts": (lambda: on_ctx(lambda x: {"a": {"b": fresh(5)}})(leaf(4)), 5 * F64),
    "a dataclass": (lambda: on_ctx(lambda x: Cache(fresh(8)))(leaf(4)), 8 * F64),
    "an object": (lambda: on_ctx(lambda x: SimpleNamespace(deep=SimpleNamespace(table=fresh(11))))(leaf(4)), 11 * F64),
    "slots": (lambda: on_ctx(lambda x: Slotted(fresh(12)))(leaf(4)), 12 * F64),
    "a closure": (lambda: on_ctx(lambda x: closure_of(fresh(13)))(leaf(4)), 13 * F64),
    "a default argument": (lambda: on_ctx(lambda x: default_argument(fresh(14)))(leaf(4)), 14 * F64),
    "a partial": (lambda: on_ctx(lambda x: functools.partial(torch.add, fresh(15)))(leaf(4)), 15 * F64),
    "saved and on ctx": (lambda: keeping(same_twice)(leaf(4)), 7 * F64),
    "a module": (lambda: on_ctx(lambda x: torch.nn.Linear(3, 2, dtype=torch.float64))(leaf(4)), 8 * F64),
    "an operator's result": (lambda: leaf(6).exp(), 6 * F64),
    "an operator's view of an argument": (lambda: leaf(100)[:3].exp().sin(), 3 * F64),
    "two operators that keep one tensor": (lambda: (lambda h: h.sin() + h.cos())(leaf(4) + 1), 4 * F64),
    "an index": (lambda: leaf(10)[torch.tensor([1, 2, 3])], 3 * 8),
    "a hook that packs to half": (lambda: packed(lambda t: t.half(), lambda: leaf(100).exp()), 200),
    "a hook that packs to CPU copies": (lambda: packed(lambda t: ("cpu", t.to("cpu", copy=True)), lambda: leaf(100)[:3].exp()), 3 * F64),
    "a hook that packs to disk": (lambda: packed(lambda t: "file", lambda: leaf(100).exp()), 0),
    "a hook over a custom Function": (lambda: packed(lambda t: t[:1].clone(), lambda: saving(lambda x: fresh(50))(leaf(4))), F64),
    "a chain": (lambda: leaf(3).exp().exp().exp(), 9 * F64),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_the_truth(name):
    make, truth = CASES[name]
    assert pb.saved(make()).bytes == truth


def holders(kept):
    return [(holder.node, holder.name, holder.how) for block in kept.blocks for holder in block.holders]


WHO = {
    "nothing": [],
    "a new tensor": ["Keeps saved_tensors[0] saved"],
    "an argument": ["Keeps saved_tensors[0] saved"],
    "an argument twice": ["Keeps saved_tensors[0] saved", "Keeps saved_tensors[1] saved"],
    "an output": ["Exp y saved"],
    "a view of a large storage": ["Keeps saved_tensors[0] saved"],
    "two views of one storage": ["Keeps saved_tensors[0] saved", "Keeps saved_tensors[1] saved"],
    "a transposed argument": ["Keeps saved_tensors[0] saved"],
    "an expanded tensor": ["Keeps saved_tensors[0] saved"],
    "an attribute": ["Keeps ctx.kept ctx"],
    "a list": ["Keeps ctx.kept[0] ctx", "Keeps ctx.kept[1] ctx"],
    "a dict of dicts": ["Keeps ctx.kept['a']['b'] ctx"],
    "a dataclass": ["Keeps ctx.kept.table ctx"],
    "an object": ["Keeps ctx.kept.deep.table ctx"],
    "slots": ["Keeps ctx.kept.table ctx"],
    "a closure": ["Keeps ctx.kept (its closure's tensor) ctx"],
    "a default argument": ["Keeps ctx.kept (a default argument) ctx"],
    "a partial": ["Keeps ctx.kept.args[0] ctx"],
    "saved and on ctx": ["Keeps ctx.again['t'] ctx", "Keeps saved_tensors[0] saved"],
    "a module": ["Keeps ctx.kept.bias ctx", "Keeps ctx.kept.weight ctx"],
    "an operator's result": ["exp result saved"],
    "an operator's view of an argument": ["exp result saved", "sin self saved"],
    "two operators that keep one tensor": ["cos self saved", "sin self saved"],
    "an index": ["index indices saved"],
    "a hook that packs to half": ["exp result packed"],
    "a hook that packs to CPU copies": ["exp result[1] packed"],
    "a hook that packs to disk": [],
    "a hook over a custom Function": ["Keeps saved_tensors[0] packed"],
    "a chain": ["exp result saved"],
}


@pytest.mark.parametrize("name", CASES)
def test_who_keeps_it_is_the_truth(name):
    assert sorted({" ".join(holder) for holder in holders(pb.saved(CASES[name][0]()))}) == WHO[name]


def test_a_name_that_is_saved_on_condition_is_its_own():
    class Optional(Function):
        @staticmethod
        def forward(ctx, x, bias):
            ctx.save_for_backward(x, bias if bias is not None else None)
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2, None

    assert [name for _, name, _ in holders(pb.saved(Optional.apply(leaf(3), fresh(3))))] == ["x", "bias"]


def test_who_keeps_it_is_named():
    assert holders(pb.saved(CASES["saved and on ctx"][0]())) == [("Keeps", "saved_tensors[0]", "saved"), ("Keeps", "ctx.again['t']", "ctx")]
    assert holders(pb.saved(saved_output())) == [("Exp", "y", "saved")]
    assert holders(pb.saved(leaf(3).exp())) == [("exp", "result", "saved")]
    assert holders(pb.saved(CASES["a hook that packs to half"][0]())) == [("exp", "result", "packed")]


def test_all_holders_of_a_block_are_named():
    kept = pb.saved(CASES["two operators that keep one tensor"][0]())
    assert [sorted(holder.node for holder in block.holders) for block in kept.blocks] == [["cos", "sin"]]


def test_custom_functions_have_their_place():
    (block,) = pb.saved(saved_output()).blocks
    assert block.holders[0].location.path.endswith("test_saved_memory.py")


def test_what_lives_anyway_is_told():
    layer = torch.nn.Linear(3, 2)
    x = torch.ones(4, 3)
    y = layer(x).exp()
    kept = pb.saved(y.sin(), params=layer)
    assert {block.anyway for block in kept.blocks} == {""}
    kept = pb.saved(layer(x.requires_grad_()), params=layer)
    assert {block.anyway for block in kept.blocks} == {"parameter weight", "input"}
    assert kept.extra == 0


def test_extra_is_what_neither_leaves_nor_outputs_hold():
    x = torch.ones(4, 3)
    y = torch.nn.Linear(3, 2)(x).exp()
    kept = pb.saved(y)
    assert {block.anyway: block.bytes for block in kept.blocks} == {"output": y.nbytes, "": x.nbytes}
    assert kept.extra == x.nbytes


def test_a_view_says_so():
    text = str(pb.saved(CASES["a view of a large storage"][0]()))
    assert "7.81 KiB" in text
    assert "a view of 24 B" in text


def test_nothing_is_unpacked():
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        y = leaf(3).exp()
    pb.saved(y)
    assert unpacked == []


def test_nothing_is_kept_alive_or_freed():
    x = leaf(3)
    y = x.exp()
    pb.saved(y)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_json_has_every_block():
    data = json.loads(pb.saved(leaf(3).exp().exp()).to_json())
    assert (data["kind"], data["bytes"], len(data["blocks"])) == ("saved", 48, 2)


def test_after_backward_only_hidden_tensors_are_left():
    def keep(ctx, x):
        ctx.save_for_backward(fresh(3))
        ctx.hidden = fresh(2)

    y = keeping(keep)(leaf(4))
    y.sum().backward()
    assert pb.saved(y).bytes == 2 * F64


@pytest.mark.parametrize(("given", "error", "says"), [(3, TypeError, "got int"), (torch.ones(2), ValueError, "does not require grad")])
def test_bad_input_is_explained(given, error, says):
    with pytest.raises(error, match=says):
        pb.saved(given)


def test_bad_params_are_explained():
    with pytest.raises(TypeError, match="params must be a module or a mapping"):
        pb.saved(leaf(3).exp(), params=[1])


def test_a_name_to_write_to_needs_a_known_ending(tmp_path):
    kept = pb.saved(leaf(3).exp())
    kept.save(tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text())["bytes"] == 24
    with pytest.raises(ValueError, match=r"\.json, \.txt"):
        kept.save(tmp_path / "kept.png")


def test_what_a_checkpoint_needs_to_run_again_is_counted_once():
    x = leaf(100)
    y = checkpoint(lambda t: (t * t).sin().exp(), x * 1.0, use_reentrant=False)
    kept = pb.saved(y)
    state = torch.get_rng_state().nbytes
    assert [(block.bytes, {holder.name for holder in block.holders}) for block in kept.blocks[:2]] == [
        (state, {"random state of its checkpoint"}),
        (100 * F64, {"input 0 of its checkpoint"}),
    ]
    y.sum().backward()
    assert pb.saved(y).bytes == 0


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
@pytest.mark.filterwarnings("ignore:Sparse C:UserWarning")
def test_a_sparse_tensor_counts_all_its_parts(form):
    values = torch.ones(10, dtype=torch.float64)
    if form == "coo":
        table = torch.sparse_coo_tensor(torch.arange(10).repeat(2, 1), values, (10, 10), check_invariants=True)
    else:
        table = getattr(torch, f"sparse_{form}_tensor")(torch.arange(11), torch.arange(10), values, (10, 10), check_invariants=True)
    y = keeping(lambda ctx, x: ctx.save_for_backward(table))(leaf(3))
    assert pb.saved(y).bytes == (10 + (20 if form == "coo" else 21)) * F64
    assert "float64 [10, 10]" in str(pb.saved(y))
