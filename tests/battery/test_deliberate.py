"""Gradients that are another map on purpose are notes; continuous forwards with a wrong gradient are faults."""

import pytest
import torch

import pullback as pb
from pullback.battery.deliberate import jump_of
from pullback.battery.probe import Probe
from pullback.battery.settings import Settings


def op(forward, backward):
    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            ctx.save_for_backward(*xs)
            return forward(*xs)

        @staticmethod
        def backward(ctx, *dys):
            return backward(*ctx.saved_tensors, *dys)

    return Op


def spike(v, current):
    u = 0.9 * v + current
    s = (u > 0).to(u.dtype)
    return s, u * (1 - s)


def spike_grad(v, current, ds, du):
    u = 0.9 * v + current
    g = ds / (1 + u * u) + du
    return 0.9 * g, g


SURROGATES = {
    "scaled sign": (op(lambda w: w.sign() * w.abs().mean(), lambda w, dy: dy), (3, 4)),
    "affine quantiser": (op(lambda v: (v / v.abs().max() * 7).round() * v.abs().max() / 7, lambda v, dy: dy), (20,)),
    "spike with reset": (op(spike, spike_grad), (6,), (6,)),
    "injected loss": (op(lambda v, loss: v.view_as(v), lambda v, loss, dy: (dy, torch.ones_like(loss))), (4,), (1,)),
    "threshold": (op(lambda v: (v > 1.0).to(v.dtype), lambda v, dy: dy / (1 + v * v)), (6,)),
    "rounding": (op(torch.round, lambda v, dy: dy), (6,)),
    "not zero": (op(lambda v: (v != 0).to(v.dtype), lambda v, dy: dy), (3, 4)),
    "above the median": (op(lambda v: v * (v > v.median()), lambda v, dy: dy), (7,)),
}
FAULTS = {
    "steep": (op(lambda v: torch.sin(50 * v), lambda v, dy: dy), (5,)),
    "smooth": (op(lambda v: v.exp(), lambda v, dy: dy), (5,)),
    "kinked": (op(lambda v: torch.where(v > 0, v, 0.1 * v), lambda v, dy: 2 * dy * torch.where(v > 0, 1.0, 0.1)), (8,)),
    "pole": (op(lambda v: 1 / v, lambda v, dy: dy / v**2), (5,)),
    "poles": (op(lambda v: v.tan(), lambda v, dy: dy * (1 + v.tan())), (5,)),
    "logarithmic pole": (op(lambda v: v.abs().log(), lambda v, dy: dy * v), (5,)),
    "cusp": (op(lambda v: v.abs().sqrt(), lambda v, dy: dy * v), (5,)),
    "quotient": (op(lambda v, w: v / w, lambda v, w, dy: (dy / w, dy * v / w)), (5,), (5,)),
    "not moved by shifts": (op(lambda v: v.softmax(-1), lambda v, dy: dy * v), (5,)),
    "direction": (op(lambda v: v / v.norm(), lambda v, dy: dy / v.norm()), (5,)),
    "largest": (op(lambda v: v.max(), lambda v, dy: dy * v), (5,)),
    "identity in part": (op(torch.relu, lambda v, dy: 2 * dy * (v > 0)), (8,)),
}
PLACES = {"around 0": (1.0, 0.0), "positive": (1.0, 2.5), "negative": (1.0, -2.5), "small": (0.01, 0.0), "large": (30.0, 0.0)}
FEW = [(place, seed) for seed, place in enumerate(("around 0", "negative"))]
MANY = pytest.param([(place, seed) for place in PLACES for seed in range(40)], marks=pytest.mark.slow, id="many")
draws = pytest.mark.parametrize("chosen", [pytest.param(FEW, id="few"), MANY])


def inputs(shapes, place, seed):
    scale, shift = place
    generator = torch.Generator().manual_seed(seed)
    return tuple((torch.randn(shape, dtype=torch.float64, generator=generator) * scale + shift).requires_grad_() for shape in shapes)


@draws
@pytest.mark.parametrize("name", SURROGATES)
def test_a_surrogate_is_a_note(name, chosen):
    function, *shapes = SURROGATES[name]
    for place, seed in chosen:
        report = pb.check(function, inputs(shapes, PLACES[place], seed), select=["PB501", "PB503", "PB512"], seed=seed)
        assert "PB512" in {f.code for f in report.findings}, (place, seed)
        assert not [f for f in report.findings if f.severity == "error"], (place, seed, str(report))


@draws
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_gradient_of_a_continuous_forward_stays_one(name, chosen):
    function, *shapes = FAULTS[name]
    for place, seed in chosen:
        values = inputs(shapes, PLACES[place], seed)
        if name == "identity in part" and not bool((values[0] > 0).any()):
            continue
        report = pb.check(function, values, select=["PB501", "PB512"], seed=seed)
        assert "PB501" in {f.code for f in report.findings}, (place, seed)


@pytest.mark.parametrize("seed", range(5))
def test_jumps_are_told_from_steepness(seed):
    def jumps(forward):
        probe = Probe(pb.case(op(forward, lambda v, dy: dy), *inputs([(6,)], PLACES["around 0"], seed)), Settings())
        leaf = probe.exact.wanted[0]
        return jump_of(probe.exact, leaf.path, leaf.template, seed)

    assert jumps(torch.floor)
    assert jumps(lambda v: (v * 1000).round() / 1000)
    assert not jumps(lambda v: torch.tanh(1e5 * v))
    assert not jumps(lambda v: v.sort()[0].cumsum(0).abs())
    assert not jumps(lambda v: 1 / v)
    assert not jumps(lambda v: v.abs().sqrt())
    assert not jumps(lambda v: v.abs().log())
    assert not jumps(lambda v: v.softmax(-1))


class Snapped(torch.autograd.Function):
    """Stands in for values that were rounded elsewhere."""

    @staticmethod
    def forward(ctx, latent, snapped):
        return snapped

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def test_a_gradient_handed_past_a_constant_that_is_returned_is_deliberate():
    latent = torch.linspace(-1, 1, 7, dtype=torch.float64, requires_grad=True)
    report = pb.check(Snapped, (latent, torch.round(3 * latent.detach())), select=["PB501", "PB512"])
    assert {f.code for f in report.findings} == {"PB512"}


class Injected(torch.autograd.Function):
    """A loss of one whose gradient was computed elsewhere."""

    @staticmethod
    def forward(ctx, latent, gradient):
        ctx.save_for_backward(gradient)
        return latent.new_ones(1)

    @staticmethod
    def backward(ctx, dy):
        (gradient,) = ctx.saved_tensors
        return gradient * dy, None


def test_a_gradient_injected_past_a_constant_loss_is_deliberate():
    latent = torch.linspace(-1, 1, 7, dtype=torch.float64, requires_grad=True)
    report = pb.check(Injected, (latent, torch.linspace(2, 3, 7, dtype=torch.float64)), select=["PB501", "PB503", "PB512"])
    assert {f.code for f in report.findings} == {"PB512"}


def clamp_passing(name, doc=None, factor=1.0):
    return type(
        name,
        (torch.autograd.Function,),
        {
            "__doc__": doc,
            "forward": staticmethod(lambda ctx, v: v.clamp(-0.5, 0.5)),
            "backward": staticmethod(lambda ctx, dy: factor * dy),
        },
    )


@pytest.mark.parametrize(("name", "doc"), [("ClampSTE", None), ("SteClampFn", None), ("Clips", "A straight-through clamp.")])
def test_what_calls_itself_straight_through_is_deliberate(name, doc):
    probe = Probe(pb.case(clamp_passing(name, doc), inputs([(7,)], (1.0, 0.0), 3)[0]))
    assert "straight-through" in probe.deliberate(next(iter(probe.value.inputs)))


@pytest.mark.parametrize(("name", "factor"), [("ClampStep", 1.0), ("System", 1.0), ("ClampSTE", 2.0)])
def test_a_clamp_that_passes_everything_is_a_fault_otherwise(name, factor):
    probe = Probe(pb.case(clamp_passing(name, factor=factor), inputs([(7,)], (1.0, 0.0), 3)[0]))
    (wrong,) = probe.value.wrong
    assert not probe.deliberate(wrong.path)


def test_a_draw_of_zeros_and_ones_is_a_step_although_forward_refuses_far_values():
    class Draws(torch.autograd.Function):
        @staticmethod
        def forward(ctx, p):
            return torch.bernoulli(p)

        @staticmethod
        def backward(ctx, dy):
            return dy

    p = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert "piecewise constant" in Probe(pb.case(Draws, p)).deliberate("p")


class Samples(torch.autograd.Function):
    """Backward draws one entry of each row: the softmax on average."""

    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return v.logsumexp(-1)

    @staticmethod
    def backward(ctx, dy):
        (v,) = ctx.saved_tensors
        drawn = torch.multinomial(v.softmax(-1), 1)
        return dy[..., None] * torch.zeros_like(v).scatter(-1, drawn, 1.0)


class SamplesBesides(Samples):
    """Backward draws as well, and is off."""

    @staticmethod
    def backward(ctx, dy):
        return Samples.backward(ctx, dy) + 0.5 * dy[..., None]


def rows():
    return torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()


def test_a_gradient_that_is_right_on_average_is_deliberate():
    assert "right on average" in Probe(pb.case(Samples, rows())).deliberate("v")


def test_drawing_random_numbers_excuses_nothing_else():
    probe = Probe(pb.case(SamplesBesides, rows()))
    assert [v.path for v in probe.value.wrong] == ["v"]
    assert not probe.deliberate("v")


def test_a_docstring_may_say_that_backward_is_another_map():
    relevance = clamp_passing("Clip", "The LRP rule of a clamp.", factor=0.5)
    probe = Probe(pb.case(relevance, inputs([(7,)], (1.0, 0.0), 3)[0]))
    assert "'LRP'" in probe.deliberate(probe.value.wrong[0].path)


def clipped(ctx_bound, forward=lambda v, bound: v * v, factor=2.0):
    class Clips(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v, bound):
            ctx.save_for_backward(v)
            ctx.bound = bound
            return forward(v, bound)

        @staticmethod
        def backward(ctx, dy):
            (v,) = ctx.saved_tensors
            norm = dy.norm(dim=-1, keepdim=True)
            return factor * v * dy * (ctx.bound / norm).clamp(max=1.0), None

    return Probe(pb.case(Clips, rows(), ctx_bound))


def test_a_bound_that_only_backward_looks_at_is_deliberate():
    assert "bound = 1e+30, which forward never looks at" in clipped(0.01).deliberate("v")


def test_a_bound_excuses_no_other_fault():
    assert not clipped(0.01, factor=3.0).deliberate("v")


def test_what_forward_looks_at_excuses_nothing():
    assert not clipped(0.01, forward=lambda v, bound: v * v + bound).deliberate("v")


class Quantised(torch.autograd.Function):
    """A layer whose weight is rounded: straight through it, and right for x."""

    @staticmethod
    def forward(ctx, x, w, scale, bias):
        q = (w / scale).round().clamp(-8, 7)
        ctx.save_for_backward(x, w, q)
        ctx.scale = scale
        return Quantised.scaled(ctx, x @ q.mT) + bias

    @staticmethod
    def scaled(ctx, out):
        return out * (ctx.scale.mT if isinstance(ctx.scale, torch.Tensor) and ctx.scale.dim() else ctx.scale)

    @staticmethod
    def of_x(ctx, dy):
        return Quantised.scaled(ctx, dy) @ ctx.saved_tensors[2]

    @classmethod
    def variant(cls, of_x):
        def backward(ctx, dy):
            return of_x(ctx, dy), dy.mT @ ctx.saved_tensors[0], None, dy.sum(0)

        return type("Quantised", (cls,), {"backward": staticmethod(backward)})


SCALES = {
    "number": 0.3,
    "tensor": torch.tensor(0.3, dtype=torch.float64),
    "channels": torch.tensor([[0.3], [0.2], [0.4]], dtype=torch.float64),
}


def quantised(of_x, scale):
    x, w, bias = inputs([(5, 4), (3, 4), (3,)], PLACES["around 0"], 7)
    return pb.check(Quantised.variant(of_x), (x, w, scale, bias), select=["PB501", "PB512"])


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_an_input_that_is_not_rounded_needs_its_scale(scale):
    report = quantised(lambda ctx, dy: dy @ ctx.saved_tensors[2], scale)
    (wrong,) = [f for f in report.findings if f.severity == "error"]
    assert wrong.message.endswith("returns a wrong gradient for x")
    assert wrong.attachments["cause"] in ("missing-factor", "scalar-derivative-missing")
    assert [f.code for f in report.findings if f.severity == "note"] == ["PB512"]


def test_an_input_that_is_not_rounded_needs_its_sign():
    (wrong,) = [f for f in quantised(lambda ctx, dy: -Quantised.of_x(ctx, dy), 0.3).findings if f.severity == "error"]
    assert wrong.cause == "the gradient has the wrong sign"


MEANT = {
    "derivative": Quantised.of_x,
    "with the weight as it was": lambda ctx, dy: dy @ ctx.saved_tensors[1],
    "of the largest weights": lambda ctx, dy: Quantised.scaled(ctx, dy) @ (ctx.saved_tensors[2] * (ctx.saved_tensors[2].abs() > 1)),
    "smaller": lambda ctx, dy: Quantised.of_x(ctx, dy) / dy.numel() ** 0.5,
    "clipped": lambda ctx, dy: Quantised.of_x(ctx, dy).clamp(-0.5, 0.5),
}


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("of_x", MEANT.values(), ids=MEANT)
def test_other_maps_for_the_inputs_beside_a_rounded_one_stay_notes(of_x, scale):
    assert not [f for f in quantised(of_x, scale).findings if f.severity == "error"]


class LearnsItsStep(torch.autograd.Function):
    """Forward is linear in the step, whose gradient is made smaller on purpose, by a number that forward does not use."""

    @staticmethod
    def forward(ctx, v, step, shrink):
        q = v.round()
        ctx.save_for_backward(q)
        ctx.shrink = shrink
        return q * step

    @staticmethod
    def backward(ctx, dy):
        (q,) = ctx.saved_tensors
        return dy, (dy * q).sum() / ctx.shrink, None


def test_a_step_whose_gradient_is_shrunk_stays_a_note():
    v, step = inputs([(20,), ()], PLACES["large"], 3)
    assert {f.code for f in pb.check(LearnsItsStep, (v, step, 3.7), select=["PB501", "PB512"]).findings} == {"PB512"}
