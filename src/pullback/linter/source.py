"""One source file: bytes, syntax tree, offsets, and the names it defines and imports."""

from __future__ import annotations

import ast
import codecs
import functools
import itertools
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .nodes import walk
from .values import Closure

TORCH_STARS = {
    "torch.autograd": ("Function", "Variable", "grad", "backward", "no_grad", "enable_grad"),
    "torch.autograd.function": ("Function", "FunctionCtx", "once_differentiable", "InplaceFunction"),
}


class Unreadable(ValueError):
    """Raised for a file that cannot be read or parsed; `line` is where parsing stopped."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(eq=False)
class Source:
    """A parsed file.

    Args:
        path: The path as the user knows it.
        data: The bytes as read.
        tree: The module's syntax tree.
        utf8: Whether byte offsets of the tree are byte offsets of the file.
    """

    path: Path
    data: bytes
    tree: ast.Module
    utf8: bool = True
    stars: list[str] = field(default_factory=list)
    functions: dict[str, Closure | None] = field(default_factory=dict)
    function_classes: dict[int, bool] = field(default_factory=dict)
    enterable: dict[int, bool] = field(default_factory=dict)

    @functools.cached_property
    def lines(self) -> list[bytes]:
        return self.data.splitlines(keepends=True)

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [3 if self.data.startswith(codecs.BOM_UTF8) else 0, *itertools.accumulate(map(len, self.lines))]

    def offset(self, line: int, column: int) -> int:
        """Return the byte offset of a line (from 1) and byte column (from 0)."""
        return self._starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the byte range of a node."""
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        if not self.utf8:
            return ast.unparse(node)
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8", "replace")

    def mentions(self, node: ast.AST, word: bytes) -> bool:
        """Return whether the lines of a statement contain a word."""
        start, end = self.offset(node.lineno, 0), self.offset(node.end_lineno + 1, 0)  # type: ignore[attr-defined]
        return self.data.find(word, start, end) >= 0

    @functools.cached_property
    def module(self) -> str:
        """The dotted module name, from the packages the file stands in."""
        parts = [] if self.path.stem == "__init__" else [self.path.stem]
        folder = self.path.parent
        while (folder / "__init__.py").is_file() and folder.name.isidentifier():
            parts.insert(0, folder.name)
            folder = folder.parent
        return ".".join(parts) or self.path.stem

    @functools.cached_property
    def package_root(self) -> Path:
        folder = self.path.parent
        while (folder / "__init__.py").is_file() and folder != folder.parent:
            folder = folder.parent
        return folder

    @functools.cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Functions, classes and assigned names at module level."""
        found: dict[str, ast.stmt] = {}
        for node in _module_level(self.tree.body):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.setdefault(node.name, node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in walk(target):
                        if isinstance(name, ast.Name):
                            found.setdefault(name.id, node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, node)
        return found

    @functools.cached_property
    def imports(self) -> dict[str, str]:
        """Local name to the dotted name it stands for; relative imports are made absolute."""
        found: dict[str, str] = {}
        for node in _module_level(self.tree.body):
            self.add_import(node, found)
        return found

    def add_import(self, node: ast.stmt, found: dict[str, str]) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node)
            for alias in node.names:
                if alias.name == "*":
                    self.stars.append(base)
                    found.update({name: f"{base}.{name}" for name in TORCH_STARS.get(base, ())})
                else:
                    found[alias.asname or alias.name] = f"{base}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        drop = node.level - (1 if self.path.stem == "__init__" else 0)
        parts = parts[: len(parts) - drop] if drop else parts
        return ".".join([*parts, *([node.module] if node.module else [])])


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _module_level(node.body)
            for name in ("orelse", "finalbody"):
                yield from _module_level(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from _module_level(handler.body)


def parse(path: Path, data: bytes) -> Source:
    """Return the parsed file.

    Raises:
        Unreadable: for a syntax error, an unknown encoding, null bytes or nesting beyond Python's limits.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except SyntaxError as error:
        hint = " (Python 2 source?)" if "print" in (error.msg or "") or "exec" in (error.msg or "") else ""
        raise Unreadable(f"{error.msg}{hint}", error.lineno or 1) from error
    except (ValueError, LookupError, RecursionError, MemoryError) as error:
        raise Unreadable(str(error) or type(error).__name__) from error
    return Source(path, data, tree, _is_utf8(data))


def _is_utf8(data: bytes) -> bool:
    two = data[: data.find(b"\n", data.find(b"\n") + 1) + 1] or data
    lines = iter(two.splitlines(keepends=True)[:2])
    try:
        encoding, _ = tokenize.detect_encoding(lambda: next(lines, b""))
        data.decode("utf-8")
    except (SyntaxError, UnicodeDecodeError):
        return False
    return encoding in ("utf-8", "utf-8-sig")
