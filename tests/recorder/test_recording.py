"""What a recording notes, and that it changes nothing."""

import threading

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import pullback as pb
from pullback.capture.recorded import Layout


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class Times(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class Half(Scale):
    @staticmethod
    def forward(ctx, x, w):
        return Scale.forward(ctx, x, w) / 2

    @staticmethod
    def backward(ctx, dy):
        return Scale.backward(ctx, dy / 2)


bound_before = Scale.apply


def one(run, name=None):
    records = [r for r in run.recording.functions if name is None or r.qualname == name]
    assert len(records) == 1, [r.name for r in run.recording.functions]
    return records[0]


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_apply_that_was_bound_before_is_seen():
    with pb.recording() as run:
        bound_before(leaf(2, 3), leaf(2, 3)).sum().backward()
    (signature,) = one(run).signatures
    assert (signature.calls, signature.backward_calls) == (1, 1)
    assert signature.arguments == ("x: float32[2, 3]", "w: float32[2, 3]")


def test_a_class_that_is_defined_meanwhile_is_seen():
    with pb.recording() as run:

        class Late(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, dy):
                return dy * 2

        Late.apply(leaf(2)).sum().backward()
    assert one(run).calls == 1
    assert Late.forward.__qualname__.endswith("Late.forward")
    assert not hasattr(Late.forward, "__wrapped__")


def test_classes_get_their_own_methods_back():
    before = {c: dict(vars(c)) for c in (Scale, Times, Half)}
    with pb.recording():
        assert vars(Scale)["forward"] is not before[Scale]["forward"]
    assert {c: dict(vars(c)) for c in (Scale, Times, Half)} == before


def test_classes_get_their_own_methods_back_when_the_block_raises():
    before = dict(vars(Scale))

    def fail():
        with pb.recording():
            raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    assert dict(vars(Scale)) == before


def test_signatures_tell_strides_requires_grad_and_values_apart():
    with pb.recording() as run:
        Scale.apply(leaf(3, 2), leaf(3, 2)).sum().backward()
        Scale.apply(leaf(2, 3).t(), leaf(3, 2)).sum().backward()
        Scale.apply(leaf(3, 2), torch.randn(3, 2)).sum().backward()
        with torch.no_grad():
            Scale.apply(leaf(3, 2), leaf(3, 2))
        for factor in (2.0, 2.0, 3.0):
            Times.apply(leaf(2), factor).sum().backward()
    scale, times = (one(run, name) for name in ("Scale", "Times"))
    assert [s.arguments for s in scale.signatures] == [
        ("x: float32[3, 2]", "w: float32[3, 2]"),
        ("x: float32[3, 2] strides (1, 3)", "w: float32[3, 2]"),
        ("x: float32[3, 2]", "w: float32[3, 2], no grad"),
    ]
    assert [(s.calls, s.backward_calls) for s in scale.signatures] == [(2, 1), (1, 1), (1, 1)]
    assert [(s.arguments[1], s.calls) for s in times.signatures] == [("factor=2.0", 2), ("factor=3.0", 1)]


def test_layouts_of_grad_output_are_counted():
    with pb.recording() as run:
        for _ in range(2):
            Scale.apply(leaf(3, 2), leaf(3, 2)).sum().backward()
        Scale.apply(leaf(3, 2), leaf(3, 2)).backward(torch.randn(2, 3).t())
    (signature,) = one(run).signatures
    assert signature.gradients[(Layout("float32", (3, 2), (0, 0)),)] == 2
    assert signature.gradients[(Layout("float32", (3, 2), (1, 3)),)] == 1


def test_kept_bytes_count_saved_tensors_and_tensors_on_ctx():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.mask = x > 0
            return x * ctx.mask

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.mask

    with pb.recording() as run:
        Both.apply(leaf(10)).sum().backward()
        Times.apply(leaf(10), 2.0).sum().backward()
    assert one(run, Both.__qualname__).signatures[0].kept_bytes == 10 * 4 + 10
    assert one(run, "Times").signatures[0].kept_bytes == 0


def test_a_method_that_calls_its_base_class_counts_once():
    with pb.recording() as run:
        Half.apply(leaf(2), leaf(2)).sum().backward()
    assert [(r.qualname, r.calls) for r in run.recording.functions] == [("Half", 1)]


def test_a_method_that_is_called_by_hand_is_not_a_call():
    with pb.recording() as run:
        assert Times.forward(torch.ones(2), 3.0).tolist() == [3, 3]
    assert not [r for r in run.recording.functions if r.signatures and r.signatures[0].calls and r.signatures[0].backward_calls]


def test_autocast_and_checkpoint_are_noted():
    with pb.recording() as run:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            Scale.apply(leaf(2), leaf(2))
        x, w = leaf(2), leaf(2)
        checkpoint(lambda: Scale.apply(x, w).sin(), use_reentrant=False).sum().backward()
    signatures = one(run).signatures
    assert [s.autocast for s in signatures] == ["cpu bfloat16", "", ""]
    assert [s.where for s in signatures] == [(), ("checkpoint",), ("checkpoint", "recomputed")]


def test_torch_func_is_counted_and_works():
    with pb.recording() as run:
        gradient = torch.func.grad(lambda x: Times.apply(x, 3.0).sum())(torch.ones(2))
        batched = torch.func.vmap(torch.func.grad(lambda x: x.sin().sum()))(torch.ones(3, 2))
    assert gradient.tolist() == [3, 3]
    assert batched.shape == (3, 2)
    assert one(run).calls >= 1


def test_a_call_that_raises_is_counted_and_raises():
    with pb.recording() as run, pytest.raises(RuntimeError, match="must match"):
        Scale.apply(leaf(2), leaf(3))
    assert one(run).signatures[0].raised == 1


def test_arguments_are_kept_as_they_were_before_the_call():
    class InPlace(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    with pb.recording() as run:
        InPlace.apply(torch.ones(3, requires_grad=True).clone()).sum().backward()
    (stored,) = one(run).signatures[0].call.tensors
    assert stored.data.tolist() == [1, 1, 1]


def step(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4))
    x = torch.randn(8, 4)
    y = Times.apply(Scale.apply(model(x), torch.randn(8, 4, requires_grad=True)), 2.0)
    y = y + checkpoint(lambda t: Half.apply(t.t(), t.t()).t(), y, use_reentrant=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = y + Scale.apply(model(x).float(), y)
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters()), torch.get_rng_state(), torch.as_tensor(np.random.get_state()[1].astype(np.int64))]


@pytest.mark.parametrize("values", [True, False])
def test_results_and_random_states_are_the_same_bits(values):
    plain = step(7)
    with pb.recording(values=values):
        recorded = step(7)
    assert all(map(torch.equal, plain, recorded))


def test_modes_and_subclasses_of_the_program_see_no_call_of_ours():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def run(kind):
        torch.manual_seed(0)
        with kind() as mode:
            Scale.apply(torch.ones(2, requires_grad=True), torch.ones(2)).sum().backward()
        return mode.seen

    for kind in (Functions, Dispatch):
        plain = run(kind)
        with pb.recording():
            assert run(kind) == plain


def test_backward_in_another_thread_finds_its_call():
    with pb.recording() as run:
        y = Scale.apply(leaf(3), leaf(3))
        thread = threading.Thread(target=lambda: y.sum().backward())
        thread.start()
        thread.join()
    assert one(run).signatures[0].backward_calls == 1


def test_two_threads_at_once_lose_no_call():
    def work():
        for _ in range(200):
            Scale.apply(leaf(3), leaf(3)).sum().backward()

    with pb.recording() as run:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert one(run).signatures[0].calls == one(run).signatures[0].backward_calls == 400


def test_many_signatures_are_counted_together():
    with pb.recording() as run:
        for i in range(230):
            Times.apply(leaf(2), float(i))
    record = one(run)
    assert record.calls == 230
    assert len(record.signatures) == 201
    assert record.signatures[-1].calls == 30


def test_recordings_in_recordings_see_the_same():
    with pb.recording() as outer:
        Scale.apply(leaf(2), leaf(2))
        with pb.recording() as inner:
            Scale.apply(leaf(2), leaf(2))
    assert (one(outer).calls, one(inner).calls) == (2, 1)


@pb.op
def doubled(x):
    return x * 2


@doubled.vjp("x")
def _(dy):
    return dy * 2


def test_an_op_is_recorded_under_its_own_name():
    with pb.recording() as run:
        doubled(leaf(3)).sum().backward()
    record = one(run)
    assert (record.kind, record.qualname) == ("op", "doubled")
    assert record.live is doubled
    assert record.signatures[0].arguments == ("x: float32[3]",)
    assert run.report(select=["PB501"]).ok


def test_a_library_op_is_recorded_under_its_own_name():
    @torch.library.custom_op("pullback_recorder_tests::triple", mutates_args=())
    def triple(x: torch.Tensor, *, add: float = 0.0) -> torch.Tensor:
        return x * 3 + add

    triple.register_autograd(lambda ctx, dy: dy * 2)
    with pb.recording() as run:
        triple(leaf(3), add=1.5).sum().backward()
    record = one(run)
    assert (record.kind, record.name) == ("library", "pullback_recorder_tests::triple.default")
    assert record.signatures[0].arguments == ("x: float32[3]", "add=1.5")
    assert [f.code for f in run.report(select=["PB501"]).findings] == ["PB501"]


@pytest.mark.filterwarnings("ignore")
def test_compiled_regions_are_not_recorded_but_told():
    def use(x):
        return Times.apply(x, 2.0).sin()

    plain = use(torch.ones(3))
    with pb.recording() as run:
        compiled = torch.compile(use, backend="aot_eager", fullgraph=True)
        x = torch.ones(3, requires_grad=True)
        results = [compiled(x) for _ in range(3)]
        results[0].sum().backward()
    assert all(torch.equal(r.detach(), plain) for r in results)
    assert run.recording.compiled_graphs == 1
    assert not run.recording.functions or run.recording.functions[0].calls == 0
    assert "compiled: not recorded (1 graph" in str(run.profile())


def test_report_calls_the_battery_with_the_recorded_layout():
    class Packed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, dy):
            return dy.as_strided(dy.shape, (dy.shape[1], 1)) * 3 if dy.stride() == (1, 5) else dy * 3

    with pb.recording() as run:
        (Packed.apply(leaf(5, 7)).t().contiguous() * torch.randn(7, 5)).sum().backward()
    report = run.report(select=["PB604"])
    assert [f.code for f in report.findings] == ["PB604"]
    assert "recorded call 0" in report.findings[0].evidence[-1].text


def test_a_layout_that_only_the_program_has_is_tried():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, dy):
            return dy * (4 if dy.stride() == (17, 1) else 3)

    with pb.recording() as run:
        y = Odd.apply(leaf(5, 7))
        y.backward(torch.randn(5, 17)[:, :7])
    report = run.report(select=["PB604"])
    assert [f.code for f in report.findings] == ["PB604"]
    assert "as in 1 calls of the program" in report.findings[0].evidence[0].text


def test_report_says_why_a_call_was_not_made_again():
    class WithObject(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, thing):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2, None

    with pb.recording() as run:
        WithObject.apply(leaf(2), object())
    report = run.report()
    assert not report.ok
    assert [(c.status, c.reason) for c in report.checks] == [("skipped", "an argument of type builtins.object was not stored")]


def test_large_calls_are_cut_or_drawn_anew():
    with pb.recording() as run:
        Scale.apply(leaf(4096, 1024), leaf(4096, 1024))
        Scale.apply(leaf(1, 2_000_000), leaf(1, 2_000_000))
    first, second = (s.call.tensors for s in one(run).signatures)
    assert [(t.how, t.full_shape) for t in first] == [("sampled", (4096, 1024))] * 2
    assert sum(t.data.numel() * 4 for t in first) <= 4 << 20
    assert [t.how for t in second] == ["distribution"] * 2
    assert second[0].statistics["std"] == pytest.approx(1, abs=0.1)


def test_without_values_no_value_is_kept():
    with pb.recording(values=False) as run:
        Scale.apply(leaf(20, 30), leaf(20, 30)).sum().backward()
    assert [(t.how, t.data) for t in one(run).signatures[0].call.tensors] == [("distribution", None)] * 2
    assert run.report(select=["PB501"]).ok


def test_a_fault_that_hides_behind_parameters_before_training_is_found():
    class Gain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gain):
            ctx.save_for_backward(x, gain)
            return x * gain

        @staticmethod
        def backward(ctx, dy):
            x, gain = ctx.saved_tensors
            return 2 * dy * gain, (dy * x).sum(0)

    with pb.recording() as run:
        Gain.apply(leaf(5, 3), torch.nn.Parameter(torch.ones(3))).sum().backward()
    report = run.report(select=["PB501"])
    assert [f.code for f in report.findings] == ["PB501"]
    assert "constant values moved a little" in report.findings[0].evidence[-1].text


def test_code_of_installed_packages_is_checked_when_it_is_named(monkeypatch):
    with pb.recording() as run:
        Scale.apply(leaf(2), leaf(2)).sum().backward()
    record = one(run)
    record.path, record.module = "lib/site-packages/theirs/kernels.py", "theirs.kernels"
    (skipped,) = run.report(select=["PB501"]).checks
    assert (skipped.status, skipped.reason) == ("skipped", "code of others: `--module theirs` checks it")
    assert run.report(select=["PB501"], modules=["theirs"]).ok


def test_one_of_several_ranks_is_not_checked_alone(monkeypatch):
    with pb.recording() as run:
        Scale.apply(leaf(2), leaf(2)).sum().backward()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RuntimeError, match=r"pullback check run\.rank"):
        run.report()
