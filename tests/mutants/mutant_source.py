"""Make a Function wrong by rewriting its source: expressions replaced in its class, or a subclass appended that spoils what backward returns."""

import ast
import importlib.util
import inspect
import itertools
import sys
import tempfile
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory(prefix="mutants-")
_numbers = itertools.count()


class Unfit(ValueError):
    """An edit whose old text does not stand in the class."""


def rewritten(function, edits):
    """Return the class of `function` with every old text replaced by the new one, from a module file of its own.

    Args:
        function: A Function subclass, the only one of its module.
        edits: Pairs of old and new text; old is an expression or a statement and may be written in any style.
    """
    tree = ast.parse(inspect.getsource(inspect.getmodule(function)))
    cls = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == function.__name__)
    for old, new in edits:
        replace = _Replace(old, new)
        cls = replace.visit(cls)
        if not replace.hits:
            raise Unfit(f"{function.__name__} holds no {old!r}")
    tree.body = [cls if isinstance(node, ast.ClassDef) and node.name == function.__name__ else node for node in tree.body]
    return getattr(_load(ast.unparse(ast.fix_missing_locations(tree))), function.__name__)


def extended(function, name, text):
    """Return the class `name` that `text` adds to the module of `function`."""
    return getattr(_load(f"{inspect.getsource(inspect.getmodule(function))}\n\n{text}"), name)


def _load(text):
    name = f"mutant_{next(_numbers)}"
    path = Path(FOLDER.name) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        (self.old,) = ast.parse(old).body
        self.new = ast.parse(new).body
        if isinstance(self.old, ast.Expr) and isinstance(self.new[0], ast.Expr) and len(self.new) == 1:
            self.old, self.new = self.old.value, self.new[0].value
        self.wanted = ast.dump(self.old)
        self.hits = 0

    def visit(self, node):
        if ast.dump(node) == self.wanted:
            self.hits += 1
            return self.new
        return self.generic_visit(node)
