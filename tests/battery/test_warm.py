"""Only checks that say so make torch import its compiler, which takes a second."""

import subprocess
import sys
from pathlib import Path

import torch

from pullback.battery.outcomes import Options
from pullback.report.codes import registry


class Product(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


CODE = """
import sys, torch
import pullback as pb
from pullback.report.codes import registry
from test_warm import Product
x, w = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
eager = [c.code for c in registry().values() if "checks" in c.path and not c.compiler]
report = pb.check(Product, (x, w), select=eager)
assert len(report.checks) > 30, report
assert "torch._dynamo" not in sys.modules
"""


def test_other_checks_do_without_the_compiler():
    subprocess.run([sys.executable, "-c", CODE], check=True, cwd=Path(__file__).parent)


def test_workers_import_the_compiler_where_a_selected_check_uses_it():
    assert [code for code in ("PB501", "PB616", "PB604") if registry()[code].compiler] == ["PB616"]
    assert Options().imports == Options({"select": ["PB501", "PB616"]}).imports == "pullback.battery.warm"
    assert Options({"select": ["PB501", "PB604"]}).imports == "pullback.battery.warm_eager"
    assert Options({"select": ["PB616"]}, preload="").imports == ""
