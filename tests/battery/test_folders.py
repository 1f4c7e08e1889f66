"""The checked code may lie in folders of any name, those of torch and pullback among them."""

import importlib.util
import textwrap

import torch

import pullback as pb

SOURCE = """
import torch

slope = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)


class Captures(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        return w * slope

    @staticmethod
    def backward(ctx, dy):
        return dy * slope


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.numel() == 0:
            raise ValueError("x must not be empty")
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class MixesDevices(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.arange(x.shape[-1], dtype=x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy * torch.arange(dy.shape[-1], dtype=dy.dtype)
"""


def load(tmp_path):
    path = tmp_path / "torch" / "pullback" / "battery" / "functions_elsewhere.py"
    path.parent.mkdir(parents=True)
    path.write_text(textwrap.dedent(SOURCE))
    spec = importlib.util.spec_from_file_location("functions_elsewhere", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_lines_and_refusals_are_known_there(tmp_path):
    module = load(tmp_path)
    captures = {f.code: f for f in pb.check(module.Captures, torch.randn(3, dtype=torch.float64)).findings if f.severity == "error"}
    assert set(captures) == {"PB611"}
    assert "reads slope," in captures["PB611"].message
    assert captures["PB611"].location is not None
    assert captures["PB611"].location.line == 10
    refused = pb.check(module.Refuses, torch.randn(3))
    assert not [f for f in refused.findings if f.severity != "note"]
    mixed = next(f for f in pb.check(module.MixesDevices, torch.randn(3)).findings if f.code == "PB801")
    line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if "x * torch.arange" in text)
    assert mixed.evidence[0].got == f"line {line} mixes meta and cpu"
