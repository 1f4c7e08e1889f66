"""`pullback explain FILE::NAME`: the contract of a Function."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pullback.cli.main import main

TEXT = """
import torch
import pullback as pb
from torch.autograd.function import once_differentiable

class Scale(torch.autograd.Function):
    \"\"\"Multiplies by a factor.

    More words.
    \"\"\"
    __pullback__ = {"exact": False, "reason": "a lesson"}

    @staticmethod
    def forward(ctx, x, index, factor=2.0):
        y = x * factor
        ctx.save_for_backward(x, x > 0, y)
        ctx.table = torch.ones(5, dtype=torch.float64)
        ctx.factor = factor
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return dy * ctx.factor, None, None

class Silent(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        return x + 1
    @staticmethod
    def setup_context(ctx, inputs, output): pass
    @staticmethod
    def backward(ctx, dy):
        raise RuntimeError("not today")

def pullback_cases():
    yield pb.case(Scale, torch.randn(3, 4), torch.arange(3))
    yield pb.case(Silent, torch.ones(2))
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    path = tmp_path_factory.mktemp("contract") / "scale.py"
    path.write_text(TEXT)
    result = CliRunner().invoke(main, ["explain", str(path)])
    assert result.exit_code == 0, result.output
    first, second = result.stdout.split("# Silent\n")
    return first, second


def row(page, start):
    line = next(line for line in page.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_arguments_and_what_is_differentiated(pages):
    assert "Multiplies by a factor.\n" in pages[0]
    assert row(pages[0], "`x`") == ["`x`", "float32[3, 4]", "yes"]
    assert row(pages[0], "`index`") == ["`index`", "int64[3]", "never"]


def test_what_is_kept_with_its_bytes(pages):
    assert row(pages[0], "`x`, an argument") == ["`x`, an argument", "save_for_backward", "float32[3, 4]", "48"]
    assert row(pages[0], "a new tensor") == ["a new tensor", "save_for_backward", "bool[3, 4]", "12"]
    assert "| `ctx.table`" in pages[0]
    assert "an output" in pages[0]
    assert "148 bytes, of which 52 in tensors that are neither argument nor output: 4.33 per output element." in pages[0]


def test_declarations_and_transforms(pages):
    assert row(pages[0], "exact") == ["exact", "False"]
    assert row(pages[0], "reason") == ["reason", "'a lesson'"]
    assert "no: there is no setup_context" in row(pages[0], "torch.vmap")
    assert "refused cleanly (once_differentiable)" in row(pages[0], "second derivatives")
    assert row(pages[1], "torch.vmap") == ["torch.vmap", "yes"]
    assert "None: the gradient is promised to be the derivative of the forward." in pages[1]


def test_a_backward_that_raises_is_told(pages):
    assert "On sample 0 backward raises: RuntimeError: not today" in pages[1]


def test_an_unknown_name_exits_2():
    path = Path(__file__)
    result = CliRunner().invoke(main, ["explain", f"{path}::Scaled"])
    assert result.exit_code == 2
    assert "defines no 'Scaled'" in result.stderr
