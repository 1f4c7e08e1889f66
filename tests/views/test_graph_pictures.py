"""Graphs as data, text, SVG and Mermaid: complete, folded, readable, and safe against hostile names."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch.autograd import Function

import pullback as pb
from pullback.capture.calls import resolve_target
from pullback.report.finding import Finding
from pullback.report.report import Report
from pullback.views.fold import Group, fold, nodes_in
from pullback.views.ink import width
from pullback.views.layout import Box, Link, place

HERE = Path(__file__).resolve().parent
MENDED = HERE.parents[1] / "examples" / "tutorial" / "mended.py"
DOCS = HERE.parents[1] / "docs" / "tutorials" / "understand" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_for_pictures", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


networks = load(HERE / "networks.py")
CASES = list(load(MENDED).pullback_cases())


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def groups(graph):
    return [(item.times, item.title, item.chained) for item in fold(graph).items if isinstance(item, Group)]


def names(graph):
    return [node.name for node in graph.nodes]


def drawn(y, params=None):
    return ElementTree.fromstring(pb.graph(y, params=params).to_svg())


def test_nodes_have_names_values_and_sources():
    x, w = leaf(2, 3), leaf(3)
    graph = pb.graph((x * w).sum(), params={"x": x, "w": w})
    assert names(graph) == ["x", "w", "mul", "sum"]
    assert [node.kind for node in graph.nodes] == ["leaf", "leaf", "op", "op"]
    assert graph.nodes[2].values == ("float32 [2, 3]",)
    assert graph.nodes[2].sources == ((0, 0), (1, 0))
    assert graph.outputs == ((3, 0),)


def test_parameters_are_named_and_inside_their_node():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    graph = pb.graph(model(torch.ones(5, 3)), params=model)
    assert names(graph) == ["addmm", "tanh", "addmm"]
    assert [parameter.name for parameter in graph.nodes[2].parameters] == ["2.bias", "2.weight"]


def test_parameters_without_a_model_are_still_inside():
    graph = pb.graph(torch.nn.Linear(3, 4)(torch.ones(5, 3)))
    assert [parameter.name for parameter in graph.nodes[0].parameters] == ["parameter", "parameter"]


def test_custom_functions_have_the_lines_of_their_methods():
    node = pb.graph(Double.apply(leaf(3))).nodes[1]
    lines = Path(__file__).read_text().splitlines()
    assert node.kind == "function"
    assert lines[node.forward.line - 1].strip() == "def forward(ctx, x):"
    assert lines[node.backward.line - 1].strip() == "def backward(ctx, dy):"
    assert [(tensor.name, tensor.bytes) for tensor in node.saved] == [("x", 12)]


def test_names_of_operators_are_torchs():
    y = torch.nn.functional.max_pool2d(torch.nn.functional.conv2d(leaf(1, 1, 8, 8), leaf(1, 1, 3, 3)), 2)
    assert names(pb.graph(y))[2:] == ["convolution", "max_pool2d_with_indices"]


def test_twelve_layers_are_one():
    y, model = networks.transformer()
    assert groups(pb.graph(y, params=model)) == [(12, "layers.0–11", True)]


def test_a_thousand_steps_are_one():
    y, model = networks.rnn()
    assert groups(pb.graph(y, params=model)) == [(999, "", True)]
    y, model = networks.rnn(stack=True)
    assert groups(pb.graph(y, params=model)) == [(999, "", True)]


def test_equal_blocks_of_a_resnet_are_one():
    y, model = networks.resnet()
    assert (2, "stages.0.0–1", True) in groups(pb.graph(y, params=model))


def test_parts_side_by_side_are_told_from_parts_in_a_row():
    x = leaf(4)
    parts = [(x * k).exp().sin().cos().tanh() for k in range(6)]
    assert groups(pb.graph(torch.stack(parts))) == [(6, "", False)]


def test_different_things_are_not_folded():
    x = leaf(4)
    assert groups(pb.graph(x.exp().sin().cos().tanh().exp().cos().sin().exp())) == []
    assert groups(pb.graph(x.exp().sin())) == []


def test_a_fold_stands_for_equal_nodes():
    y, model = networks.transformer()
    folded = fold(pb.graph(y, params=model))
    nodes = folded.graph.nodes
    for index, shown in enumerate(folded.stands_for):
        assert (nodes[index].kind, nodes[index].name, nodes[index].values) == (nodes[shown].kind, nodes[shown].name, nodes[shown].values)
    assert set(folded.stands_for) == set(nodes_in(folded.items))


def test_a_chain_of_a_hundred_thousand_is_drawn():
    y, names_of = networks.chain()
    graph = pb.graph(y, params=names_of)
    svg = graph.to_svg()
    assert "×100,000, one after another" in svg
    assert len(svg) < 10_000
    assert "×100,000" in graph.to_text()
    assert "×100,000" in graph.to_mermaid()


def test_large_graphs_without_repetition_become_sections():
    y, _ = networks.branchy()
    graph = pb.graph(y)
    assert len(graph.nodes) > 1000
    root = ElementTree.fromstring(graph.to_svg())
    assert 2 < len(list(root.iter(f"{SVG}rect"))) < 300


PICTURES = {f"{i}-{case.target.__name__}": (lambda case=case: (case.target.apply(*case.args), None)) for i, case in enumerate(CASES)} | {
    "transformer": networks.transformer,
    "resnet": networks.resnet,
    "rnn": networks.rnn,
    "stacked rnn": lambda: networks.rnn(stack=True),
    "chain": lambda: networks.chain(3000),
    "branchy": lambda: networks.branchy(4, 20),
    "long names": lambda: (type("A" * 90, (Double,), {}).apply(torch.nn.Parameter(torch.ones(3))).exp(), None),
}


@pytest.mark.parametrize("name", PICTURES)
def test_no_label_leaves_its_box_and_no_boxes_overlap(name, capsys):
    root = drawn(*PICTURES[name]())
    wide, high = float(root.get("width")), float(root.get("height"))
    shift = 24.0
    boxes = [
        tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("stroke") and not rect.get("stroke-dasharray")
    ]
    assert boxes
    for x, y, w, h in boxes:
        assert x >= 0
        assert x + w + shift <= wide + 0.5
        assert y >= 0
        assert y + h + shift <= high
    for i, (x, y, w, h) in enumerate(boxes):
        for other_x, other_y, other_w, other_h in boxes[i + 1 :]:
            assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y
    for text in root.iter(f"{SVG}text"):
        half = width(text.text, int(text.get("font-size")))
        x, y = float(text.get("x")), float(text.get("y"))
        left = x - half / 2 if text.get("text-anchor") == "middle" else x
        assert -shift <= left
        assert left + half <= wide
        holding = [(bx, bw) for bx, by, bw, bh in boxes if by <= y <= by + bh and bx <= x <= bx + bw]
        for bx, bw in holding:
            assert bx <= left
            assert left + half <= bx + bw + 0.5


@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.svg")))
def test_pictures_of_the_docs_are_what_is_drawn(name):
    case = next(case for case in CASES if case.target.__name__ == name)
    names = dict(zip(resolve_target(case.target).positional(len(case.args)), case.args, strict=True))
    graph = pb.graph(case.target.apply(*case.args), params={name: arg for name, arg in names.items() if isinstance(arg, torch.Tensor)})
    assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == graph.to_svg() + "\n", (
        f"draw it anew: pullback see {MENDED}::{name} --output-format svg"
    )


class Refused(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 3 * dy


def found(code, subject, severity="error"):
    return Finding(code, "name", severity, "fail", subject, "message", None)


def test_what_a_check_found_is_a_badge():
    subject = f"{Refused.__module__}.Refused"
    findings = [found("PB612", subject, "warning"), found("PB501", subject), found("PB703", subject, "note"), found("PB503", "other.Refused")]
    graph = pb.graph(Refused.apply(leaf(3)), findings=findings)
    assert [node.findings for node in graph.nodes] == [(), ("PB501", "PB612")]
    assert ">PB501, PB612</text>" in graph.to_svg()
    assert "! PB501, PB612" in graph.to_text()
    assert "PB501, PB612" in graph.to_mermaid()
    assert json.loads(graph.to_json())["nodes"][1]["findings"] == ["PB501", "PB612"]
    assert pb.graph(Refused.apply(leaf(3)), findings=Report(findings=tuple(findings))).nodes == graph.nodes


def test_other_findings_are_refused():
    with pytest.raises(TypeError, match="findings must be a report"):
        pb.graph(leaf(3).exp(), findings=["PB501"])
    with pytest.raises(TypeError, match="got int"):
        pb.graph(leaf(3).exp(), findings=3)


def test_an_order_without_crossings_is_found():
    y, model = networks.rnn(20, stack=True)
    folded = fold(pb.graph(y, params=model))
    assert [item.times for item in folded.items if isinstance(item, Group)] == [19]
    boxes = {name: Box(name, 40, 20) for name in "abcdef"}
    links = [Link(f"{s}{t}", s, t) for s, t in ("ad", "ae", "bd", "bf", "cd", "ce")]
    placement = place(list(boxes.values()), links)
    assert crossings(placement) == 1  # two sources of the same two targets always cross once


def test_long_lines_are_straight():
    boxes = [Box(i, 80 + 40 * (i % 3), 30) for i in range(8)]
    links = [Link(i, i, i + 1) for i in range(7)] + [Link(0, 0, 7), Link(1, 1, 6), Link(2, 2, 5)]
    placement = place(boxes, links)
    for line in placement.lines:
        inner = line.points[1:-1]
        assert len({x for x, _ in inner}) <= 1, line


def test_parts_that_no_line_connects_stay_side_by_side():
    gate, experts = torch.nn.Linear(8, 4), [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)) for _ in range(4)]
    x = torch.ones(2, 8)
    weights = gate(x).softmax(-1)
    y = sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(experts)).sum()
    root = ElementTree.fromstring(pb.graph(y, params=torch.nn.ModuleList([gate, *experts])).to_svg())
    edges = sorted((float(r.get("x")), float(r.get("x")) + float(r.get("width"))) for r in root.iter() if r.tag.endswith("rect") and r.get("x"))
    reach = edges[0][1]
    for left, right in edges:
        assert left - reach < 60
        reach = max(reach, right)
    assert float(root.get("width")) < 1500


def crossings(placement):
    ends = [(line.points[0][0], line.points[-1][0]) for line in placement.lines]
    return sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for i, a in enumerate(ends) for b in ends[i + 1 :])


def test_a_picture_has_nothing_that_could_clash_or_load():
    svg = pb.graph(*(networks.transformer()[:1])).to_svg()
    assert not re.search(r"\bid=|<style|<script|href|url\(|class=", svg)


def hostile():
    name = '</text><script>alert(1)</script>&"\x1b[31m\u202e'
    return type(name, (Double,), {}).apply(leaf(3))


def test_hostile_names_stay_text():
    graph = pb.graph(hostile(), params={"<img src=x onerror=y>": leaf(2)})
    svg = graph.to_svg()
    assert "<script" not in svg
    assert ElementTree.fromstring(svg) is not None
    assert "\x1b" not in graph.to_text()
    assert "\u202e" not in graph.to_text()
    mermaid = graph.to_mermaid()
    assert "<script" not in mermaid
    assert '&"' not in mermaid


def test_text_numbers_what_does_not_come_from_the_line_above():
    x = leaf(3)
    a = x.exp()
    lines = pb.graph(a.sin() + a.cos(), params={"x": x}).to_text().splitlines()
    assert [line.split() for line in lines[3:5]] == [
        ["4", "cos", "float32", "[3]", "←", "2", "keeps", "self", "12", "B"],
        ["5", "add", "float32", "[3]", "←", "3,", "4"],
    ]


def test_mermaid_connects_what_is_shown():
    text = pb.graph(Double.apply(leaf(3)).exp()).to_mermaid()
    assert text.startswith("flowchart TD\n")
    assert 'n1[["Double<br>forward' in text
    assert 'n1 -->|"float32 [3]"| n2' in text
    assert "class n1 custom" in text


def test_json_has_every_node():
    y, model = networks.transformer(2)
    graph = pb.graph(y, params=model)
    data = json.loads(graph.to_json())
    assert [node["name"] for node in data["nodes"]] == names(graph)
    assert all(source[0] < i for i, node in enumerate(data["nodes"]) for source in node["sources"])


def test_several_outputs_in_containers_are_drawn():
    x = leaf(4)
    head, tail = x.split(2)
    graph = pb.graph({"a": head, "b": [tail, x.detach()]})
    assert len(graph.outputs) == 2
    assert "output 2" in graph.to_svg()


def test_it_is_shown_in_a_notebook_and_written_to_files(tmp_path):
    graph = pb.graph(leaf(3).exp())
    bundle = graph._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/svg+xml", "text/html"}
    for ending in ("svg", "mmd", "json", "txt"):
        graph.save(tmp_path / f"graph.{ending}")
        assert (tmp_path / f"graph.{ending}").stat().st_size > 20
    with pytest.raises(ValueError, match=r"\.svg"):
        graph.save(tmp_path / "graph.png")


@pytest.mark.parametrize(("given", "error", "says"), [("y", TypeError, "got str"), (torch.ones(2), ValueError, "does not require grad")])
def test_bad_input_is_explained(given, error, says):
    with pytest.raises(error, match=says):
        pb.graph(given)


def test_a_custom_function_bears_the_name_that_findings_call_it_by():
    nodes = json.loads(pb.graph(Refused.apply(leaf(3))).to_json())["nodes"]
    assert [node.get("subject") for node in nodes] == [None, f"{Refused.__module__}.Refused"]
