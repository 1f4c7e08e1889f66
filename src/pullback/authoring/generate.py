"""The source of an op's functions and Function classes, as text.

What is written here is straight-line code for one op: what it saves, and in which order its rules run. Whatever does not depend on the op lives in
`runtime.py` and is called by name.
"""

from __future__ import annotations

import inspect
from types import FunctionType

from .packed import packable
from .plan import Plan
from .rules import Param, Rule


class Writer(Plan):
    """Writes the source of one op."""

    def source(self, signature: str) -> str:
        """Return the whole module's text; `signature` is the op's parameter list."""
        if any(param.variadic for param in self.definition.params):
            return self.collecting(signature) + "\n"
        if self.constant:
            return self.wrapper(signature) + "\n"
        classes = [self.eager(loose=False), self.eager(loose=True), self.autocast()]
        if self.definition.automatic != "recompute":
            classes += [self.transform(), self.graph()]
        functions = [self.elsewhere(), self.any_wrapper(), self.wrapper(signature)]
        return "\n\n\n".join(classes + functions) + "\n"

    # the op itself

    def wrapper(self, signature: str) -> str:
        alias = self.alias
        if self.original is not self.definition:
            inner = self.wrapper_text(f"{alias}_renamed", self.args)
            return f"{inner}\n\n\ndef {alias}({signature}):\n    return {alias}_renamed({', '.join(self.original.names)})"
        return self.wrapper_text(alias, signature)

    def wrapper_text(self, name: str, signature: str) -> str:
        # A container has no requires_grad, so asking every argument finds containers; leaves of containers hold none.
        if self.constant:
            return f"def {name}({signature}):\n    return {self.bare()}"
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

    def collecting(self, signature: str) -> str:
        """The wrapper of an op with ``*args``, whose other code depends on how many there are."""
        lines = [f"def {self.alias}({signature}):"]
        if packable(self.definition):
            lines += [
                "    if not compiling() and packed is not None and grad_enabled():",
                "        if not (transforms() or dual._current_level >= 0 or any_autocast()):",
                f"            y = packed(*{self.args})",
                "            if type(y) is Tensor:",
                "                return y",
                "            if type(y) is tuple:",
                "                return unpack(y)",
                "            if y is not UNPACKED:",
                "                return y",
            ]
        return "\n".join([*lines, f"    return structured({self.tuple})"])

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
        """The call where no gradient is wanted."""
        return self.body_call() if self.definition.inference is None else f"inference({self.args})"

    def body_call(self) -> str:
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
            return "\n".join([header, test, f"        return {self.body_call()}", *self.plain_lines()])
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
        pull = self.pull_lines(self.only, loose, forward_mode=False)
        prologue = ["needs = ctx.needs_input_grad"] if any("needs[" in line for line in pull) else []
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
                *[f"        {line}" for line in (*prologue, *pull)],
                "",
                "",
                f"{self.alias}_{'loose' if loose else 'eager'} = {self.alias}",
            ]
        )

    def forward_lines(self, loose: bool) -> list[str]:
        definition = self.definition
        kept = definition.kept
        lines: list[str] = []
        if definition.automatic == "recompute":
            lines.append(f"ctx.random = random_state({self.tuple})")
        lines.append(f"y = body({self.args})")
        if kept:
            lines.append(f"y, {', '.join(kept)} = unkeep(y, {self.tuple})")
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
            lines.append("ctx.materialize_grads = False")
            if any(not rule.linear for rule in self.rules):
                lines.append("ctx.metas = metas_of((y,) if many is None else many[0])")
            else:
                lines += ["if many is not None:", "    ctx.metas = metas_of(many[0])"]
        if kept:
            lines += ["if many is None:", "    ctx.many = None", f"    return (y{hidden})"]
            lines += ["ctx.many = many[1]", f"return (*many[0]{hidden}, many[1])"]
        else:
            lines += ["if many is None:", "    return y", "ctx.many = many[1]", "return (*many[0], many[1]) if many[2] else many[0]"]
        return ["needs = ctx.needs_input_grad", *lines] if any("needs[" in line for line in lines) else lines

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
                f"        y, *hidden = unkeep(y, {self.tuple})" if kept else "        hidden = ()",
                *([f"        y = unaliased(y, {self.tuple})"] if definition.deliberate and not definition.mutates else []),
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
        whole = not forward_mode and self.materialize and len(self.rules) == 1 and self.whole(self.rules[0], only, loose)
        stepwise = [target for target in definition.names if target in self.targets and not self.simple(target) and not whole]
        lines += [f"{self.grad(target)} = None" for target in stepwise]
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

    def rule_lines(self, i: int, rule: Rule, only: str | None, loose: bool, *, always: bool) -> list[str]:
        """One rule's turn; `always` where the output's cotangent is sure to be there, because torch fills it in."""
        cotangent = "dy" if rule.of is None else self.grad(rule.of)
        found = {target: self.condition(sorted(self.want(target)), only) for target in rule.targets}
        conditions = {target: f"({text})" if " or " in text else text for target, text in found.items()}
        given = cotangent
        if not always and rule.of is None and rule.undefined == "zeros":
            given = "filled(ctx, dy)" if rule.linear else "full(ctx, dy)"
        residuals = "".join(f", {name}" for name in rule.residuals)
        if rule.wanted:
            residuals += f", {rule.wanted}=({', '.join(conditions.values())},)"
        call = f"vjp_{i}({given}{residuals})"
        present = "True" if given.startswith("full") or (always and rule.of is None) else f"{cotangent} is not None"
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
