"""`pullback.bench` on everything that can be called, with made-up times."""

import json
from xml.etree import ElementTree

import pytest
import torch
from torch.nn import functional as F

import pullback as pb
from pullback.benchmark.result import Bench
from pullback.benchmark.spread import Spread
from pullback.benchmark.text import duration, factor


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * (s + x * s * (1 - s))


@pb.op
def swish(x):
    return x * torch.sigmoid(x)


@swish.vjp("x")
def _(dy, x):
    s = torch.sigmoid(x)
    return dy * (s + x * s * (1 - s))


@swish.samples
def _():
    yield pb.sample(torch.linspace(-2, 2, 6, dtype=torch.float64))


class Module(torch.nn.Module):
    def forward(self, x):
        return F.silu(x)


@pytest.mark.parametrize(
    ("target", "name"),
    [(Swish, "Swish"), (Swish.apply, "Swish"), (swish, "swish"), (Module(), "Module"), (F.silu, "silu")],
    ids=["class", "apply", "op", "module", "function"],
)
def test_everything_that_can_be_called(made_up, target, name):
    found = pb.bench(target, torch.linspace(-1, 1, 20), against={"composite": lambda x: x * torch.sigmoid(x)}, seconds=0.01)
    assert found.names == (name, "composite")
    assert [point.overhead for point in found.points] == [True, False]
    assert [run.name for run in found.sizes[0].runs] == [name, "composite"]
    assert found.notes == ()


def test_times_ratios_and_limits(made_up):
    made_up(swish=(1e-3, 3e-3), silu=(1e-3, 1e-3))
    found = pb.bench(swish, against={"silu": F.silu}, sizes=[1000], seconds=0.1)
    (point,) = found.sizes
    ours, theirs = point.runs
    assert (ours.forward, ours.backward, ours.time, ours.ratio) == (
        Spread(1e-3, 1e-3, 1e-3),
        Spread(3e-3, 3e-3, 3e-3),
        Spread(4e-3, 4e-3, 4e-3),
        None,
    )
    assert (theirs.ratio, theirs.forward_ratio, theirs.backward_ratio) == (Spread(2, 2, 2), Spread(1, 1, 1), Spread(3, 3, 3))
    assert (ours.moved, ours.kept) == (20_000, 0)
    assert point.copy_rate == pytest.approx(1e9)
    assert point.limit == pytest.approx(20e-6)
    assert ours.of_limit.median == pytest.approx(200)


def test_products_set_the_limit_where_there_are_any(made_up):
    found = pb.bench(F.linear, (torch.randn(64, 64), torch.randn(64, 64)), seconds=0.01)
    (point,) = found.sizes
    assert point.runs[0].flops == 3 * 2 * 64**3
    assert point.product_rate == pytest.approx(1e11)
    assert point.limit == pytest.approx(max(point.runs[0].moved / 1e9, 3 * 2 * 64**3 / 1e11))


def test_the_declared_reference_is_the_contender(made_up):
    assert pb.bench(swish, sizes=[100], seconds=0.01).names == ("swish", "reference")
    assert pb.bench(swish, sizes=[100], against={}, seconds=0.01).names == ("swish",)
    case = pb.case(Swish, torch.ones(4)).against(F.silu)
    assert pb.bench(case, sizes=[100], seconds=0.01).names == ("Swish", "reference")


def test_sizes_are_run_in_order(made_up):
    seen = []
    found = pb.bench(swish, sizes=[300, 100], seconds=0.01, progress=lambda what, done, total: seen.append((what, done, total)))
    assert [(point.size, point.elements) for point in found.sizes] == [(100, 100), (300, 300)]
    assert seen[0] == ("cost of a call, x: float32[6]", 0, 3)
    assert seen[-1] == ("x: float32[300]", 2, 3)


def test_another_function_is_told(made_up):
    found = pb.bench(swish, sizes=[100], against={"gelu": F.gelu, "ste": lambda x: x + (F.silu(x) - x).detach()}, seconds=0.01)
    assert [note.partition(":")[0] for note in found.notes[1:]] == [
        "gelu computes something else than swish",
        "ste computes something else than swish",
    ]
    assert "its results differ" in found.notes[1]
    assert "its gradients differ" in found.notes[2]


def test_what_has_no_gradient_has_only_a_forward(made_up):
    found = pb.bench(torch.sign, torch.randn(5) > 0, seconds=0.01)
    assert found.sizes[0].runs[0].backward is None
    assert "sign has no gradient here: only its forward is measured" in found.notes
    assert "–" in str(found)


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        raise ValueError("not for you")


def test_what_raises_is_named_with_its_place(made_up):
    with pytest.raises(
        pb.BenchError, match=r"(?s)backward of Raises raised ValueError: not for you.*with x: float32\[4\].*test_bench_compare\.py:\d+"
    ) as caught:
        pb.bench(Raises, torch.ones(4))
    assert caught.value.location.line == Raises.backward.__code__.co_firstlineno + 2
    with pytest.raises(pb.BenchError, match=r"(?s)forward of linear raised TypeError.*Where linear takes others, write a function"):
        pb.bench(swish, torch.ones(4), against={"linear": F.linear})


def test_wrong_calls_are_explained(made_up):
    with pytest.raises(ValueError, match="two contenders are named 'swish'"):
        pb.bench(swish, torch.ones(4), against={"swish": F.silu})
    with pytest.raises(TypeError, match=r"against\['no'\] must be a Function, an op or a callable, got int"):
        pb.bench(swish, torch.ones(4), against={"no": 3})
    with pytest.raises(ValueError, match=r"at least 1; got \[0\]"):
        pb.bench(swish, sizes=[0])
    with pytest.raises(pb.BenchError, match="no sample inputs for silu"):
        pb.bench(F.silu)


def test_threads_are_put_back(made_up):
    before = torch.get_num_threads()
    assert pb.bench(swish, sizes=[100], threads=before + 1, seconds=0.01).environment["threads"] == before + 1
    assert torch.get_num_threads() == before


def test_real_clocks_run():
    found = pb.bench(swish, sizes=[1000], seconds=0.01)
    assert all(run.time.low > 0 and run.backward.low > 0 for point in found.points for run in point.runs)
    assert found.sizes[0].copy_rate > 0


def test_results_come_back_from_json(stored):
    found = stored(op=2e-3, kept=4)
    assert Bench.from_json(found.to_json()) == found
    for text in ("[]", "{", '{"schema": 1}', '{"schema": "x"}'):
        with pytest.raises(ValueError, match=r"not a benchmark|schema"):
            Bench.from_json(text)
    with pytest.raises(ValueError, match="newer than"):
        Bench.from_json(json.dumps({"schema": 99}))


def test_table(stored):
    text = str(stored(op=2e-3, kept=4))
    for part in (
        "pkg.mod.op against reference",
        "a processor, 1 thread",
        "1,000 elements",
        "copy 10.0 GB/s",
        "op / it",
        "2.00 (2.00–2.00)",
        "3.91 KiB",
        "made up",
    ):
        assert part in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_table_in_colours(stored):
    from rich.console import Console

    console = Console(width=40, force_terminal=True, color_system="standard", record=True)
    console.print(stored(op=2e-3), soft_wrap=True)
    assert console.export_text().rstrip() == str(stored(op=2e-3)).rstrip()


def test_hostile_names_stay_text(stored):
    hostile = "</text><script>alert(1)</script>\x1b[31m"
    found = stored()
    found = Bench(hostile, (hostile, "reference"), found.points, (hostile,), found.environment)
    assert "\x1b" not in str(found)
    assert "<script" not in found.to_svg()
    ElementTree.fromstring(found.to_svg())


def test_charts_have_the_shape_of_the_page(stored):
    charts = stored().sections()
    assert [chart["title"] for chart in charts][:3] == ["Forward and backward", "Forward", "Backward"]
    for chart in charts:
        assert set(chart) == {"kind", "title", "note", "x", "y", "series"}
        assert chart["kind"] == "chart"
        assert all(set(axis) == {"label", "log"} for axis in (chart["x"], chart["y"]))
        for series in chart["series"]:
            assert set(series) == {"name", "x", "y", "low", "high"}
            assert len(series["x"]) == len(series["y"]) == len(series["low"] or series["y"])
    assert json.loads(json.dumps(charts)) == charts
    assert {"name": "limit", "x": [1000, 100000], "y": [2e-9, 2e-9], "low": None, "high": None} in charts[0]["series"]


@pytest.mark.parametrize("sizes", [(), (1000,), (1000, 100_000, 10_000_000)])
def test_pictures_are_drawn_at_any_number_of_sizes(stored, sizes):
    root = ElementTree.fromstring(stored(sizes=sizes).to_svg())
    width, height = float(root.get("width")), float(root.get("height"))
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(circle.get("cx")) < width
        assert 0 < float(circle.get("cy")) < height


def test_saving(stored, tmp_path):
    found = stored()
    for ending, begins in ((".json", "{"), (".txt", "pkg.mod.op"), (".svg", "<svg")):
        found.save(tmp_path / f"found{ending}")
        assert (tmp_path / f"found{ending}").read_text().startswith(begins)
    with pytest.raises(ValueError, match="ends with none of them"):
        found.save("found.png")


def test_notebooks_get_text_and_picture(stored):
    assert set(stored()._repr_mimebundle_()) == {"text/plain", "image/svg+xml"}
    assert set(stored(sizes=())._repr_mimebundle_()) == {"text/plain"}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 ns"), (2.334e-6, "2.33 µs"), (9.999e-4, "1.00 ms"), (0.12, "120 ms"), (3.0, "3.00 s"), (250.0, "250 s"), (5e-8, "50.0 ns")],
)
def test_durations_have_three_digits(seconds, said):
    assert duration(seconds) == said


def test_factors_have_three_digits():
    assert factor(Spread(0.1234, 1.005, 12.34)) == "1.00 (0.123–12.3)" or factor(Spread(0.1234, 1.005, 12.34)) == "1.01 (0.123–12.3)"
