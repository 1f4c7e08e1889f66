"""Which parameters a failure is about: the failing expression, its names, and whose values they hold."""

from __future__ import annotations

import ast
from typing import Any

import torch

from ...capture.source import FunctionNode, tree_of
from .attempt import Attempt, UserFrame, named_arguments
from .evidence import Evidence
from .syntax import context_name, own_nodes


def blamed(attempt: Attempt, evidence: Evidence) -> list[str]:
    """Return the names of the parameters that the failing expression depends on, the nearest first."""
    owners = Owners(attempt, evidence)
    for frame in reversed(attempt.frames):
        found = _blamed_in(frame, owners, evidence)
        if found:
            return found
    return []


class Owners:
    """Whose argument a value is: by identity, by shared memory, for numbers by nothing."""

    def __init__(self, attempt: Attempt, evidence: Evidence):
        self.by_id: dict[int, str] = {}
        self.by_memory: dict[int, str] = {}
        self.plain: dict[str, Any] = {}
        for path, value in named_arguments(attempt.args, evidence.slots):
            name = path.partition("[")[0]
            self._note(value, name)
            for member in value if isinstance(value, (list, tuple)) else ():
                self._note(member, name)

    def _note(self, value: Any, name: str) -> None:
        if isinstance(value, (bool, int, float, str)):
            self.plain[name] = value
        if value is None or isinstance(value, (bool, int, float, str)):
            return
        self.by_id.setdefault(id(value), name)
        if isinstance(value, torch.Tensor) and value.numel():
            self.by_memory.setdefault(value.data_ptr(), name)

    def of(self, value: Any, local: str) -> str | None:
        """Return the parameter whose argument `value` is; `local` is the name it has where the failure is."""
        if id(value) in self.by_id:
            return self.by_id[id(value)]
        if isinstance(value, (bool, int, float, str)):
            same = [name for name, number in self.plain.items() if number is value]
            return local if local in same else same[0] if len(same) == 1 and isinstance(value, float) else None
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
            return self.by_memory.get(value.data_ptr())
        return None


def _blamed_in(frame: UserFrame, owners: Owners, evidence: Evidence) -> list[str]:
    node = _tree_of_frame(frame, evidence)
    if node is None:
        return []
    expressions = _failing(node, frame)
    direct = _dependencies(node, evidence)
    found: list[str] = []
    for expression in expressions:
        for name in _names(expression):
            root = name.partition(".")[0]
            value = frame.values.get(root)
            owner = owners.of(value, root) if "." not in name else None
            for candidate in [owner] if owner else direct.get(name, []):
                if candidate not in found:
                    found.append(candidate)
        if found:
            return found
    return found


def _tree_of_frame(frame: UserFrame, evidence: Evidence) -> FunctionNode | None:
    for node in (evidence.source.forward, evidence.source.backward, evidence.source.setup_context):
        if node is not None and frame.code.co_name == node.name and node.lineno <= frame.line <= (node.end_lineno or node.lineno):
            return node

    class Holder:
        __code__ = frame.code

    return tree_of(Holder)


def _failing(node: FunctionNode, frame: UserFrame) -> list[ast.AST]:
    """The failing expression, then the statement around it, then (for raise and assert) the tests around that."""
    inside = [n for n in own_nodes(node) if isinstance(n, (ast.expr, ast.stmt)) and n.lineno <= frame.line <= (n.end_lineno or n.lineno)]
    exact: list[ast.AST] = []
    if frame.span is not None:
        line, end_line, column, end_column = frame.span
        exact = [
            n
            for n in inside
            if isinstance(n, ast.expr) and (n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) == (line, end_line, column, end_column)
        ]
    statements = [n for n in inside if isinstance(n, ast.stmt)]
    tests = [n.test for n in reversed(statements) if isinstance(n, (ast.If, ast.While))]
    inner = [_header(statements[-1])] if statements else []
    if inner and isinstance(inner[0], (ast.Raise, ast.Assert)):
        return [*inner, *tests]
    return [*exact, *inner, *tests]


def _header(statement: ast.stmt) -> ast.AST:
    """What fails in a compound statement is its head, else the failing statement would be one of its body."""
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        return statement.iter
    if isinstance(statement, (ast.If, ast.While)):
        return statement.test
    return statement


def _names(expression: ast.AST) -> list[str]:
    names: list[str] = []
    for node in (expression, *own_nodes(expression)):
        if isinstance(node, ast.Name):
            names.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.append(f"{node.value.id}.{node.attr}")
    return names


def _dependencies(node: FunctionNode, evidence: Evidence) -> dict[str, list[str]]:
    """For each local name (and ``ctx.attribute``) the parameters it is computed from, in the order of assignment."""
    known: dict[str, list[str]] = {}
    if node is evidence.source.forward or node is evidence.source.setup_context:
        known = {slot.name: [slot.name] for slot in evidence.slots}
    ctx = context_name(node)
    if node is not evidence.source.forward:
        known |= {f"{ctx}.{attribute}": list(names) for attribute, names in _kept_on_ctx(evidence).items()}
    known |= {f"{ctx}.{kept}": [name] for kept, name in evidence.kept.items() if not kept.startswith("saved[")}
    for statement in own_nodes(node):
        value = getattr(statement, "value", None) if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) else None
        if isinstance(statement, (ast.For, ast.comprehension)):
            value = statement.iter
        if value is None:
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
        for target in targets:
            _flow(target, value, known, evidence)
    return known


def _kept_on_ctx(evidence: Evidence) -> dict[str, list[str]]:
    """For each attribute that forward or setup_context sets on ctx the parameters it is computed from."""
    method = evidence.source.setup_context or evidence.source.forward
    if method is None:
        return {}
    ctx = context_name(method)
    known: dict[str, list[str]] = {slot.name: [slot.name] for slot in evidence.slots}
    for statement in own_nodes(method):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                _flow(target, statement.value, known, evidence)
    return {name.removeprefix(f"{ctx}."): names for name, names in known.items() if name.startswith(f"{ctx}.")}


def _flow(target: ast.expr, value: ast.AST, known: dict[str, list[str]], evidence: Evidence) -> None:
    saved = isinstance(value, ast.Attribute) and value.attr in ("saved_tensors", "saved_variables")
    sources = list(dict.fromkeys(p for name in _names(value) for p in known.get(name, ())))
    elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    for i, element in enumerate(elements):
        if not isinstance(element, (ast.Name, ast.Attribute)):
            continue
        name = ast.unparse(element)
        parts = sources
        if saved and (kept := evidence.kept.get(f"saved[{i}]")):
            parts = [kept]
        known[name] = list(dict.fromkeys([*known.get(name, ()), *parts])) if isinstance(value, ast.BinOp) or name not in known else list(parts)
