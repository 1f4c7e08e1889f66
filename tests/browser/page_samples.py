"""Pages that the browser tests open: what pullback itself says about small programs, and graphs of any size."""

import random

import torch

import pullback as pb
from pullback.report.finding import Evidence, Finding, Location
from pullback.report.render.html import findings_section, page_of
from pullback.report.report import CheckRun, Report
from pullback.views.saved_memory import saved_section
from pullback.views.sections import graph_section
from pullback.views.trace import trace_section


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.mask = {"positive": x > 0}
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0)


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(max=1)

    @staticmethod
    def backward(ctx, dy):
        return dy * 0


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy / (2 * y)


def net(x, w):
    return Root.apply(Clip.apply(Gate.apply(x, w)).relu()).sum()


def model(layers=6):
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8)) for _ in range(layers)))


def findings():
    wrong = {"name": "grad_x", "shape": [4, 8], "wrong": 9, "tolerance": 1e-8, "where": [*range(0, 32, 4), 31], "error": [1e-3] * 8 + [None]}
    cells = {"rows": 6, "columns": 16, "share": [0.0] * 80 + [0.5] * 8 + [1.0] * 8}
    evidence = Evidence(
        "grad_x[3, 7]: 9 of 32 elements wrong", "0.25", "0.5", 0.25, 1e-8, "half the digits of the dtype, relative to the largest entry"
    )
    gate, clip = "page_samples.Gate", "page_samples.Clip"
    here = Location(__file__, Gate.backward.__code__.co_firstlineno + 1)
    return (
        Finding(
            "PB501",
            "wrong-gradient",
            "error",
            "fail",
            gate,
            "Gate.backward returns a wrong gradient for x",
            here,
            (evidence, Evidence("along a random direction of x")),
            cause="a factor of 2 is missing",
            certain=True,
            fix="return 2 * dy * w",
            repro="pullback check page_samples.py::Gate --select PB501 --case 0 --seed 0",
            attachments={"gradient": wrong},
        ),
        Finding(
            "PB511",
            "wrong-forward",
            "error",
            "fail",
            gate,
            "Gate.forward differs from its reference",
            attachments={"gradient": {"name": "output", "shape": [64, 512], "wrong": 4096, "grid": cells}},
        ),
        Finding("PB612", "hidden-residual", "warning", "waste", gate, "Gate keeps ctx.mask on ctx, where save_for_backward does not see it"),
        Finding("PB002", "crashed", "error", "fail", clip, "Clip.backward raises RuntimeError", attachments={"output": "one line\nanother line"}),
        Finding("PB703", "func-unsupported", "note", "unsupported", clip, "torch.func transforms cannot use Clip: it has no setup_context"),
    )


def chart():
    x = [2**k for k in range(10, 22)]
    series = [
        {"name": name, "x": x, "y": [f * n for n in x], "low": [0.8 * f * n for n in x], "high": [1.3 * f * n for n in x]}
        for name, f in (("fused", 1e-9), ("eager", 3e-9))
    ]
    note = "float32, one thread; medians, the band holds the middle half"
    return {
        "kind": "chart",
        "title": "Time",
        "note": note,
        "x": {"label": "elements", "log": True},
        "y": {"label": "seconds", "log": True},
        "series": series,
    }


def steady(section):
    """Return a trace in which nothing depends on how fast this machine is."""
    return section | {"steps": [step | {"at": 0.0, "seconds": step["seconds"] and 1e-5 * (1 + step["number"])} for step in section["steps"]]}


def everything():
    """Return a page with every kind of section; its sections in order: findings, trace, saved, graph, graph of a model, chart."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.rand(shape, generator=generator).requires_grad_() for shape in ((4, 8), (8,)))
    with torch.no_grad():
        x[0, 0] = -1
    y, params, deep = net(x, w), {"x": x, "w": w}, model()
    checks = tuple(CheckRun(code, f"page_samples.{name}", "pass") for code in ("PB502", "PB601") for name in ("Gate", "Clip"))
    report = Report(findings(), checks, ("page_samples.Gate", "page_samples.Clip"), {"pullback": "0", "torch": "0", "seed": 0})
    about = {"subject": "page_samples.net"}
    sections = [
        steady(trace_section(pb.trace(net, x, w))) | about,
        saved_section(pb.saved(y, params=params)) | about,
        graph_section(pb.graph(y, params=params)) | about | {"title": "Graph"},
        graph_section(pb.graph(deep(x), params=deep)) | {"title": "Model"},
        chart(),
    ]
    return page_of(report, sections)


def large(count, *, flat=True):
    """Return a page with a graph of `count` nodes: every one takes two others nearby, chosen by chance, so that nothing repeats."""
    chance = random.Random(0)
    names = ["add", "mul", "sin", "matmul"]
    nodes = []
    for i in range(count):
        sources = sorted({max(0, i - chance.randint(1, 30)) for _ in range(2)}) if i else []
        nodes.append(
            {
                "kind": "op" if i else "leaf",
                "name": chance.choice(names) if i else "x",
                "values": ["float32 [2, 3]"],
                "sources": [[source, 0] for source in sources],
                "parameters": [{"name": f"layers.{i}.weight", "value": "float32 [3, 3]"}] if i % 7 == 3 else [],
                "saved": [{"name": "result", "value": "float32 [2, 3]", "bytes": 24}],
                "forward": None,
                "backward": None,
            }
        )
    section = {"schema": 1, "kind": "graph", "nodes": nodes, "outputs": [[count - 1, 0]]}
    tree = {} if flat else {"tree": [{"title": "all", "times": 1, "first": 0, "size": count, "chained": False, "items": list(range(count))}]}
    return {"schema": 1, "title": f"{count:,} nodes", "sections": [section | tree]}


def hostile(texts):
    """Return a page on which every string that a program may choose is hostile."""
    evil = " ".join(texts)
    place = {"path": f"/{evil}.py", "line": 1}
    node = {"kind": "function", "name": evil, "values": [evil], "sources": [], "parameters": [{"name": evil, "value": evil}]}
    node |= {"saved": [{"name": evil, "value": evil, "bytes": 8}], "forward": place, "backward": place}
    stats = {"value": evil, "strides": evil, "requires_grad": True, "norm": 1.0, "elements": 1, "zeros": 0, "nan": 0, "inf": 0}
    step = {"number": 1, "phase": "apply", "function": evil, "call": 1, "what": "result", "name": evil, "text": evil, "stats": stats}
    step |= {"seconds": 1.0, "at": 0.0, "location": place, "mark": "zero"}
    holder = {"node": evil, "name": evil, "how": "ctx", "value": evil, "bytes": 8, "times": 1, "location": place}
    finding = Finding("PB501", "wrong-gradient", "error", "fail", evil, evil, cause=evil, fix=evil, repro=evil, attachments={"output": evil})
    return {
        "schema": 1,
        "title": evil,
        "sections": [
            findings_section(Report((finding,), subjects=(evil,))),
            {
                "kind": "trace",
                "subject": evil,
                "error": evil,
                "steps": [step],
                "gradients": [{"name": evil, "stats": stats, "mark": "NaN", "remark": evil}],
            },
            {"kind": "saved", "subject": evil, "bytes": 8, "extra": 8, "blocks": [{"bytes": 8, "anyway": evil, "holders": [holder]}]},
            {"kind": "graph", "title": evil, "nodes": [node], "outputs": [[0, 0]]},
            chart() | {"title": evil, "note": evil, "series": [{"name": evil, "x": [1, 2], "y": [1, 2]}]},
        ],
    }
