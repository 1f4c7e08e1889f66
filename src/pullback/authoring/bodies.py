"""The bodies of forward and backward, as text: what is saved, and in which order an op's rules run."""

from __future__ import annotations

from .plan import Plan
from .rules import Rule


class Bodies(Plan):
    """Writes what stands inside the methods of an op's Function classes, as lines without indentation."""

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
        if kept and not (loose or definition.mutates) and all(rule.linear for rule in self.rules):
            lines += [
                f"if type(y) is Tensor and not any_differentiable(({', '.join(kept)},)):",
                *[f"    {line}" for line in self.save_lines(self.only, loose, forward_mode=False, fast=True)],
                "    ctx.materialize_grads = False",
                "    ctx.many = None",
                "    return y",
            ]
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

    def pull_lines(self, only: str | None, loose: bool, *, forward_mode: bool) -> list[str]:
        """From cotangents to gradients: unpack, run the wanted rules in order, return one gradient for each argument."""
        definition = self.definition
        lines = [*self.refusals(only), *self.unpack_lines(loose, forward_mode)]
        if definition.kept:
            bars = ", ".join(self.grad(name) for name in definition.kept)
            lines += ["if more:", f"    dy, {bars} = cotangents(ctx, dy, more, {len(definition.kept)})", "else:"]
            lines.append(f"    {' = '.join(self.grad(name) for name in definition.kept)} = None")
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
