"""The source of an op's functions and Function classes, as text.

What is written here is straight-line code for one op: what it saves, and in which order its rules run. Whatever does not depend on the op lives in
`runtime.py` and is called by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType

from .rules import Definition, Param, Rule, order_of

# What generated code calls its own things; an argument of such a name is written `arg_name`.
_OWN = (
    "Function PLAIN Tensor add alive allow_graph any_autocast any_wanted apply apply_autocast apply_dual apply_loose "
    "autocast_state begin body build cast check_shapes compiling copy_back cotangents ctx dual dy dys filled "
    "flat_outputs forward_mode from_graph getattr grad_enabled grads graph hidden holds_tensor inputs isinstance "
    "last_outputs len many metas_of more must_return needs out_of output outputs_of outs parts_of probe push "
    "random_state reads rebuild refuse refuse_order saved several staticmethod stand_in stands structured tangents "
    "to_graph transform transforms tuple type under unkeep unpack wanted_ y "
)
OWN_NAMES = frozenset(_OWN.split())
OWN_PREFIXES = ("grad_", "part_", "vjp_")


@dataclass(frozen=True, slots=True)
class Residual:
    """Something kept for backward.

    Args:
        name: Its name.
        readers: The arguments whose gradient reads it; none if only forward mode does.
        maybe_plain: Whether it may turn out not to be a tensor, and then goes on ctx.
        kept: Whether it is a value of ``pb.keep``.
    """

    name: str
    readers: tuple[str, ...]
    maybe_plain: bool
    kept: bool


def rename(definition: Definition) -> Definition:
    """Return `definition` with names that generated code uses itself written differently."""
    names = {name: f"arg_{name}" if name in OWN_NAMES or name.startswith(OWN_PREFIXES) else name for name in (*definition.names, *definition.kept)}
    if all(name == new for name, new in names.items()):
        return definition

    def new(found: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in found)

    return replace(
        definition,
        params=tuple(replace(param, name=names[param.name]) for param in definition.params),
        kept=new(definition.kept),
        mutates=new(definition.mutates),
        linear=new(definition.linear),
        rules=[
            replace(
                rule,
                targets=new(rule.targets),
                of=rule.of and names[rule.of],
                residuals=new(rule.residuals),
                keeps={names[target]: new(needed) for target, needed in rule.keeps.items()},
            )
            for rule in definition.rules
        ],
    )


class Writer:
    """Writes the source of one op.

    Args:
        definition: The op.
        alias: The identifier that stands for it in the generated module.
        extras: Residuals that only a jvp reads.
    """

    def __init__(self, definition: Definition, alias: str, extras: Sequence[str] = ()) -> None:
        self.original = definition
        self.definition = definition = rename(definition)
        self.alias = alias
        renamed = dict(zip((*self.original.names, *self.original.kept), (*definition.names, *definition.kept), strict=True))
        self.extras = tuple(renamed.get(name, name) for name in extras)
        self.rules = order_of(definition)
        self.targets = {target for rule in self.rules for target in rule.targets}
        self.materialize = not definition.kept and all(rule.undefined == "zeros" for rule in self.rules)
        self.args = ", ".join(definition.names)
        self.tuple = f"({self.args}{',' if len(definition.names) == 1 else ''})"
        self.residuals = self._residuals()

    def source(self, signature: str) -> str:
        """Return the whole module's text; `signature` is the op's parameter list."""
        if any(param.variadic for param in self.definition.params):
            return f"def {self.alias}({signature}):\n    return structured({self.tuple})\n"
        classes = [self.eager(loose=False), self.eager(loose=True), self.autocast()]
        if self.definition.automatic != "recompute":
            classes += [self.transform(), self.graph()]
        functions = [self.elsewhere(), self.any_wrapper(), self.wrapper(signature)]
        return "\n\n\n".join(classes + functions) + "\n"

    # which gradients and which residuals

    def want(self, target: str) -> set[str]:
        """The arguments whose wish for a gradient makes `target`'s gradient wanted."""
        if target in self.definition.names:
            return {target}
        return {name for rule in self.rules if rule.of == target for t in rule.targets for name in self.want(t)}

    def _residuals(self) -> list[Residual]:
        readers: dict[str, set[str]] = {name: set() for name in self.extras}
        for rule in self.rules:
            for target in rule.targets:
                for name in rule.needed_by(target):
                    readers.setdefault(name, set()).update(self.want(target))
        out, kept = self.definition.out, self.definition.kept
        return [Residual(name, tuple(sorted(found)), self.maybe_plain(name), name in kept) for name, found in readers.items() if name != out]

    def maybe_plain(self, name: str) -> bool:
        if name in self.definition.kept:
            return True
        if name == self.definition.out:
            return False
        param = self.definition.param(name)
        return param.static or param.certain == "any"

    @property
    def reads_out(self) -> bool:
        return self.definition.out in self.extras or any(self.definition.out in rule.residuals for rule in self.rules)

    @property
    def only(self) -> str | None:
        """The argument that surely wants its gradient whenever a node is made, if there is such a one."""
        wanted = [param.name for param in self.definition.differentiable]
        return wanted[0] if len(wanted) == 1 else None

    def index(self, name: str) -> int:
        return self.definition.names.index(name)

    def condition(self, names: Sequence[str], only: str | None) -> str:
        """Whether any of `names` wants its gradient; a node is made only where some argument does."""
        if only in names or (len(names) > 1 and len(names) == len(self.definition.differentiable)):
            return "True"
        return " or ".join(f"needs[{self.index(name)}]" for name in names) or "forward_mode"

    # the op itself

    def wrapper(self, signature: str) -> str:
        alias = self.alias
        if self.original is not self.definition:
            inner = self.wrapper_text(f"{alias}_renamed", self.args)
            return f"{inner}\n\n\ndef {alias}({signature}):\n    return {alias}_renamed({', '.join(self.original.names)})"
        return self.wrapper_text(alias, signature)

    def wrapper_text(self, name: str, signature: str) -> str:
        # A container has no requires_grad, so asking every argument finds containers; leaves of containers hold none.
        joint = " or " if self.definition.flat else " | "
        tests = joint.join(self.test(param) for param in self.definition.differentiable) or "False"
        special = " or ".join(["transforms()", "dual._current_level >= 0", "compiling()", *self.twins()])
        return "\n".join(
            [
                f"def {name}({signature}):",
                *self.cast_lines(),
                f"    if {special}:",
                f"        return {self.alias}_any({self.args})",
                "    try:",
                f"        wanted_ = {tests}",
                "    except (AttributeError, TypeError):",
                f"        return {self.alias}_any({self.args})",
                "    if wanted_ and grad_enabled():",
                "        if any_autocast():",
                f"            return unpack(apply_autocast({self.args}))",
                *self.apply_lines(),
                f"    return {self.bare()}",
            ]
        )

    def test(self, param: Param) -> str:
        if param.certain == "optional":
            return f"({param.name} is not None and {param.name}.requires_grad)"
        if param.certain == "any":
            return f"(type({param.name}) not in PLAIN and {param.name}.requires_grad)"
        return f"{param.name}.requires_grad"

    def twins(self) -> list[str]:
        """Tests for one tensor passed twice, which a compiler has to be told about."""
        names = [param.name for param in self.definition.differentiable if param.certain == "tensor"]
        return [f"{a} is {b}" for i, a in enumerate(names) for b in names[i + 1 :]] if len(names) <= 3 else []

    def cast_lines(self) -> list[str]:
        if self.definition.autocast is None:
            return []
        names = ", ".join(param.name for param in self.definition.differentiable)
        return ["    if any_autocast():", f"        {names}, = cast(({names},))"]

    def apply_lines(self) -> list[str]:
        if self.definition.kept or self.definition.mutates:
            return [f"        return unpack(apply({self.args}))"]
        return [f"        y = apply({self.args})", "        return y if type(y) is not tuple else unpack(y)"]

    def bare(self) -> str:
        call = f"body({self.args})"
        return f"out_of({call})" if self.definition.kept else call

    def any_wrapper(self) -> str:
        names = [param.name for param in self.definition.differentiable]
        lines = [f"def {self.alias}_any({self.args}):"]
        if names:
            test = " or ".join(f"holds_tensor({name})" for name in names)
            lines += [f"    if {test}:", f"        return structured({self.tuple})"]
        return "\n".join([*lines, f"    return {self.alias}_elsewhere({self.args})"])

    def plain_lines(self) -> list[str]:
        names = ", ".join(param.name for param in self.definition.differentiable)
        if not names:
            return [f"    return {self.bare()}"]
        return [
            f"    if grad_enabled() and any_wanted(({names},)):",
            "        if any_autocast():",
            f"            return unpack(apply_autocast({self.args}))",
            f"        return unpack(apply_loose({self.args}))",
            f"    return {self.bare()}",
        ]

    def elsewhere(self) -> str:
        """What runs under torch.func transforms, forward-mode levels, compilers, and with one tensor passed twice."""
        definition, args = self.definition, self.args
        header = f"def {self.alias}_elsewhere({args}):"
        if definition.automatic == "recompute":
            test = "    if transforms() or dual._current_level >= 0 or compiling():"
            return "\n".join([header, test, f"        return {self.bare()}", *self.plain_lines()])
        wrap, after = ("copy_back", f", ({', '.join(definition.mutates)},)") if definition.mutates else ("unpack", "")
        in_graph = "True" if definition.automatic == "surrogate" else "transforms() or dual._current_level >= 0"
        from_graph = "from_graph" if not definition.mutates else "copy_back"
        twins: list[str] = []
        names = [param.name for param in definition.differentiable]
        for i, name in enumerate(names):
            if i and name not in definition.mutates:
                same = " or ".join(f"{name} is {other}" for other in names[:i])
                twins += [f"        if isinstance({name}, Tensor) and ({same}):", f"            {name} = {name}.view_as({name})"]
        return "\n".join(
            [
                header,
                "    if compiling():",
                f"        if {in_graph}:",
                "            allow_graph()",
                f"            return {from_graph}(graph({args}){after}, last_outputs())",
                *twins,
                *[f"    {line}" for line in self.plain_lines()],
                "    if transforms():",
                f"        return {wrap}(transform({args}){after})",
                "    if dual._current_level >= 0:",
                f"        return {wrap}(apply_dual({args}){after})",
                *self.plain_lines(),
            ]
        )

    # Function classes

    def eager(self, *, loose: bool) -> str:
        """The ctx-style class: no torch.func, least overhead. The loose one takes numbers and None for any argument."""
        prologue = [] if self.only else ["needs = ctx.needs_input_grad"]
        if self.slots(forward_mode=False) or self.reads_out:
            prologue.append("saved = ctx.saved_tensors")
        return "\n".join(
            [
                f"class {self.alias}(Function):",
                "    @staticmethod",
                f"    def forward(ctx, {self.args}):",
                *[f"        {line}" for line in self.forward_lines(loose)],
                "",
                "    @staticmethod",
                "    def backward(ctx, dy, *more):",
                *[f"        {line}" for line in (*prologue, *self.pull_lines(self.only, loose, forward_mode=False))],
                "",
                "",
                f"{self.alias}_{'loose' if loose else 'eager'} = {self.alias}",
            ]
        )

    def forward_lines(self, loose: bool) -> list[str]:
        definition = self.definition
        kept = definition.kept
        lines: list[str] = []
        if self.only is None and self.slots(forward_mode=False):
            lines.append("needs = ctx.needs_input_grad")
        if definition.automatic == "recompute":
            lines.append(f"ctx.random = random_state({self.tuple})")
        lines.append(f"y = body({self.args})")
        if kept:
            lines.append(f"y, {', '.join(kept)} = unkeep(y)")
        marked = bool(kept or definition.mutates)
        hidden = "".join(f", {self.hidden(name)}" for name in kept)
        fast = not (loose or kept or definition.mutates) and self.materialize
        if fast:
            lines += [
                "if type(y) is Tensor:",
                *[f"    {line}" for line in self.save_lines(self.only, loose, forward_mode=False, fast=True)],
                "    return y",
            ]
        lines.append(f"many = outputs_of(y, {marked})" if fast else f"many = None if type(y) is Tensor else outputs_of(y, {marked})")
        if definition.mutates:
            lines += [f"y, many = must_return({name!r}, {name}, y, many)" for name in definition.mutates]
            lines.append(f"ctx.mark_dirty({', '.join(definition.mutates)})")
        lines += self.save_lines(self.only, loose, forward_mode=False)
        if not self.materialize:
            lines += ["ctx.materialize_grads = False", "if many is not None:", "    ctx.metas = metas_of(many[0])"]
        if kept:
            lines += ["if many is None:", "    ctx.many = None", f"    return (y{hidden})"]
            lines += ["ctx.many = many[1]", f"return (*many[0]{hidden}, many[1])"]
            return lines
        return [*lines, "if many is None:", "    return y", "ctx.many = many[1]", "return (*many[0], many[1]) if many[2] else many[0]"]

    def refusals(self, only: str | None) -> list[str]:
        """An argument that wants a gradient and has no rule is told in backward, where somebody asks for that gradient."""
        lost = [param.name for param in self.definition.differentiable if param.name not in self.targets]
        if only in lost:
            return [f"refuse({only!r})"]
        return [line for name in lost for line in (f"if needs[{self.index(name)}]:", f"    refuse({name!r})")]

    def hidden(self, name: str) -> str:
        """A kept value's own output; None where nothing reads it, so that outputs can be counted."""
        residual = next((r for r in self.residuals if r.name == name and r.readers), None)
        if residual is None:
            return "None"
        condition = self.condition(residual.readers, self.only)
        return name if condition == "True" else f"{name} if {condition} else None"

    def slots(self, *, forward_mode: bool) -> list[Residual]:
        return [residual for residual in self.residuals if residual.readers or forward_mode]

    def save_lines(self, only: str | None, loose: bool, *, forward_mode: bool, fast: bool = False) -> list[str]:
        """Saving for backward; `fast` for an output that is one tensor, in a class that no compiler sees."""
        slots, lines = [], []
        if self.definition.automatic == "surrogate":
            lines = [f"reads = probe({self.tuple})", f"ctx.stands = stands(reads, {self.tuple})"]
        for residual in self.slots(forward_mode=forward_mode):
            name, condition = residual.name, self.condition(residual.readers, only)
            if self.definition.automatic == "surrogate":
                condition = f"reads[{self.index(name)}]"
            if residual.maybe_plain or loose:
                lines.append(f"ctx.plain_{name} = None if isinstance({name}, Tensor) else {name}")
                condition = f"isinstance({name}, Tensor)" + ("" if condition == "True" else f" and ({condition})")
            slots.append(name if condition == "True" else f"{name} if {condition} else None")
        if self.reads_out:
            slots.append("y" if fast else "*((y,) if many is None else many[0])")
        if slots and fast:
            # what save_for_backward does, without the call
            lines.append(f"ctx.to_save = ({', '.join(slots)},)")
        elif slots:
            lines.append(f"ctx.save_for_backward({', '.join(slots)})")
            if forward_mode:
                lines.append(f"ctx.save_for_forward({', '.join(slots)})")
        return lines

    def transform(self) -> str:
        """The setup_context-style class, which torch.func and forward mode can take apart."""
        definition, own = self.definition, f"{self.alias}_transform"
        kept = definition.kept
        names = ", ".join(kept) + ("," if len(kept) == 1 else "")
        return "\n".join(
            [
                f"class {self.alias}(Function):",
                "    generate_vmap_rule = True",
                "",
                "    @staticmethod",
                f"    def forward({self.args}):",
                *[f"        {name} = {name}.clone()" for name in definition.mutates],
                f"        y = body({self.args})",
                "        y, *hidden = unkeep(y)" if kept else "        hidden = ()",
                f"        return flat_outputs(y, hidden, ({''.join(name + ', ' for name in definition.mutates)}))",
                "",
                "    @staticmethod",
                "    def setup_context(ctx, inputs, output):",
                *([f"        {self.tuple} = inputs"] if definition.names else []),
                f"        y, many, hidden = parts_of(output, {len(kept)})",
                *([f"        ({names}) = hidden"] if kept else []),
                "        needs, forward_mode = begin(ctx, inputs, output, y, many, hidden)",
                *[f"        {line}" for line in self.save_lines(None, loose=True, forward_mode=True)],
                "",
                "    @staticmethod",
                "    def backward(ctx, *dys):",
                "        with under(ctx.autocast):",
                f"            grads = {own}.pull(ctx, ctx.needs_input_grad, alive(ctx.saved_tensors), *dys)",
                "        return check_shapes(ctx.shapes, grads)",
                "",
                "    @staticmethod",
                "    def pull(ctx, needs, saved, dy, *more):",
                *[f"        {line}" for line in self.pull_lines(None, loose=True, forward_mode=True)],
                "",
                "    @staticmethod",
                "    def jvp(ctx, *tangents):",
                f"        return push({own}.pull, ctx, alive(ctx.saved_tensors), tangents)",
                "",
                "",
                f"{own} = {self.alias}",
            ]
        )

    def pull_lines(self, only: str | None, loose: bool, *, forward_mode: bool) -> list[str]:
        """From cotangents to gradients: unpack, run the wanted rules in order, return one gradient for each argument."""
        definition = self.definition
        lines = [*self.refusals(only), *self.unpack_lines(loose, forward_mode)]
        if definition.kept:
            bars = ", ".join(self.grad(name) for name in definition.kept)
            lines.append(f"dy, {bars} = cotangents(ctx, dy, more, {len(definition.kept)})")
            for name in definition.kept:
                if not any(rule.of == name for rule in self.rules):
                    lines += [f"if {self.grad(name)} is not None:", f"    refuse_order({name!r})"]
        else:
            lines += ["if more:", "    dy, = cotangents(ctx, dy, more, 0)"]
        if self.reads_out:
            single = "" if definition.kept else "outs[0] if not more else "
            lines.append(f"{definition.out} = {single}rebuild(ctx, outs)")
        lines += [f"{self.grad(target)} = None" for target in definition.names if target in self.targets and not self.simple(target)]
        for i, rule in enumerate(self.rules):
            lines += self.rule_lines(i, rule, only, loose, always=self.materialize and not forward_mode)
        lines.append(f"return {', '.join(self.grad(name) if name in self.targets else 'None' for name in definition.names) or 'None'}")
        if definition.automatic != "recompute":
            return lines
        start = next(i for i, line in enumerate(lines) if "vjp_0(" in line)
        start -= lines[start].startswith(" ")
        return [*lines[:start], "with random_state_of(ctx.random):", *[f"    {line}" for line in lines[start:]]]

    def unpack_lines(self, loose: bool, forward_mode: bool) -> list[str]:
        slots = self.slots(forward_mode=forward_mode)
        names = [residual.name for residual in slots] + (["*outs"] if self.reads_out else [])
        lines = [f"{', '.join(names)}{',' if len(names) == 1 else ''} = saved"] if names else []
        for residual in slots:
            if residual.maybe_plain or loose:
                lines += [f"if {residual.name} is None:", f"    {residual.name} = ctx.plain_{residual.name}"]
        if self.definition.automatic == "surrogate":
            lines.append(f"{self.tuple} = stand_in(ctx.stands, {self.tuple})")
        return lines

    def grad(self, target: str) -> str:
        return f"grad_{target}"

    def contributions(self, target: str) -> int:
        return sum(target in rule.targets for rule in self.rules) + (target in self.definition.kept)

    def simple(self, target: str) -> bool:
        """Whether one expression gives the gradient: a single rule of its own."""
        rules = [rule for rule in self.rules if target in rule.targets]
        return len(rules) == 1 and rules[0].targets == (target,) and self.contributions(target) == 1

    def rule_lines(self, i: int, rule: Rule, only: str | None, loose: bool, *, always: bool) -> list[str]:
        """One rule's turn; `always` where the output's cotangent is sure to be there, because torch fills it in."""
        cotangent = "dy" if rule.of is None else self.grad(rule.of)
        found = {target: self.condition(sorted(self.want(target)), only) for target in rule.targets}
        conditions = {target: f"({text})" if " or " in text else text for target, text in found.items()}
        given = cotangent
        if not always and rule.of is None and rule.undefined == "zeros":
            given = "filled(ctx, dy)"
        residuals = "".join(f", {name}" for name in rule.residuals)
        if rule.wanted:
            residuals += f", {rule.wanted}=({', '.join(conditions.values())},)"
        call = f"vjp_{i}({given}{residuals})"
        present = "True" if always and rule.of is None else f"{cotangent} is not None"
        if len(rule.targets) == 1:
            target = rule.targets[0]
            guards = " and ".join(text for text in (conditions[target], present) if text != "True")
            if self.simple(target):
                return [f"{self.grad(target)} = {call}" + (f" if {guards} else None" if guards else "")]
            return [f"if {guards or 'True'}:", f"    {self.grad(target)} = {self.sum(target, call)}"]
        if self.whole(rule, only, loose) and present == "True":
            return [f"{', '.join(self.grad(target) for target in rule.targets)} = several({call}, {i})"]
        parts = [f"part_{target}" for target in rule.targets]
        any_wanted = " or ".join(conditions.values())
        guards = " and ".join(text for text in (f"({any_wanted})", present) if text != "True")
        lines = [f"if {guards}:", f"    {', '.join(parts)} = several({call}, {i})"]
        for target, part in zip(rule.targets, parts, strict=True):
            otherwise = "" if conditions[target] == "True" else f" if {conditions[target]} else {self.grad(target)}"
            lines.append(f"    {self.grad(target)} = {self.sum(target, part)}{otherwise}")
        return lines

    def whole(self, rule: Rule, only: str | None, loose: bool) -> bool:
        """Whether a joint rule is the whole backward of an eager call with tensors: torch drops gradients that nobody wants."""
        names = [param.name for param in self.definition.differentiable]
        certain = all(param.certain == "tensor" for param in self.definition.differentiable)
        return certain and not loose and only is None and len(self.rules) == 1 and list(rule.targets) == names

    def sum(self, target: str, term: str) -> str:
        return term if self.contributions(target) == 1 else f"add({self.grad(target)}, {term})"

    def autocast(self) -> str:
        """The eager class under autocast: it hands the forward's autocast state to backward."""
        return "\n".join(
            [
                f"{self.alias}_loose_forward, {self.alias}_loose_backward = {self.alias}_loose.forward, {self.alias}_loose.backward",
                "",
                "",
                f"class {self.alias}(Function):",
                "    @staticmethod",
                f"    def forward(ctx, {self.args}):",
                f"        ctx.autocast = autocast_state({self.tuple})",
                f"        return {self.alias}_loose_forward(ctx, {self.args})",
                "",
                "    @staticmethod",
                "    def backward(ctx, *dys):",
                "        with under(ctx.autocast):",
                f"            return {self.alias}_loose_backward(ctx, *dys)",
                "",
                "",
                f"{self.alias}_autocast = {self.alias}",
            ]
        )

    def graph(self) -> str:
        return f"def {self.alias}_graph({self.args}):\n    return to_graph({self.args})"


def signature_text(function: FunctionType) -> str:
    """The parameter list of `function` with its defaults replaced by ``...``; the real ones are attached by reference."""
    parts: list[str] = []
    parameters = list(inspect.signature(function).parameters.values())
    last_positional_only = max((i for i, p in enumerate(parameters) if p.kind is p.POSITIONAL_ONLY), default=-1)
    starred = False
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        starred = starred or p.kind is p.VAR_POSITIONAL
        text = f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
        parts.append(text if p.default is p.empty else f"{text}=...")
        if i == last_positional_only:
            parts.append("/")
    return ", ".join(parts)
