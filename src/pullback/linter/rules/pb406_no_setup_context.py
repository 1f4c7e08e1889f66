"""PB406."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...report.finding import Edit
from ..facts import ClassFacts, Method
from ..nodes import walk
from ..rule import Hit, Rule


class NoSetupContext(Rule):
    """forward takes ctx: the older style, which torch.func and vmap refuse.

    Why it matters:
        `torch.func.grad`, `vmap` and `jacrev` need a forward without ctx and a setup_context beside it.

    How it is measured:
        A Function without setup_context.

    Instead:
        `forward(x)` and `setup_context(ctx, inputs, output)`. The fix moves the statements on ctx where forward keeps only inputs and outputs.

    Limits:
        Off by default: information, and the newer style costs 7–8 µs a call and does not go with torch.amp.custom_fwd.
    """

    code = "PB406"
    name = "no-setup-context"
    severity = "warning"
    default = False
    safe = False
    bad = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = x.exp() * scale
        ctx.save_for_backward(y)
        ctx.scale = scale  # a number
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y, None
"""
    good = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return x.exp() * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y, None
"""
    fixed = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        y = x.exp() * scale
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale = inputs
        y = output
        ctx.save_for_backward(y)
        ctx.scale = scale  # a number

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y, None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if facts.setup is None and facts.gradients:
            for forward in facts.own(facts.forward):
                yield Hit(
                    forward.node,
                    f"{facts.name}.forward takes ctx: torch.func and vmap need setup_context",
                    fix="forward without ctx, and setup_context(ctx, inputs, output)",
                    edits=_convert(facts, forward),
                )


def _convert(facts: ClassFacts, forward: Method) -> tuple[Edit, ...]:
    node, ctx = forward.node, forward.ctx
    moved = [s for s in node.body if _mentions(s, ctx)]
    last = node.body[-1]
    if not facts.source.utf8 or ctx is None or forward.decorators != ["staticmethod"] or not isinstance(last, ast.Return) or _mentions(last, ctx):
        return ()
    outputs = [last.value] if isinstance(last.value, ast.Name) else list(last.value.elts) if isinstance(last.value, ast.Tuple) else []
    names = [o.id for o in outputs if isinstance(o, ast.Name)]
    inputs = [p.name for p in facts.inputs]
    rebound = {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    simple = all(isinstance(s, (ast.Expr, ast.Assign)) and _whole_lines(facts, s) for s in moved)
    used = {n.id for s in moved for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - {ctx}
    foreign = {u for u in used if u in rebound and u not in names} | {u for u in used if u in inputs and u in rebound}
    arguments = node.args
    if (
        not simple
        or len(names) != len(outputs)
        or foreign
        or arguments.vararg
        or arguments.kwarg
        or arguments.kwonlyargs
        or arguments.posonlyargs
        or len(arguments.args) < 2
    ):
        return ()
    path, source = str(facts.source.path), facts.source
    first, second = arguments.args[0], arguments.args[1]
    edits = [Edit(path, source.span(first)[0], source.span(second)[0], "", False)]
    edits += [Edit(path, source.offset(s.lineno, 0), source.offset((s.end_lineno or s.lineno) + 1, 0), "", False) for s in moved]
    end = source.span(last)[1]
    edits.append(Edit(path, end, end, _setup(facts, node, ctx, inputs, names, moved, used), False))
    return tuple(edits)


def _setup(facts: ClassFacts, node: ast.AST, ctx: str, inputs: list[str], names: list[str], moved: list[ast.stmt], used: set[str]) -> str:
    outer = " " * node.col_offset  # type: ignore[attr-defined]
    inner = " " * node.body[0].col_offset  # type: ignore[attr-defined]
    lines = [f"{outer}@staticmethod", f"{outer}def setup_context({ctx}, inputs, output):"]
    if used & set(inputs):
        lines.append(f"{inner}{_targets(inputs, alone='({},)')} = inputs")
    if used & (set(names) - set(inputs)):
        lines.append(f"{inner}{_targets(names, alone='{}')} = output")
    for statement in moved:
        start, end = facts.source.offset(statement.lineno, 0), facts.source.offset((statement.end_lineno or statement.lineno) + 1, 0)
        lines.append(facts.source.data[start:end].decode("utf-8").rstrip("\r\n"))
    if not moved:
        lines.append(f"{inner}pass")
    return "\n\n" + "\n".join(lines)


def _targets(names: list[str], *, alone: str) -> str:
    return alone.format(names[0]) if len(names) == 1 else ", ".join(names)


def _mentions(node: ast.AST, name: str | None) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(node))


def _whole_lines(facts: ClassFacts, node: ast.stmt) -> bool:
    start, end = facts.source.span(node)
    before = facts.source.data[facts.source.offset(node.lineno, 0) : start]
    after = facts.source.data[end : facts.source.offset((node.end_lineno or node.lineno) + 1, 0)].strip()
    return not before.strip() and (not after or after.startswith(b"#"))
