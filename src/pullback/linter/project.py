"""Names across files: what an expression's dotted name means, and where a function or class of the same project is defined."""

from __future__ import annotations

import ast
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from .source import Source, Unreadable, parse
from .values import Closure

FUNCTION_NAMES = frozenset(
    (
        "torch.autograd.Function",
        "torch.autograd.function.Function",
        "torch.autograd.function.InplaceFunction",
        "torch.autograd.function.NestedIOFunction",
    )
)
_DEPTH = 6
_KEPT = 16


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A function or class and the source it stands in."""

    source: Source
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def dotted(node: ast.expr) -> str | None:
    """Return ``a.b.c`` for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


@dataclass(eq=False)
class Project:
    """The files that can be reached by imports from the checked ones; read on demand, each once."""

    _paths: dict[tuple[Path, str], Path | None] = field(default_factory=dict)
    _files: OrderedDict[Path, Source | None] = field(default_factory=OrderedDict)

    def add(self, source: Source) -> None:
        """Make an already parsed file available to others that import it."""
        self._keep(source.path.absolute(), source)

    def _keep(self, path: Path, source: Source | None) -> None:
        self._files[path] = source
        if len(self._files) > _KEPT:
            self._files.popitem(last=False)

    def function(self, source: Source, name: str) -> Closure | None:
        """Return the function of the project that a dotted name means in a file."""
        if name not in source.functions:
            found = self.find(source, name)
            usable = found if found and isinstance(found.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
            source.functions[name] = Closure(usable.node, usable.source) if usable else None  # type: ignore[arg-type]
        return source.functions[name]

    def canonical(self, source: Source, name: str) -> str:
        """Return the dotted name with its first part replaced by what the file's imports say."""
        head, _, rest = name.partition(".")
        full = source.imports.get(head, head)
        return f"{full}.{rest}" if rest else full

    def find(self, source: Source, name: str, depth: int = 0) -> Definition | None:
        """Return the function or class that a dotted name means in a file, following imports, stars and simple aliases."""
        if depth > _DEPTH:
            return None
        head, _, rest = name.partition(".")
        node = source.definitions.get(head)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return self._member(Definition(source, node), rest, depth)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            alias = dotted(node.value)
            return self.find(source, f"{alias}.{rest}" if rest else alias, depth + 1) if alias and alias != head else None
        if head in source.imports:
            return self._imported(source, self.canonical(source, name), depth)
        for star in source.stars:
            other = self._module(source, star) if not star.startswith("torch") else None
            found = self.find(other, name, depth + 1) if other and other is not source else None
            if found:
                return found
        return None

    def is_function(self, source: Source, node: ast.ClassDef, depth: int = 0) -> bool:
        """Return whether a class derives from torch.autograd.Function, through classes of the project as well."""
        known = source.function_classes
        key = id(node)
        if key not in known:
            known[key] = False
            known[key] = depth < _DEPTH and any(self._is_function_base(source, base, depth) for base in node.bases)
        return known[key]

    def bases(self, source: Source, node: ast.ClassDef) -> list[Definition]:
        """Return the bases of a class that are defined in the project."""
        found = (self.find(source, name) for base in node.bases if (name := dotted(base)))
        return [d for d in found if d and isinstance(d.node, ast.ClassDef) and d.node is not node]

    def lookup(self, source: Source, node: ast.ClassDef, method: str, depth: int = 0) -> tuple[Definition, Definition] | None:
        """Return the class that defines a method and the method, searching the bases in order."""
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == method:
                return Definition(source, node), Definition(source, statement)
        if depth < _DEPTH:
            for base in self.bases(source, node):
                assert isinstance(base.node, ast.ClassDef)
                found = self.lookup(base.source, base.node, method, depth + 1)
                if found:
                    return found
        return None

    def _is_function_base(self, source: Source, base: ast.expr, depth: int) -> bool:
        name = dotted(base)
        if name is None:
            return False
        if self.canonical(source, name) in FUNCTION_NAMES:
            return True
        alias = source.definitions.get(name)
        if isinstance(alias, ast.Assign) and (target := dotted(alias.value)) and target != name:
            return self.canonical(source, target) in FUNCTION_NAMES
        found = self.find(source, name)
        return bool(found and isinstance(found.node, ast.ClassDef) and self.is_function(found.source, found.node, depth + 1))

    def _member(self, definition: Definition, rest: str, depth: int) -> Definition | None:
        if not rest:
            return definition
        if isinstance(definition.node, ast.ClassDef) and "." not in rest:
            found = self.lookup(definition.source, definition.node, rest, depth)
            return found[1] if found else None
        return None

    def _imported(self, source: Source, full: str, depth: int) -> Definition | None:
        if full.split(".", 1)[0] in ("torch", "numpy", "triton", "typing", "math"):
            return None
        parts = full.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            module = self._module(source, ".".join(parts[:cut]))
            if module is not None and module is not source:
                return self.find(module, ".".join(parts[cut:]), depth + 1)
        return None

    def _module(self, source: Source, name: str) -> Source | None:
        key = (source.package_root, name)
        if key not in self._paths:
            self._paths[key] = _locate(source, name)
        path = self._paths[key]
        return None if path is None else self._read(path)

    def _read(self, path: Path) -> Source | None:
        key = path.absolute()
        if key not in self._files:
            try:
                source = parse(path, path.read_bytes())
            except (Unreadable, OSError):
                source = None
            self._keep(key, source)
        else:
            self._files.move_to_end(key)
        return self._files[key]


def _locate(source: Source, name: str) -> Path | None:
    if not name:
        return None
    relative = Path(*name.split("."))
    for root in (source.package_root, source.path.parent):
        for path in (root / relative / "__init__.py", root / relative.with_name(relative.name + ".py")):
            if path.is_file():
                return path
    return None
