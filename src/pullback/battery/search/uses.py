"""How the code uses each parameter: a walk over forward, setup_context, backward and the helpers they call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...capture.source import FunctionNode
from .bindings import Bindings
from .roles import ATTRIBUTE_KINDS, FUNCTION_ROLES, KEYWORD_ROLES, METHOD_KINDS, PASS_THROUGH, REFUSED_CALLS, note_role
from .syntax import FunctionSource, applied_function, context_name, helper_of, integer, is_namespace, is_separate, parameter_names
from .traits import Trait

HELPER_DEPTH = 2
EINSUM_SIZES = (3, 4, 5, 2, 6, 7)


class Uses(Bindings, ast.NodeVisitor):
    """One walk over one function body, which notes what each expression says about the parameters in it.

    Args:
        traits: Evidence per parameter name of forward, added to.
        names: Local name, or ``ctx.attribute``, to the parameter it stands for.
        namespace: The module's globals, where helpers are found.
        depth: How many more levels of helpers to follow.
        saved: Parameters handed to save_for_backward, in order (None for other values).
        weight: How much this walk counts.
    """

    def __init__(
        self,
        traits: Mapping[str, Trait],
        names: dict[str, str],
        namespace: Mapping[str, Any],
        depth: int,
        saved: list[str | None],
        weight: float = 1.0,
    ) -> None:
        super().__init__(traits, names, saved, weight)
        self.namespace, self.depth = namespace, depth

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit_BinOp(ast.BinOp(node.target, node.op, node.value))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self.visit(target)
        self.bind(target, value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = node.func
        if (trait := self.trait(function)) is not None and not (isinstance(function, ast.Attribute) and function.attr in ("data", "T", "mT")):
            trait.score("callable", 2.0 * self.weight)
            trait.score("module", 1.2 * self.weight)
            trait.arity = max(trait.arity, len(node.args))
            return
        if (whole := self.member(function)) is not None:
            self.traits[whole].score("callables", 3.0 * self.weight)
            self.traits[whole].arity = max(self.traits[whole].arity, len(node.args))
            return
        name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        if name in REFUSED_CALLS and isinstance(function, (ast.Name, ast.Attribute)):
            self._refuse(node, name)
        if name in ("save_for_backward", "save_for_forward"):
            self._save(node)
            return
        if isinstance(function, ast.Attribute) and (trait := self.trait(function.value)) is not None:
            self._note_method(trait, name, node)
        if name == "isinstance" and len(node.args) == 2:
            self._note_isinstance(node)
            return
        helper = helper_of(function, self.namespace)
        if helper is not None:
            if isinstance(function, ast.Attribute):
                self._note_arguments(node, name)
            self._follow(node, helper)
            return
        self._note_arguments(node, name)
        if name == "einsum":
            self._note_einsum(node)

    def _refuse(self, node: ast.Call, name: str) -> None:
        for argument in node.args:
            if (trait := self.trait(argument)) is not None:
                trait.refused = f"it is passed to {name}()"

    def _save(self, node: ast.Call) -> None:
        kept = [self.who(a) for a in node.args if not isinstance(a, ast.Starred)]
        if not self.saved:
            self.saved.extend(kept)
        for name in kept:
            if name is not None:
                self.traits[name].score("tensor", 1.6)
                self.traits[name].score("index", 0.4)
                self.traits[name].score("mask", 0.4)
                self.traits[name].score("none", 0.1)

    def _note_method(self, trait: Trait, name: str, node: ast.Call) -> None:
        for kind, weight in METHOD_KINDS.get(name, ()):
            trait.score(kind, weight * self.weight)
        if name in ("view", "reshape") and _spreads_vector(node.args):
            trait.see_rank(1)
        if name in ("size", "stride") and node.args:
            self._note_axis(trait, node.args[0])
        if name == "split" and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            trait.score("str", 2.0)

    def _note_axis(self, trait: Trait, axis: ast.expr) -> None:
        number = integer(axis)
        if number is not None:
            trait.least = max(trait.least, number + 1 if number >= 0 else -number)
            trait.score("tensor", 0.3 * self.weight)

    def _note_arguments(self, node: ast.Call, name: str) -> None:
        roles = FUNCTION_ROLES.get(name)
        if roles is None:
            return
        arguments: list[ast.expr] = list(node.args)
        if isinstance(node.func, ast.Attribute) and not is_namespace(node.func.value):
            arguments = [node.func.value, *arguments]
        for i, argument in enumerate(arguments):
            role = roles[min(i, len(roles) - 1)] if roles[-1] == "shape" else roles[i] if i < len(roles) else ""
            if role == "shape" and len(arguments) > len(roles) and not isinstance(argument, ast.Starred):
                role = "int"
            argument = argument.value if isinstance(argument, ast.Starred) else argument
            if role in ("index", "index1", "labels", "mask") and self.who(argument) is None and (seen := self.about(argument)) is not None:
                self.traits[seen].score("mask" if role == "mask" else "index", 2.0 * self.weight)
            note_role(self.trait(argument), role, self.weight)
        for keyword in node.keywords:
            note_role(self.trait(keyword.value), KEYWORD_ROLES.get(keyword.arg or "", ""), self.weight)

    def _note_einsum(self, node: ast.Call) -> None:
        equation = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if not isinstance(equation, str) or "." in equation:
            return
        operands = equation.replace(" ", "").partition("->")[0].split(",")
        letters = list(dict.fromkeys(letter for operand in operands for letter in operand))
        sizes = dict(zip(letters, EINSUM_SIZES, strict=False))
        for operand, argument in zip(operands, node.args[1:], strict=False):
            if (trait := self.trait(argument)) is not None and len(letters) <= len(EINSUM_SIZES):
                trait.score("tensor", 1.5 * self.weight)
                trait.see_rank(len(operand))
                trait.shape = trait.shape or tuple(sizes[letter] for letter in operand)

    def _follow(self, node: ast.Call, helper: FunctionNode) -> None:
        if self.depth == 0:
            return
        inner: dict[str, str] = {}
        names = parameter_names(helper)
        applied = applied_function(node.func, self.namespace)
        names = names[1:] if applied is not None and not is_separate(applied) else names
        for parameter, argument in zip(names, node.args, strict=False):
            if who := self.who(argument):
                inner[parameter] = who
        for keyword in node.keywords:
            if keyword.arg and (who := self.who(keyword.value)):
                inner[keyword.arg] = who
        if inner:
            Uses(self.traits, inner, self.namespace, self.depth - 1, [], 0.8 * self.weight).run(helper)

    def _note_isinstance(self, node: ast.Call) -> None:
        words = ast.unparse(node.args[1])
        if (trait := self.trait(node.args[0])) is not None:
            trait.classes += [c for name in re.findall(r"\w+", words) if isinstance(c := self.namespace.get(name), type)]
        for word, kind in (
            ("Tensor", "tensor"),
            ("float", "float"),
            ("int", "int"),
            ("str", "str"),
            ("list", "tensors"),
            ("tuple", "tensors"),
            ("Module", "module"),
        ):
            if word in words:
                self.add(node.args[0], kind, 0.4)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        trait = self.trait(node.value)
        if trait is None or (isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in self.names):
            return
        trait.see_attribute(node.attr)
        kinds = ATTRIBUTE_KINDS.get(node.attr)
        for kind, weight in kinds or ():
            trait.score(kind, weight * self.weight)
        if kinds is None and node.attr not in METHOD_KINDS and node.attr not in PASS_THROUGH:
            from torch import Tensor

            known = hasattr(Tensor, node.attr)
            trait.score("tensor" if known else "object", (0.6 if known else 1.5) * self.weight)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        base, inner = node.value, node.slice
        if isinstance(base, ast.Attribute) and base.attr == "shape" and (trait := self.trait(base.value)) is not None:
            self._note_axis(trait, inner)
        elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        for element in elements:
            for term in _terms(element) if isinstance(element, ast.BinOp) else ():
                self.add(term.value if isinstance(term, ast.Subscript) else term, "index", 1.2)
            self.add(element, "index", 1.2)
            self.add(element, "int", 0.7)
            self.add(element, "mask", 0.6)
            for part in (element.lower, element.upper) if isinstance(element, ast.Slice) else ():
                for term in _terms(part):
                    self.add(term, "int", 1.5)
        trait = self.trait(base)
        if trait is None:
            return
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            trait.score("dict", 3.0)
            trait.see_attribute(inner.value)
        elif isinstance(inner, ast.Tuple):
            trait.score("tensor", 1.0 * self.weight)
            kept = [e for e in elements if not isinstance(e, ast.Constant) or isinstance(e.value, int)]
            trait.least = max(trait.least, len(kept))
            trait.cuts |= set(_cuts(elements[-1]))
            if len(kept) == 1 and len(elements) > 2 and isinstance(kept[0], ast.Slice):
                trait.see_rank(1)
        elif integer(inner) is not None:
            for kind, weight in (("tensors", 0.7), ("ints", 0.7), ("tensor", 0.3)):
                trait.score(kind, weight * self.weight)
            trait.least = max(trait.least, 1)
        else:
            trait.score("tensor", 0.5 * self.weight)
            trait.least = max(trait.least, 1)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            note_role(self.trait(node.left), "matrix", self.weight)
            note_role(self.trait(node.right), "matrix", self.weight)
            return
        if isinstance(node.op, (ast.LShift, ast.RShift)) or (isinstance(node.op, ast.Pow) and isinstance(node.left, ast.Constant)):
            self.add(node.right, "int", 1.5)
            self.add(node.right, "float", 0.3)
            return
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            for side in (node.left, node.right):
                self.add(side, "int", 0.8)
            return
        if isinstance(node.op, (ast.BitAnd, ast.BitOr)):
            for side in (node.left, node.right):
                self.add(side, "mask", 1.5)
        self.combine(node.left, node.right)
        for side in (node.left, node.right):
            self.add(side, "tensor", 0.35)
            self.add(side, "float", 0.35)
            self.add(side, "index", -0.3)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            self._note_truth(node.operand)
        elif isinstance(node.op, ast.Invert):
            self.add(node.operand, "mask", 2.5)
        else:
            self.add(node.operand, "tensor", 0.2)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            for side, other in ((left, right), (right, left)):
                if (trait := self.trait(side)) is not None:
                    self._note_comparison(trait, op, other)
            if isinstance(op, (ast.In, ast.NotIn)) and (trait := self.trait(right)) is not None:
                trait.filled = True
                trait.score("dict", 1.5 * self.weight)

    def _note_comparison(self, trait: Trait, op: ast.cmpop, other: ast.expr) -> None:
        constants = [e.value for e in other.elts if isinstance(e, ast.Constant)] if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else []
        if isinstance(other, ast.Constant):
            constants = [other.value]
        number = integer(other)
        if isinstance(op, (ast.Is, ast.IsNot)) and None in constants:
            trait.optional = True
            trait.score("none", 0.3)
            return
        for value in [*constants, *([number] if number is not None and number not in constants else [])]:
            equality = isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn))
            trait.steering = True
            trait.see_constant(value)
            kind = (
                "str" if isinstance(value, str) else "bool" if isinstance(value, bool) else "int" if isinstance(value, int) and equality else "float"
            )
            trait.score(kind, (3.0 if kind == "str" else 0.8 if equality else 0.4) * self.weight)
        if not constants and number is None:
            trait.score("tensor", 0.3 * self.weight)
            trait.score("float", 0.3 * self.weight)

    def _note_truth(self, node: ast.expr) -> None:
        if (trait := self.trait(node)) is not None:
            trait.steering = True
            trait.score("bool", 1.8 * self.weight)
            trait.score("none", 0.2)

    def _visit_tested(self, node: ast.If | ast.While | ast.IfExp | ast.Assert) -> None:
        self._note_truth(node.test)
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = visit_Assert = _visit_tested  # noqa: N815 - ast calls them by these names

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for value in node.values:
            self._note_truth(value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.comprehension) -> None:
        self.add(node.iter, "tensors", 1.5)
        self.add(node.iter, "ints", 0.8)
        self.bind_members(node.target, node.iter)
        self.generic_visit(node)

    visit_comprehension = visit_For

    def visit_GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp) -> None:
        for generator in node.generators:
            self.bind_members(generator.target, generator.iter)
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp  # noqa: N815 - likewise

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def run(self, node: FunctionNode) -> None:
        """Walk over the statements of `node`."""
        for statement in node.body:
            self.visit(statement)


def collect_uses(source: FunctionSource, traits: Mapping[str, Trait]) -> dict[str, str]:
    """Add what the code does with each parameter to `traits`; return which ctx attributes and saved positions stand for which parameter."""
    own = {slot.name: slot.name for slot in source.slots}
    saved: list[str | None] = []
    kept: dict[str, str] = {}
    for method in (source.forward, source.setup_context):
        if method is None:
            continue
        ctx = context_name(method)
        walk = Uses(traits, dict(own), source.namespace, HELPER_DEPTH, saved)
        walk.inputs = [slot.name for slot in source.slots] if method is source.setup_context else []
        walk.run(method)
        kept |= {name.removeprefix(f"{ctx}."): who for name, who in walk.names.items() if name.startswith(f"{ctx}.")}
    if source.backward is not None:
        ctx = context_name(source.backward)
        names = {f"{ctx}.{name}": who for name, who in kept.items()}
        Uses(traits, names, source.namespace, HELPER_DEPTH - 1, saved, 0.6).run(source.backward)
    return kept | {f"saved[{i}]": name for i, name in enumerate(saved) if name}


def _spreads_vector(sizes: list[ast.expr]) -> bool:
    """Whether sizes are those of a vector laid along one axis of a tensor, as in ``weight.view(1, -1, 1, 1)``."""
    numbers = [integer(size) for size in sizes]
    return len(numbers) > 2 and sum(n != 1 for n in numbers) == 1 and numbers.count(1) == len(numbers) - 1


def _cuts(element: ast.expr) -> Iterator[int]:
    """Yield how long an axis must be for a piece of it: 7 for ``3:7``, 4 for ``4:``, one more than an index."""
    ends = (element.lower, element.upper) if isinstance(element, ast.Slice) else (element,)
    for end in ends:
        number = integer(end) if end is not None else None
        if number is not None and number > 0:
            yield number + (not isinstance(element, ast.Slice))


def _terms(node: ast.expr | None) -> Iterator[ast.expr]:
    """Yield what an arithmetic expression is made of: `i` and `size` of ``(i + 1) * size``."""
    if isinstance(node, ast.BinOp):
        yield from _terms(node.left)
        yield from _terms(node.right)
    elif node is not None:
        yield node
