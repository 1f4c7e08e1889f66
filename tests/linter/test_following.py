"""Aliases, helpers, bases and imports are followed; what cannot be followed gives no finding."""

from pathlib import Path

import pytest

from pullback.linter.engine import facts_of, lint

HEAD = "import torch\n"
FORWARD = """
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
"""


def op(body: str, base: str = "torch.autograd.Function", name: str = "Op") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"class {name}({base}):{FORWARD}{lines}\n"


def codes(folder: Path, **sources: str) -> list[str]:
    paths = []
    for name, text in sources.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    return sorted(f.code for f in lint(paths).findings if f.severity == "error")


@pytest.mark.parametrize(
    "body",
    [
        "g.mul_(ctx.k)\nreturn g, None",
        "h = g\nh *= ctx.k\nreturn h, None",
        "h = g.view(-1)\nh[0] = 0\nreturn g, None",
        "h = g.contiguous()\nh.neg_()\nreturn h, None",
        "h = g.reshape(-1).t()\nh.zero_()\nreturn g, None",
        "a, b = g.chunk(2)\nb.add_(1)\nreturn g, None",
        "g.data.mul_(ctx.k)\nreturn g, None",
        "g.detach().numpy()[:] = 0\nreturn g, None",
        "torch.mul(g, ctx.k, out=g)\nreturn g, None",
        "torch.relu_(g)\nreturn g, None",
        "torch.nn.functional.relu(g, inplace=True)\nreturn g, None",
        "g[g < 0] = 0\nreturn g, None",
        "h = g if ctx.k else g.clone()\nh.mul_(2)\nreturn h, None",
        "for part in g.unbind():\n    part.mul_(2)\nreturn g, None",
        "def scale(t):\n    t.mul_(2)\n    return t\nreturn scale(g), None",
        "with torch.no_grad():\n    g.mul_(2)\nreturn g, None",
        "try:\n    g.mul_(2)\nfinally:\n    pass\nreturn g, None",
        "(h := g).mul_(2)\nreturn h, None",
    ],
)
def test_writes_into_grad_output_are_followed(tmp_path: Path, body: str):
    assert codes(tmp_path, ops=HEAD + op(body)) == ["PB101"]


@pytest.mark.parametrize(
    "body",
    [
        "h = g.clone()\nh.mul_(ctx.k)\nreturn h, None",
        "g = g * ctx.k\ng.mul_(2)\nreturn g, None",
        "h = torch.empty_like(g)\nh.copy_(g)\nreturn h, None",
        "h = g.new_zeros(3)\nh += g\nreturn h, None",
        "n = len(g)\nn += 1\nreturn g * n, None",
        "rows = [g]\nrows[0] = g * 2\nreturn rows[0], None",
        "h = g[torch.arange(3)]\nh.mul_(2)\nreturn h, None",
        "shape = g.shape\nshape += (1,)\nreturn g, None",
        "return unknown(g), None",
        "g.requires_grad_()\nreturn g * 1, None",
        "h = g.sum(0)\nh.div_(2)\nreturn h.expand_as(g), None",
    ],
)
def test_writes_elsewhere_are_not(tmp_path: Path, body: str):
    assert codes(tmp_path, ops=HEAD + op(body)) == []


def test_helpers_of_the_module_and_of_the_project_are_entered(tmp_path: Path):
    helpers = "def scale(t, k):\n    t.mul_(k)\n    return t\n"
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    body = "return scale(g, ctx.k), None"
    assert codes(tmp_path, ops=HEAD + helpers + op(body)) == ["PB101"]
    assert codes(tmp_path, pkg__helpers=helpers, pkg__ops=HEAD + "from .helpers import scale\n" + op(body)) == ["PB101"]
    assert codes(tmp_path, pkg__ops=HEAD + "from pkg import helpers as h\n" + op("return h.scale(g, ctx.k), None")) == ["PB101"]
    assert codes(tmp_path, pkg__ops=HEAD + "from .helpers import *\n" + op(body)) == ["PB101"]
    assert codes(tmp_path, pkg__ops=HEAD + "from elsewhere import scale\n" + op(body)) == []


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("import torch\n", "torch.autograd.Function"),
        ("import torch as t\n", "t.autograd.Function"),
        ("from torch import autograd\n", "autograd.Function"),
        ("from torch.autograd import Function\n", "Function"),
        ("from torch.autograd import Function as F\n", "F"),
        ("from torch.autograd import *\n", "Function"),
        ("from torch.autograd.function import Function\n", "Function"),
        ("import torch\nBase = torch.autograd.Function\n", "Base"),
        ("try:\n    from torch.autograd import Function\nexcept ImportError:\n    Function = object\n", "Function"),
    ],
)
def test_the_base_is_recognised_under_every_name(tmp_path: Path, head: str, base: str):
    assert codes(tmp_path, ops=head + op("return g.mul_(2), None", base)) == ["PB101"]


def test_bases_of_the_same_project_are_followed(tmp_path: Path):
    base = "import torch\n\n\nclass Base(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, k):\n        return x * k\n"
    derived = "from base import Base\n\n\nclass Op(Base):\n    @staticmethod\n    def backward(ctx, g):\n        return g.mul_(2), None\n"
    assert codes(tmp_path, base=base, derived=derived) == ["PB101"]


def test_other_classes_are_left_alone(tmp_path: Path):
    assert codes(tmp_path, ops=HEAD + op("return g.mul_(2), None", "Handler")) == []
    assert codes(tmp_path, ops="from mylib import Function\n" + op("return g.mul_(2), None", "Function")) == []


def test_recursion_and_cycles_of_imports_end(tmp_path: Path):
    loop = "def f(t):\n    return g(t)\n\n\ndef g(t):\n    return f(t)\n"
    assert codes(tmp_path, ops=HEAD + loop + op("return f(g), None")) == []
    assert codes(tmp_path, a="from b import *\nimport torch\n" + op("return thing(g), None"), b="from a import *\nFunction = 1\n") == []
    assert codes(tmp_path, c="class A(B): pass\n\n\nclass B(A):\n    def backward(ctx, g): pass\n") == []


def test_facts_name_what_is_saved_set_read_and_returned(tmp_path: Path):
    from pullback.linter.table import render, rows

    path = tmp_path / "ops.py"
    path.write_text(
        "import torch\n\n\nclass Mul(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x, y, k=1):\n        ctx.save_for_backward(x, y)\n"
        "        ctx.k = k\n        return x * y * k\n\n    @staticmethod\n    def backward(ctx, g):\n        x, y = ctx.saved_tensors\n"
        "        return g * y * ctx.k, g * x * ctx.k, None\n"
    )
    table = [(r.line, r.method, r.what, r.text) for r in rows(facts_of(path)[0])]
    assert (7, "forward", "saves", "x, y") in table
    assert (8, "forward", "sets", "ctx.k") in table
    assert (13, "backward", "unpacks", "ctx.saved_tensors: 2 tensors") in table
    assert (14, "backward", "reads", "ctx.k") in table
    assert [t for *_, what, t in table if what == "returns"] == [
        "1: computed from x, y, k",
        "3: x: computed from g, y, k, y: computed from g, x, k, k: None",
    ]
    assert "Mul" in render(facts_of(path))
    path.write_text(path.read_text().replace("save_for_backward(x, y)", "save_for_backward(x)").replace("x, y = ctx", "(x,) = ctx"))
    assert "ctx.saved_tensors: 1 tensor\n" in render(facts_of(path))


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("x.requires_grad", True),
        ("x.requires_grad == True", True),
        ("x.requires_grad is not False", True),
        ("not (x.requires_grad == False)", True),
        ("x.requires_grad == False", False),
        ("x.requires_grad != True", False),
    ],
)
def test_a_flag_compared_with_true_or_false_is_that_flag_or_its_opposite(tmp_path: Path, test: str, found: bool):
    text = f"""
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if {test}:
            ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, g * x
"""
    assert ("PB106" in codes(tmp_path, m=HEAD + text)) is found
