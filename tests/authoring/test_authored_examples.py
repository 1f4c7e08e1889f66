"""examples/tutorial/authored.py: right by gradcheck, equal to mended.py, and at most eight lines each."""

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest
import torch

import pullback as pb

FOLDER = Path(__file__).parents[2] / "examples" / "tutorial"


def load(name):
    spec = importlib.util.spec_from_file_location(f"tutorial_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


authored, mended = load("authored"), load("mended")
OPS = {name: value for name, value in vars(authored).items() if hasattr(value, "explain")}
CLASSES = {name.lower(): value for name, value in vars(mended).items() if isinstance(value, type) and issubclass(value, torch.autograd.Function)}


def test_every_example_is_there_with_the_same_arguments():
    assert {name.replace("_", "") for name in OPS} == set(CLASSES) - {"function"}
    for name, op in OPS.items():
        forward = [p for p in inspect.signature(CLASSES[name.replace("_", "")].forward).parameters if p != "ctx"]
        assert list(inspect.signature(op).parameters) == forward, name


def test_each_has_at_most_eight_lines_of_code():
    tree = ast.parse((FOLDER / "authored.py").read_text(encoding="utf-8"))
    lines: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            decorator = ast.unparse(node.decorator_list[0])
            name = node.name if decorator.startswith("pb.op") else decorator.partition(".")[0]
            first = node.decorator_list[0].lineno + (ast.get_docstring(node) is not None)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name, first = ast.unparse(node).partition(".")[0], node.lineno
        else:
            continue
        lines[name] = lines.get(name, 0) + node.end_lineno - first + 1
    assert set(lines) == set(OPS)
    assert max(lines.values()) <= 8, lines


DELIBERATE = {"custom_relu", "scaled_sigmoid", "guided_relu"}


@pytest.mark.parametrize(
    ("index", "case"), list(enumerate(authored.pullback_cases())), ids=lambda value: getattr(getattr(value, "target", None), "__name__", "")
)
def test_gradients_equal_those_of_the_mended_function(index, case):
    function = list(mended.pullback_cases())[index].target

    def run(call):
        torch.manual_seed(5)
        out = call(*case.args, **case.kwargs)
        outs = out if isinstance(out, tuple) else (out,)
        dys = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outs]
        wanted = [arg for arg in case.args if isinstance(arg, torch.Tensor) and arg.requires_grad]
        return [*outs, *torch.autograd.grad(outs, wanted, dys)]

    for got, expected in zip(run(case.target), run(function.apply), strict=True):
        torch.testing.assert_close(got, expected)
    if case.target.__name__ not in DELIBERATE | {"random_op", "dropout"}:
        assert torch.autograd.gradcheck(case.target, case.args)
        assert torch.autograd.gradgradcheck(case.target, case.args)


def test_deliberate_gradients_are_declared():
    for name, op in OPS.items():
        declaration = op.__pullback__
        deliberate = not declaration["exact"] or not declaration["linear"] or declaration["surrogate"] is not None
        assert deliberate == (name in DELIBERATE), name
        assert bool(declaration["reason"]) == deliberate


def test_cases_name_ops():
    assert all(isinstance(case, pb.Case) for case in authored.pullback_cases())
