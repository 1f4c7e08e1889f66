"""Functions of the project that are called: read with the values they get."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from .nodes import walk
from .operations import Operations
from .project import dotted
from .values import NONE, OTHER, UNKNOWN, Closure, Value, derived, join

if TYPE_CHECKING:
    from .interpret import Interpreter

MAX_DEPTH = 5


class Entering(Operations):
    """The part of the interpreter that enters functions."""

    def _target(self: Interpreter, func: ast.expr, closure: Closure | None) -> Closure | None:  # type: ignore[misc]
        if closure is not None:
            return closure
        name = dotted(func)
        if name is None or name.split(".", 1)[0] in self.scope:
            return None
        return self.project.function(self.source, name)

    def _may_enter(self: Interpreter, target: Closure) -> bool:  # type: ignore[misc]
        node = target.node
        if len(self.stack) > MAX_DEPTH or id(node) in self.stack or isinstance(node, ast.AsyncFunctionDef):
            return False
        if isinstance(node, ast.Lambda):
            return True
        if id(node) not in target.source.enterable:
            target.source.enterable[id(node)] = _is_enterable(node)
        return target.source.enterable[id(node)]

    def _enter(self: Interpreter, node: ast.Call, target: Closure, arguments: list[Value], base: Value | None) -> Value:  # type: ignore[misc]
        function = target.node
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        for value in (*arguments, *keywords.values()):
            self.touch(value, "passed", node)
        if isinstance(function, ast.FunctionDef):
            decorators = {dotted(d) for d in function.decorator_list}
            if "classmethod" in decorators:
                arguments = [Value(kind="class"), *arguments]
            elif target.owner is not None and "staticmethod" not in decorators and base is not None and base.kind != "class":
                arguments = [base, *arguments]
        scope = _bind(function.args, arguments, keywords)
        if scope is None:
            self._touch_all(node, arguments)
            return derived(*arguments, *keywords.values())
        outer = (self.scope, self.outer, self.source, self.site, self.via, self.returns, self.globals, list(self.guards), self.settled)
        self.settled = _settled(function, node, len(arguments) - len(node.args))
        self.scope, self.outer, self.source = scope, target.scope, target.source
        self.site, self.via, self.returns, self.globals = self.site or node, (*self.via, getattr(function, "name", "<lambda>")), [], set()
        self.stack.append(id(function))
        if isinstance(function, ast.Lambda):
            self.returns.append(self.use(function.body, "returned"))
        elif self.block(function.body):
            self.returns.append(NONE)
        self.stack.pop()
        returned = self.returns
        self.scope, self.outer, self.source, self.site, self.via, self.returns, self.globals, self.guards, self.settled = outer
        result = returned[0] if returned else NONE
        for value in returned[1:]:
            result = join(result, value)
        return replace(result, unbound=None) if result.unbound is not None else result


def _settled(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, call: ast.Call, bound: int) -> dict[str, bool]:
    """The flags of a function that a call, or their defaults, set to True or False for good; `bound` parameters before the call's own are taken."""
    positional = [p.arg for p in (*function.args.posonlyargs, *function.args.args)]
    given: dict[str, ast.expr] = {}
    if function.args.defaults:
        given.update(zip(positional[-len(function.args.defaults) :], function.args.defaults, strict=True))
    given.update({p.arg: d for p, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d is not None})
    given.update(zip(positional[bound:], call.args, strict=False))
    given.update({k.arg: k.value for k in call.keywords if k.arg})
    flags = {name: node.value for name, node in given.items() if isinstance(node, ast.Constant) and isinstance(node.value, bool)}
    written = {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} if flags else set()
    return {name: value for name, value in flags.items() if name not in written}


def _is_enterable(node: ast.FunctionDef) -> bool:
    """Whether a call runs the body as written: no generator, no context manager, no Triton kernel."""
    for decorator in node.decorator_list:
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        if name.startswith("triton") or name.rsplit(".", 1)[-1] in ("contextmanager", "property", "cached_property"):
            return False
    return not any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(node))


def _bind(parameters: ast.arguments, arguments: list[Value], keywords: dict[str, Value]) -> dict[str, Value] | None:
    positional = [*parameters.posonlyargs, *parameters.args]
    if len(arguments) > len(positional) and parameters.vararg is None:
        return None
    scope = {p.arg: v for p, v in zip(positional, arguments, strict=False)}
    if parameters.vararg is not None:
        scope[parameters.vararg.arg] = Value(items=tuple(arguments[len(positional) :]), container="tuple", kind="other")
    known = {p.arg for p in (*positional, *parameters.kwonlyargs)}
    scope.update({k: v for k, v in keywords.items() if k in known})
    if parameters.kwarg is not None:
        scope[parameters.kwarg.arg] = Value(frozenset().union(*(v.all_refs() for k, v in keywords.items() if k not in known)), container="dict")
    defaults = dict(zip([p.arg for p in positional[len(positional) - len(parameters.defaults) :]], parameters.defaults, strict=True))
    defaults.update({p.arg: d for p, d in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if d is not None})
    for parameter in (*positional, *parameters.kwonlyargs):
        if parameter.arg not in scope:
            default = defaults.get(parameter.arg)
            scope[parameter.arg] = NONE if isinstance(default, ast.Constant) and default.value is None else OTHER if default is not None else UNKNOWN
    return scope
