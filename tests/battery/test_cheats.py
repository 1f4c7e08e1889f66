"""Kernels that game their judge: each computes what its reference computes only as long as it is looked at in a certain way.

All are judged by ``reference=`` alone, as a generated kernel would be; each must be found under a code, with a cause that says what the op does.
"""

import functools
import inspect
import sys

import pytest
import torch

import pullback as pb
from pullback.battery.check import Settings, run_case
from pullback.battery.paths import follow
from pullback.battery.unseen import unseen

ONE = torch.tensor(1.0)


def reference(x):
    return x * torch.sigmoid(1.5 * x)


def derivative(x):
    s = torch.sigmoid(1.5 * x)
    return s + 1.5 * x * s * (1 - s)


def swish(x):
    """The same, written in another way, as a kernel of one's own is."""
    return x / (1 + torch.exp(-1.5 * x))


class Right(torch.autograd.Function):
    """What the others pretend to be."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return swish(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * derivative(x)


class KeptByAddress(Right):
    """Keeps results by data_ptr: after an optimizer step the address is the same and the values are not."""

    kept = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        if x.data_ptr() not in KeptByAddress.kept:
            KeptByAddress.kept[x.data_ptr()] = x, swish(x)
        return KeptByAddress.kept[x.data_ptr()][1].clone()


class KeptByShape(Right):
    """Keeps one result for each shape."""

    kept = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        if x.shape not in KeptByShape.kept:
            KeptByShape.kept[x.shape] = swish(x)
        return KeptByShape.kept[x.shape].clone()


class KeptByValue(Right):
    """Skips its work where it has seen these values before, as a timing loop shows them."""

    kept = []

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        for before, result in KeptByValue.kept:
            if before.shape == x.shape and before.dtype == x.dtype and torch.equal(before, x):
                return result.clone()
        y = swish(x)
        KeptByValue.kept.append((x.detach().clone(), y.detach().clone()))
        return y


class Zeros(Right):
    """Returns zeros, which are near enough where a tolerance is absolute and values are small."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.zeros_like(x)


SHOWN = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
ANSWER = reference(SHOWN.detach())


class Constant(Right):
    """Knows the answer for the inputs that the task showed."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return ANSWER.to(x.dtype).clone()


class NeverWritten(Right):
    """Returns memory that it never wrote: in a naive comparison the allocator hands it what the reference has just freed."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.empty_like(x)


class TailNeverWritten(Right):
    """Never writes the last rows of its output."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        n = len(x) // 2 * 2
        y[:n] = swish(x[:n])
        return y


class GradientTailNeverWritten(Right):
    """Never writes the last rows of its gradient."""

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        grad = torch.empty_like(x)
        n = len(x) // 2 * 2
        grad[:n] = dy[:n] * derivative(x[:n])
        return grad


class OneBuffer(Right):
    """Returns the same buffer at every call."""

    buffers = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = OneBuffer.buffers.setdefault((x.shape, x.dtype), torch.empty_like(x))
        return y.copy_(swish(x))


class EmptiesItsInput(Right):
    """Zeroes its input, so that a reference that is called afterwards with the same tensor agrees."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        x.detach().zero_()
        return torch.zeros_like(x)


class FallsBackInDouble(Right):
    """Calls the reference for float64, which only a check uses; its own kernel is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return reference(x) if x.dtype == torch.float64 else swish(x) * 1.01


class FallsBackWhenSmall(Right):
    """Calls the reference for small inputs, as checks use them; its own kernel is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return reference(x) if x.numel() < 2048 else swish(x).abs()


class KnowsTheChecker(Right):
    """Calls the reference where a checker is among its callers; its own kernel is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        watched = any("/pullback/" in frame.filename for frame in inspect.stack(0))
        return reference(x) if watched else torch.relu(x)


class KnowsTheModule(Right):
    """Wraps torch's own operator where a checker is loaded, else takes a short cut."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.silu(1.5 * x) / 1.5 if "pullback" in sys.modules else x.clamp(min=0)


class IsTheReference(Right):
    """Has no kernel: it calls the reference."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return reference(x)


class Agreeable(torch.Tensor):
    """A tensor that equals whatever it is compared with."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        plain = [a.as_subclass(torch.Tensor) if isinstance(a, Agreeable) else a for a in args]
        if name in ("sub", "__sub__", "__rsub__", "rsub"):
            return torch.zeros_like(plain[0] if isinstance(plain[0], torch.Tensor) else plain[1])
        if name in ("equal", "allclose"):
            return True
        if name in ("to", "detach", "abs", "double", "clone") and isinstance(args[0], Agreeable):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {})).as_subclass(Agreeable)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Agrees(Right):
    """Returns zeros of a class of its own that takes part in the comparison."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.zeros_like(x).as_subclass(Agreeable)


class TakesTheAnswer(Right):
    """Looks for the reference's result among the variables of its callers."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        for frame in inspect.stack(0):
            for found in frame.frame.f_locals.values():
                for tensor in found if isinstance(found, list) else [found]:
                    if isinstance(tensor, torch.Tensor) and tensor.shape == x.shape and "Mul" in type(tensor.grad_fn).__name__:
                        return tensor.detach().clone()
        return torch.ones_like(x)


class FirstGradient(Right):
    """Keeps the first gradient for each shape."""

    kept = {}

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return FirstGradient.kept.setdefault((x.shape, x.dtype), dy * derivative(x)).clone()


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(3)).requires_grad_()


JUDGES = Settings(select=frozenset({"PB501", "PB503", "PB511", "PB609", "PB614"}))
CHEATS = [
    (KeptByAddress, "PB511", "is kept under the address (data_ptr) or identity of x is returned although the values there changed"),
    (KeptByShape, "PB511", "the result of the first call is kept and returned again: its key (the shape, say) leaves out the values of x"),
    (KeptByValue, "PB511", "it compares its inputs with those of earlier calls and returns what it kept"),
    (Zeros, "PB511", "it returns zeros whatever the values of x are"),
    (NeverWritten, "PB511", "output is made by torch.empty or one of its kind, and nothing is written afterwards"),
    (TailNeverWritten, "PB511", "output is made by torch.empty or one of its kind, and not all of it is written afterwards"),
    (GradientTailNeverWritten, "PB511", "grad_x is made by torch.empty or one of its kind, and not all of it is written afterwards"),
    (OneBuffer, "PB614", "a buffer that is kept between calls is returned"),
    (EmptiesItsInput, "PB609", "writes to the memory of x, and autograd is not told"),
    (FallsBackWhenSmall, "PB511", "where the outputs agree, forward calls its reference; here it computes by itself"),
    (KnowsTheChecker, "PB511", "it looks for a checker"),
    (KnowsTheModule, "PB511", "it looks for a checker"),
    (IsTheReference, "PB511", "is the reference: it was compared with itself, and no kernel of its own was checked"),
    (Agrees, "PB511", "it returns zeros whatever the values of x are"),
    (TakesTheAnswer, "PB511", "nothing depends on the values of x"),
    (FirstGradient, "PB503", "state changes between calls"),
]


def findings(report, code):
    return [f for f in report.findings if f.code == code and f.severity != "note"]


@pytest.fixture(autouse=True)
def emptied_caches():
    for cheat in (KeptByAddress, KeptByShape, KeptByValue, FirstGradient):
        cheat.kept.clear()
    OneBuffer.buffers.clear()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("cheat", "code", "cause"), CHEATS, ids=[cheat.__name__ for cheat, _, _ in CHEATS])
def test_a_cheat_is_told_apart(cheat, code, cause, dtype):
    report = run_case(pb.case(cheat, x(5, 3, dtype=dtype)).against(reference), JUDGES)
    found = findings(report, code)
    assert found, [(f.code, f.message) for f in report.findings]
    assert cause in found[0].cause
    assert not report.ok
    assert not findings(report, "PB008")


def test_the_answer_for_the_shown_sample_is_not_enough():
    (found,) = findings(run_case(pb.case(Constant, SHOWN).against(reference), JUDGES), "PB511")
    assert "it returns a constant" in found.cause


def test_a_fallback_for_double_does_not_hide_a_wrong_kernel():
    (found,) = findings(run_case(pb.case(FallsBackInDouble, x(4, 3, dtype=torch.float32)).against(reference), JUDGES), "PB511")
    assert "in float32, as it is given" in found.message
    assert "forward calls its reference" in found.cause
    assert found.certain


def test_a_reference_behind_a_lambda_is_recognised():
    (found,) = findings(run_case(pb.case(IsTheReference, x(4, 3)).against(lambda x: reference(x))), "PB511")
    assert "`reference`" in found.cause


def test_a_tail_shows_where_the_sample_has_none():
    (found,) = findings(run_case(pb.case(TailNeverWritten, x(4, 3)).against(reference), JUDGES), "PB511")
    assert found.message == "TailNeverWritten.forward differs from its reference when x.shape[0] is 7"
    assert "never written" in found.cause


class KeptByVersion(Right):
    """The same cache as `KeptByAddress`, with all in its key that the result depends on."""

    kept = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        key = x.data_ptr(), x._version, x.shape, x.dtype
        if key not in KeptByVersion.kept:
            KeptByVersion.kept[key] = x, swish(x)
        return KeptByVersion.kept[key][1].clone()


@functools.lru_cache
def slope(dtype):
    return torch.tensor(1.5, dtype=dtype)


class TablesAndBuffers(Right):
    """Keeps a constant for each dtype and a work buffer for each shape, and is compiled at its first call."""

    compiled = []
    buffers = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        if not TablesAndBuffers.compiled:
            TablesAndBuffers.compiled.append(swish)
        buffer = TablesAndBuffers.buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
        torch.mul(x, -slope(x.dtype), out=buffer)
        y = torch.empty_like(x)
        torch.exp(buffer, out=y)
        return y.add_(1).reciprocal_().mul_(x)


class OtherBranches(Right):
    """Takes other lines for other values, and the reference's helper for a part of its work."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        if float(x.detach().abs().max()) > 2.2:
            return swish(x)
        return x * torch.sigmoid(1.5 * x)


class NativeOnly(Right):
    """Takes float32 only, and computes in rows of two."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        for i in range(0, len(x), 2):
            y[i : i + 2] = swish(x[i : i + 2])
        return y


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("right", [Right, KeptByVersion, TablesAndBuffers, OtherBranches, NativeOnly])
def test_a_right_kernel_is_left_alone(right, dtype):
    if right is NativeOnly and dtype is not torch.float32:
        pytest.skip("takes float32 only")
    report = run_case(pb.case(right, x(5, 3, dtype=dtype)).against(reference), JUDGES)
    (run,) = [run for run in report.checks if run.code == "PB511"]
    # That a work buffer made under inference_mode breaks the next call is true, and a note.
    assert not [(f.message, f.cause) for f in report.findings if f.severity != "note"]
    assert run.status == "pass"


def test_unseen_hides_checkers_and_nothing_else():
    def look():
        import pullback.report

        frames = [frame.filename for frame in inspect.stack(0)]
        return "pullback" in sys.modules, "torch" in sys.modules, pullback.report.__name__, [name for name in frames if "/pullback/" in name]

    assert "pullback" in sys.modules
    assert unseen(look) == (False, True, "pullback.report", [])
    assert "pullback" in sys.modules


def test_modules_imported_unseen_stay_imported(tmp_path, monkeypatch):
    (tmp_path / "imported_unseen.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    unseen(__import__, "imported_unseen")
    assert sys.modules.pop("imported_unseen").__name__ == "imported_unseen"


def test_following_a_call_gives_the_trace_back():
    before = sys.gettrace()
    result, path = follow(lambda: reference(ONE))
    assert sys.gettrace() is before
    assert result == reference(ONE)
    assert {code.co_name for code, _ in path.lines} == {"<lambda>", "reference"}
    assert path.complete


def test_a_long_call_is_followed_in_part():
    def loop():
        total = 0
        for i in range(20_000):
            total += i
        return total

    result, path = follow(loop)
    assert result == sum(range(20_000))
    assert not path.complete
