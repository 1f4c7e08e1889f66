"""Walking a tree gives the nodes of `ast.walk` in its order, but for contexts and operators."""

import ast
from pathlib import Path

import pytest

import pullback
from pullback.linter.nodes import walk

LEFT_OUT = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)
ODD = """
match a:
    case {"k": 1, **rest} | [None, *others] | Point(x=0, y=None) as p if p:
        global g
        x: int = {**a, b: c}[1:2, ...]
    case None:
        pass
async def f(a, /, b=1, *c, d, e=2, **k) -> "s":
    async with a as b, c:
        return [await i async for i in f"{a!r:{b}}" if not i and -i or i < 1 <= 2]
try:
    from . import a as b
except* (A, B) as e:
    del a.b, c[0]
"""


@pytest.mark.parametrize("path", [None, *sorted((Path(pullback.__file__).parent / "linter").glob("*.py"))], ids=lambda p: p.name if p else "odd")
def test_walk(path):
    tree = ast.parse(ODD if path is None else path.read_bytes())
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, LEFT_OUT)]
