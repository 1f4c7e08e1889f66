"""The C kernels: the same numbers as without them, used only where nobody watches, built once and safely."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys

import pytest
import torch

import pullback as pb
from pullback.ops import streams
from pullback.ops.kernels import build, cpu

pytestmark = [
    pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="no C compiler"),
]
PLACE = torch.linspace(-30, 30, 70_001)
EDGES = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 88.7, -87.3, 1e18, -1e18, 3e38, -3e38])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder


@pytest.fixture
def kernels(cache, monkeypatch):
    """The kernels in use, and afterwards what was in use before."""
    monkeypatch.setenv("PULLBACK_CACHE", str(cache))
    before = cpu._loaded
    pb.ops.compile_kernels()
    yield cpu
    cpu._loaded = before


def forward_and_backward(op, x, *args, **kwargs):
    x = x.clone().requires_grad_()
    y = op(x, *args, **kwargs)
    y.backward(torch.linspace(-1, 2, y.numel()).reshape(y.shape))
    return y.detach(), x.grad


CALLS = {
    "swish": (pb.ops.swish,),
    "swish, beta": (pb.ops.swish, -1.75),
    "gelu": (pb.ops.gelu, "tanh"),
    "guided_relu": (pb.ops.guided_relu,),
    "exp_scaled": (pb.ops.exp_scaled, -2.5),
    "sign_ste": (pb.ops.sign_ste,),
    "heaviside, arctan": (pb.ops.heaviside, "arctan", 1.5),
    "heaviside, fast sigmoid": (pb.ops.heaviside, "fast_sigmoid"),
    "heaviside, triangle": (pb.ops.heaviside, "triangle", 0.1),
    "dropout": (pb.ops.dropout, 0.3, True, 5),
    "add_noise": (pb.ops.add_noise, 0.3, 5),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("threads", [1, 2])
def test_same_numbers_as_without(kernels, name, threads):
    op, *args = CALLS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        got = forward_and_backward(op, PLACE, *args)
        with kernels.without_kernels():
            want = forward_and_backward(op, PLACE, *args)
            exact = forward_and_backward(op, PLACE.double(), *args)
    finally:
        torch.set_num_threads(before)
    for a, b, c in zip(got, want, exact, strict=True):
        scale = c.abs().clamp(min=1.0)
        error, usual = ((a - c).abs() / scale).max(), ((b - c).abs() / scale).max()
        assert float(error) <= 2 * float(usual) + 5e-7


@pytest.mark.parametrize("name", CALLS)
def test_same_at_nan_infinity_and_the_ends_of_the_range(kernels, name):
    op, *args = CALLS[name]
    got = forward_and_backward(op, EDGES, *args)
    with kernels.without_kernels():
        want = forward_and_backward(op, EDGES, *args)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a.isnan(), b.isnan()), f"{a}\n{b}"
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-30, equal_nan=True), f"{a}\n{b}"


def test_every_kernel_is_the_one_that_runs(kernels, monkeypatch):
    ran = []
    for name, function in kernels._loaded.items():
        monkeypatch.setitem(kernels._loaded, name, lambda *args, name=name, function=function: (ran.append(name), function(*args)))
    for op, *args in CALLS.values():
        forward_and_backward(op, PLACE, *args)
    elementwise = {name for name in kernels.KERNELS if not name.startswith(("swiglu", "rms_norm", "cross_entropy", "logsumexp"))}
    assert len(elementwise) == 14
    assert elementwise == set(ran)


@pytest.mark.parametrize("n", [0, 1, 131071, 131072, 131073, 200_000])
def test_masks_are_the_same_bit_by_bit(kernels, n):
    x, seed = torch.ones(n), torch.tensor(-3)
    for p in (0.1, 0.5, 0.999):
        got = pb.ops.dropout(x, p, seed=seed) != 0
        assert torch.equal(got, streams.kept(seed, p, x))


@pytest.mark.parametrize("n", [0, 1, 511, 512, 513, 1024, 1500, 131073])
def test_noise_is_the_same_up_to_rounding(kernels, n):
    got = pb.ops.add_noise(torch.zeros(n), 1.0, seed=-3)
    assert torch.allclose(got, streams.normal(torch.tensor(-3), got), rtol=0, atol=3e-6)


def test_dropout_keeps_a_seed(kernels):
    x = torch.ones(10_000, requires_grad=True)
    assert pb.saved(pb.ops.dropout(x, 0.5)).extra == 8
    with kernels.without_kernels():
        assert pb.saved(pb.ops.dropout(x, 0.5)).extra <= 10_000 + 8


def test_backward_may_run_where_the_kernels_are_gone(kernels):
    x = torch.ones(1000, requires_grad=True)
    y = pb.ops.dropout(x, 0.5, seed=1)
    with kernels.without_kernels():
        y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(4, dtype=torch.float64),
        torch.ones(4, dtype=torch.bfloat16),
        torch.ones(4, 4).t()[1:],
        torch.ones(4).expand(3, 4),
        torch.ones(4, device="meta"),
        torch.ones(4, requires_grad=True),
        torch.Tensor._make_subclass(type("Mine", (torch.Tensor,), {}), torch.ones(4)),
    ],
    ids=["float64", "bfloat16", "strided", "expanded", "meta", "recorded", "subclass"],
)
def test_steps_back_from_what_it_cannot_read(kernels, x):
    assert kernels.flat("guided_relu_backward", x, x) is None


def test_steps_back_from_whoever_watches(kernels):
    x = torch.ones(4)
    seen = []

    def probe(x):
        seen.append(kernels.usable(x))
        return x

    from torch.autograd import forward_ad
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.vmap(probe)(torch.ones(2, 4))
    torch.func.grad(lambda x: probe(x).sum())(x)
    make_fx(probe)(x)
    torch.compile(probe, backend="eager")(x)
    with forward_ad.dual_level():
        probe(forward_ad.make_dual(x, x))
    with kernels.without_kernels():
        probe(x)
    assert seen == [False] * len(seen)
    assert kernels.usable(x)


@pytest.mark.parametrize("name", ["swish", "gelu", "dropout", "add_noise"])
def test_derivatives_of_derivatives_and_transforms_are_right(kernels, name):
    op, *args = CALLS[name]

    def loss(x):
        return op(x, *args).sin().sum()

    x = torch.linspace(-2, 2, 7)
    want = torch.func.hessian(loss)(x.double())
    assert torch.allclose(torch.func.hessian(loss)(x).double(), want, atol=1e-5)
    assert torch.allclose(torch.autograd.functional.hessian(loss, x).double(), want, atol=1e-5)
    assert torch.allclose(torch.vmap(torch.func.grad(loss))(x.repeat(2, 1))[1], torch.func.grad(loss)(x), atol=1e-5)


@pytest.mark.parametrize("op", [pb.ops.swish, pb.ops.dropout])
def test_check_passes(kernels, op):
    call = (torch.linspace(-3, 3, 35).reshape(5, 7).requires_grad_(),)
    report = pb.check(op, call, kwargs={"seed": 3} if op is pb.ops.dropout else None, select=["PB5", "PB6"])
    assert not [finding for finding in report.findings if finding.severity != "note"], f"{report}"


# building


def test_finds_what_it_built(cache, kernels):
    path = build.build()
    before = path.stat().st_mtime_ns
    assert build.build() == path
    assert path.stat().st_mtime_ns == before
    assert path.parent == cache
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [p.name for p in cache.iterdir()] == [path.name], "a temporary file is left"


def test_name_depends_on_source_and_compiler(kernels, monkeypatch, tmp_path):
    key = build._key(build._compiler())
    for source in build.SOURCES.iterdir():
        shutil.copy(source, tmp_path)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert build._key(build._compiler()) == key
    (tmp_path / "swish.c").write_text((tmp_path / "swish.c").read_text() + "\n")
    assert build._key(build._compiler()) != key


def test_refuses_a_folder_that_others_may_write_to(kernels, tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path))
    with pytest.raises(pb.ops.KernelError, match=r"Others may write to the cache folder .* chmod 700"):
        pb.ops.compile_kernels()


def test_says_that_there_is_no_compiler(kernels, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(pb.ops.KernelError, match=r"No C compiler was found \(looked for CC=no-such-compiler\). Install one, or set CC"):
        pb.ops.compile_kernels()


def test_shows_what_the_compiler_said(kernels, monkeypatch, tmp_path):
    (tmp_path / "pullback.h").write_text("")
    (tmp_path / "broken.c").write_text("this is no C;\n")
    tmp_path.chmod(0o700)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path))
    with pytest.raises(pb.ops.KernelError, match=r"could not compile pullback's kernels. It says:\n.*broken.c:1"):
        pb.ops.compile_kernels()
    assert not list(tmp_path.glob(".kernels*")), "a temporary file is left"


def test_says_that_a_library_is_broken(kernels, tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path))
    (tmp_path / f"kernels-{build._key(build._compiler())}.so").write_text("no library")
    with pytest.raises(pb.ops.KernelError, match=r"cannot be loaded: .* Delete the file"):
        pb.ops.compile_kernels()


def python(code, **environment):
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip(), run.stderr


LOADED = "import torch, pullback as pb; pb.ops.swish(torch.ones(3)); from pullback.ops.kernels import cpu; print(cpu.loaded())"


def test_nothing_is_compiled_unless_it_is_asked_for(cache, kernels):
    assert python(LOADED, PULLBACK_KERNELS="0", CC="no-such-compiler") == ("False", "")
    assert python(LOADED, PULLBACK_KERNELS="1", PULLBACK_CACHE=str(cache))[0] == "True"


@pytest.mark.slow
def test_variable_without_a_compiler_warns_and_goes_on(kernels):
    printed, warned = python(LOADED, PULLBACK_KERNELS="1", CC="no-such-compiler")
    assert printed == "False"
    assert "PULLBACK_KERNELS is set, but the ops run as torch operations: No C compiler" in warned


@pytest.mark.slow
def test_floating_point_modes_of_the_process_stay(cache, kernels):
    code = "import torch, pullback as pb; pb.ops.compile_kernels(); pb.ops.swish(torch.ones(3)); print((torch.tensor(1e-40) * 1.0).item() > 0)"
    assert python(code, PULLBACK_CACHE=str(cache))[0] == "True"


def test_allocator_is_tuned_where_there_is_mallopt():
    code = "import pullback as pb; print(pb.ops.tune_allocator())"
    assert python(code)[0] == str(getattr(ctypes.CDLL(None), "mallopt", None) is not None)
