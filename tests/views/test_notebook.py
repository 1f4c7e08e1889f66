"""Notebooks show one picture of each answer: without scripts, without identifiers that clash, and with the page where it is wanted."""

import html
import re
from xml.etree import ElementTree

import pytest
import torch
from torch.autograd import Function

import pullback as pb

SVG = "{http://www.w3.org/2000/svg}"


class Root(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy / (2 * x.sqrt()) * (x > 0)


def x():
    return torch.tensor([0.0, 1.0, 4.0], requires_grad=True)


def hostile():
    return type('</text><script>alert(1)</script>"&', (Root,), {})


SHOWN = {
    "graph": lambda: pb.graph(Root.apply(x())),
    "trace": lambda: pb.trace(Root, x()),
    "saved": lambda: pb.saved(Root.apply(x())),
    "hostile graph": lambda: pb.graph(hostile().apply(x())),
    "hostile trace": lambda: pb.trace(hostile(), x()),
    "hostile saved": lambda: pb.saved(hostile().apply(x())),
    "nothing saved": lambda: pb.saved(x() + 1),
}


@pytest.mark.parametrize("name", SHOWN)
def test_every_form_shows_the_same(name):
    answer = SHOWN[name]()
    bundle = answer._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "image/svg+xml", "text/html"]
    assert bundle["text/plain"] == str(answer)
    assert bundle["image/svg+xml"] == answer.to_svg()
    assert ElementTree.fromstring(bundle["image/svg+xml"]).tag == f"{SVG}svg"


@pytest.mark.parametrize("name", SHOWN)
def test_without_scripts_there_is_the_picture(name):
    answer = SHOWN[name]()
    before, page = answer._repr_mimebundle_()["text/html"].split("<details>")
    assert answer.to_svg() in before
    assert not re.search(r"\bid=|<style|<script|href|url\(|class=", before)
    (frame,) = re.findall(r'<iframe sandbox="allow-scripts" [^<>]*srcdoc="([^"]*)"></iframe>', page)
    assert html.unescape(frame).startswith("<!doctype html>")


def test_a_frontend_gets_what_it_asks_for():
    graph = pb.graph(Root.apply(x()))
    assert list(graph._repr_mimebundle_(include={"text/plain"})) == ["text/plain"]
    assert list(graph._repr_mimebundle_(exclude={"text/html"})) == ["text/plain", "image/svg+xml"]


def test_without_the_page_there_is_no_html(monkeypatch):
    monkeypatch.setattr("pullback.views.notebook.PAGE", "pullback.report.render.nowhere")
    assert list(pb.trace(Root, x())._repr_mimebundle_()) == ["text/plain", "image/svg+xml"]


def texts(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_trace_is_drawn_with_every_step_and_its_mark():
    traced = pb.trace(Root, x())
    svg = traced.to_svg()
    found = texts(svg)
    assert [number for number in found if number.isdigit()] == [str(step.number) for step in traced.steps]
    assert any(text.endswith("becomes NaN here") for text in found)
    assert "grad_x" in found
    bars = [rect for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if rect.get("fill") == "#3b6fc9"]
    assert len(bars) == sum(step.seconds is not None for step in traced.steps) == 2


def test_saved_memory_is_drawn_with_bars_as_long_as_the_blocks():
    value = x()
    kept = pb.saved((Root.apply(value) * torch.ones(2, 3)).exp(), params={"x": value})
    root = ElementTree.fromstring(kept.to_svg())
    bars = [float(rect.get("width")) for rect in root.iter(f"{SVG}rect") if rect.get("height") == "11.0"]
    assert bars == pytest.approx([150 * block.bytes / kept.blocks[0].bytes for block in kept.blocks], abs=0.1)
    assert "lives anyway: input x" in texts(kept.to_svg())


@pytest.mark.parametrize("name", ["graph", "trace", "saved"])
def test_no_text_leaves_the_picture(name):
    from pullback.views.ink import MARGIN, width

    root = ElementTree.fromstring(SHOWN[name]().to_svg())
    for text in root.iter(f"{SVG}text"):
        wide = width(text.text, int(text.get("font-size")))
        left = float(text.get("x")) - (wide / 2 if text.get("text-anchor") == "middle" else 0)
        assert left >= -MARGIN
        assert left + wide + MARGIN <= float(root.get("width")) + 0.5


def test_pictures_are_written_to_files(tmp_path):
    for name in ("trace", "saved"):
        SHOWN[name]().save(tmp_path / f"{name}.svg")
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag == f"{SVG}svg"


@pytest.mark.parametrize("shown", ["graph", "saved", "trace"])
def test_the_page_of_one_output_is_a_file_of_its_own(shown, tmp_path):
    x = torch.ones(3, requires_grad=True)
    output = pb.trace(torch.exp, x) if shown == "trace" else getattr(pb, shown)(x.exp())
    output.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "Content-Security-Policy" in text
