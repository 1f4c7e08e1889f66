"""What the code of a Function says about how many axes its tensors have: which ranks it asks for, folds, or leaves open."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ..capture.calls import Function, backward_of
from ..capture.source import called_by, syntax_of
from .code_text import LEVELS

_RANK_CALLS = frozenset({"dim", "ndimension"})
_COUNT_CALLS = frozenset({"numel", "nelement"})
_SIGNS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(slots=True)
class RankQuestions:
    """What the code says about ranks, by the names that it gives tensors.

    Args:
        asked: Names whose number of axes, or all sizes but the last, the code asks for.
        folded: Names of which forward folds the last axes, or along whose second of any number of axes it lays a vector: only then is one more axis
            at the end meant, since indexing takes any number of them.
        compared: A name, a sign and the number that its rank is compared with.
        between: Pairs of names whose ranks are compared with each other, or of which the larger or smaller is taken.
        from_the_end: Whether forward counts axes from the end, so that any number of them may come first.
        single: Names of which the code asks whether an axis, or the whole tensor, has one entry.
    """

    asked: set[str] = field(default_factory=set)
    folded: set[str] = field(default_factory=set)
    compared: list[tuple[str, str, int]] = field(default_factory=list)
    between: list[tuple[str, str]] = field(default_factory=list)
    from_the_end: bool = False
    single: set[str] = field(default_factory=set)

    def highest(self, name: str) -> float:
        """The highest number that the rank of a name is compared with; none is higher where it is asked for otherwise."""
        return max((number for who, _, number in self.compared if who == name), default=float("inf"))

    def told_apart(self) -> set[tuple[str, int]]:
        """The ranks that the code asks names for: three for ``b.dim() == 3``, and three and four for ``b.dim() < 4``."""
        return {(name, rank) for name, sign, number in self.compared for rank in _told_apart(sign, number)}

    def cases(self) -> set[tuple[str, int]]:
        """The ranks for which the code has a case of its own, so that it has one for others too."""
        return {(name, number) for name, sign, number in self.compared if sign in ("==", "!=")}


def rank_questions(function: type[Function] | None) -> RankQuestions:
    """Return what forward, backward and the helpers that they call say about ranks, as far as they can be read."""
    found = RankQuestions()
    if function is None:
        return found
    forward = called_by(function, function.forward, levels=LEVELS)
    for method in dict.fromkeys((*forward, *called_by(function, backward_of(function), levels=LEVELS))):
        tree = syntax_of(method)
        for node in ast.walk(tree) if tree is not None else ():
            _note(found, node)
            found.from_the_end = found.from_the_end or (method in forward and _counts_from_the_end(node))
    return found


def _note(found: RankQuestions, node: ast.AST) -> None:
    if isinstance(node, ast.expr) and (name := _rank_of(node)):
        found.asked.add(name)
    if isinstance(node, ast.Compare):
        _note_comparison(found, node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
        ranks = [_rank_of(argument) for argument in node.args]
        found.between.extend(pair for pair in pairwise(ranks) if all(pair))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        _note_method(found, node.func, node.args)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        _note_sizes(found, node.value, node.slice)
    if name := _laid_along(node):
        found.folded.add(name)


def _note_comparison(found: RankQuestions, node: ast.Compare) -> None:
    sides = [node.left, *node.comparators]
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        sign = _SIGNS.get(type(op))
        found.single.update(_extent_of(one) for one, other in ((left, right), (right, left)) if sign and _number(other) == 1 and _extent_of(one))
        a, b = _rank_of(left), _rank_of(right)
        if sign is None or not (a or b):
            continue
        if a and b:
            found.between.append((a, b))
        elif a and (number := _number(right)) is not None:
            found.compared.append((a, sign, number))
        elif b and (number := _number(left)) is not None:
            found.compared.append((b, _MIRRORED[sign], number))


def _note_method(found: RankQuestions, method: ast.Attribute, arguments: list[ast.expr]) -> None:
    name = _name(method.value)
    if not name or not arguments:
        return
    if method.attr in ("view", "reshape") and len(arguments) > 1:
        if _number(arguments[0]) == -1 and not isinstance(arguments[1], ast.UnaryOp):
            found.asked.add(name)
        if _number(arguments[-1]) == -1:
            found.folded.add(name)
    elif method.attr == "flatten" and _number(arguments[0]) in (1, 2):
        found.folded.add(name)


def _note_sizes(found: RankQuestions, sizes: ast.expr, piece: ast.Slice) -> None:
    if not (isinstance(sizes, ast.Attribute) and sizes.attr == "shape" and piece.step is None):
        return
    name, low, high = _name(sizes.value), piece.lower, piece.upper
    if low is None and high is not None and _number(high) == -1:
        found.asked.add(name)
    elif high is None and low is not None and _number(low) == 2:
        found.folded.add(name)


def _laid_along(node: ast.AST) -> str:
    """The name in ``[1] * (x.dim() - 2)`` or ``range(2, x.dim())``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List) and isinstance(node.right, ast.BinOp):
        ones, less = node.left.elts, node.right
        return _rank_of(less.left) if len(ones) == 1 and _number(ones[0]) == 1 and isinstance(less.op, ast.Sub) and _number(less.right) == 2 else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) == 2:
        return _rank_of(node.args[1]) if _number(node.args[0]) == 2 else ""
    return ""


def _counts_from_the_end(node: ast.AST) -> bool:
    """Whether an index begins with an ellipsis, or a diagonal is taken of the last two axes."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and node.slice.elts:
        first = node.slice.elts[0]
        return isinstance(first, ast.Constant) and first.value is Ellipsis
    return isinstance(node, ast.keyword) and node.arg == "dim1" and _number(node.value) == -2


def _rank_of(node: ast.expr) -> str:
    """The name of the tensor whose rank an expression is: of ``x`` for ``x.dim()``, ``x.ndim`` and ``len(x.shape)``."""
    if isinstance(node, ast.Attribute):
        return _name(node.value) if node.attr == "ndim" else ""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return _name(node.func.value) if node.func.attr in _RANK_CALLS and not node.args else ""
    if not (isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1):
        return ""
    sizes = node.args[0]
    if isinstance(sizes, ast.Call) and not sizes.args and isinstance(sizes.func, ast.Attribute) and sizes.func.attr == "size":
        return _name(sizes.func.value)
    return _name(sizes.value) if isinstance(sizes, ast.Attribute) and sizes.attr == "shape" else ""


def _extent_of(node: ast.expr) -> str:
    """The name of the tensor whose count of entries, in all or along an axis, an expression is: of ``x`` for ``x.numel()`` and ``x.shape[0]``."""
    if isinstance(node, ast.Subscript):
        return _name(node.value.value) if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" else ""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        counts = node.func.attr in _COUNT_CALLS and not node.args
        return _name(node.func.value) if counts or (node.func.attr == "size" and node.args) else ""
    return _name(node.args[0]) if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1 else ""


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _told_apart(sign: str, number: int) -> Iterator[int]:
    yield from (number - 1, number) if sign in ("<", ">=") else (number, number + 1) if sign in (">", "<=") else (number,)
