"""What generated code has to do: which gradients, which residuals, under which conditions, by which names."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .rules import RENAMED, Definition, Rule, order_of

# What generated code calls its own things; an argument of such a name is written `arg_name`.
_OWN = (
    "Function PLAIN Tensor UNPACKED add alive allow_graph any_autocast any_differentiable any_wanted apply apply_autocast apply_dual apply_loose "
    "autocast_state begin body build cast check_shapes compiling copy_back cotangents ctx dual dy dys filled full "
    "flat_outputs forward_mode from_graph getattr grad_enabled grads graph hidden holds_tensor inference inputs isinstance "
    "last_outputs len many metas_of more must_return needs out_of output outputs_of outs packed parts_of probe push "
    "random_state reads rebuild refuse refuse_order saved several staticmethod stand_in stands structured tangents "
    "to_graph transform transforms tuple type unaliased under unkeep unpack wanted_ y "
)
OWN_NAMES = frozenset(_OWN.split())
OWN_PREFIXES = ("grad_", "part_", "vjp_", RENAMED)

# What else is in an op's module: an op of such a name is written `op_name` there.
_BESIDE = frozenset(["complex_gradient", "declared", "defined_at", "random_state_of", "full"])


def alias_of(name: str) -> str:
    """The identifier that stands for an op called `name` in its generated module."""
    plain = re.sub(r"\W", "_", name)
    taken = keyword.iskeyword(plain) or plain in OWN_NAMES or plain in _BESIDE or plain.startswith(OWN_PREFIXES)
    return plain if plain.isidentifier() and not taken else f"op_{plain}"


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
    names = {
        name: f"{RENAMED}{name}" if name in OWN_NAMES or name.startswith(OWN_PREFIXES) else name for name in (*definition.names, *definition.kept)
    }
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


class Plan:
    """What is saved and run for one op.

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

    @property
    def constant(self) -> bool:
        """Whether nothing is ever differentiated, so that the body is all there is."""
        return self.definition.automatic == "recompute" and not self.definition.differentiable

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

    def slots(self, *, forward_mode: bool) -> list[Residual]:
        return [residual for residual in self.residuals if residual.readers or forward_mode]

    def grad(self, target: str) -> str:
        return f"grad_{target}"

    def contributions(self, target: str) -> int:
        return sum(target in rule.targets for rule in self.rules) + (target in self.definition.kept)

    def simple(self, target: str) -> bool:
        """Whether one expression gives the gradient: a single rule of its own."""
        rules = [rule for rule in self.rules if target in rule.targets]
        return len(rules) == 1 and rules[0].targets == (target,) and self.contributions(target) == 1

    def whole(self, rule: Rule, only: str | None, loose: bool) -> bool:
        """Whether a joint rule is the whole backward of an eager call with tensors: torch drops gradients that nobody wants."""
        names = [param.name for param in self.definition.differentiable]
        certain = all(param.certain == "tensor" for param in self.definition.differentiable)
        return certain and not loose and only is None and len(self.rules) == 1 and list(rule.targets) == names

    def sum(self, target: str, term: str) -> str:
        return term if self.contributions(target) == 1 else f"add({self.grad(target)}, {term})"
