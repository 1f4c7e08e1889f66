"""The source of an op's functions and Function classes, as text.

What is written here is straight-line code for one op: what it saves, and in which order its rules run. Whatever does not depend on the op lives in
`runtime.py` and is called by name.
"""

from __future__ import annotations

import inspect
from types import FunctionType

from .bodies import Bodies
from .packed import packable
from .rules import Param


class Writer(Bodies):
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
