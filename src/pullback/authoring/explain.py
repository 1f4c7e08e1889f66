"""What `op.explain()` prints."""

from __future__ import annotations

from .errors import listed
from .rules import Definition, Rule


def explanation(definition: Definition) -> str:
    """Per argument its rule and what that keeps; then which transforms are derived, and which are missing."""
    lines = [f"{definition.name}  {definition.place}"]
    width = max([len(param.name) for param in definition.params], default=1)
    for param in definition.params:
        lines.append(f"  {param.name:<{width}}  {_of_argument(definition, param.name, param.static)}")
    for name in definition.kept:
        lines.append(f"  kept {name}: {_of_kept(definition, name)}")
    lines += ["", f"  reverse mode  {_reverse(definition)}", f"  forward mode  {_forward(definition)}", f"  vmap          {_batching(definition)}"]
    lines.append(f"  compile       {_compile(definition)}")
    return "\n".join(lines)


def _of_argument(definition: Definition, name: str, static: bool) -> str:
    if static:
        return "static: never differentiated"
    if definition.automatic == "surrogate":
        return "gradient of the surrogate; keeps what that reads"
    if definition.automatic == "recompute":
        return "autograd of the body, " + ("which keeps its own values" if definition.remembers_all else "computed again from the arguments")
    found = [rule for rule in definition.rules if name in rule.targets]
    if not found:
        return "no rule: raises if it requires grad"
    return "; ".join(_describe(definition, rule, name) for rule in found)


def _describe(definition: Definition, rule: Rule, name: str) -> str:
    keeps = list(rule.needed_by(name))
    parts = [f"vjp at {rule.place}"]
    if rule.of:
        parts.append(f"from the cotangent of {rule.of}")
    if len(rule.targets) > 1:
        parts.append(f"together with {listed(target for target in rule.targets if target != name)}")
    parts.append(f"keeps {', '.join(keeps)}" if keeps else "keeps nothing")
    deliberate = (("of the surrogate", definition.surrogate is not None), ("not exact", not rule.exact), ("not linear", not rule.linear))
    declared = [text for text, given in (*deliberate, ("once", rule.once)) if given]
    return ", ".join(parts + declared)


def _of_kept(definition: Definition, name: str) -> str:
    rules = [rule for rule in definition.rules if rule.of == name]
    readers = [rule.title for rule in definition.rules if name in rule.residuals]
    read = f"read for {', '.join(readers)}" if readers else "read by no rule"
    return f"{read}; " + (f"rules lead on to {', '.join(rule.title for rule in rules)}" if rules else "second derivatives through it raise")


def _reverse(definition: Definition) -> str:
    missing = [p.name for p in definition.differentiable if not any(p.name in rule.targets for rule in definition.rules)]
    if definition.automatic:
        return "yes, also of second order"
    if missing:
        return f"missing for {', '.join(missing)}"
    once = [rule.title for rule in definition.rules if rule.once]
    return f"yes; second derivatives of {', '.join(once)} raise" if once else "yes, also of second order as far as the rules are torch code"


def _forward(definition: Definition) -> str:
    if definition.automatic == "recompute":
        return "autograd of the body" + (", not @jvp: without vjp rules the body is differentiated" if definition.jvp is not None else "")
    if definition.jvp is not None:
        return "from @jvp"
    if definition.linear:
        return f"from linear in {', '.join(definition.linear)}" + ("" if definition.opaque else "; else derived from the vjp rules")
    if definition.elementwise:
        return "from elementwise"
    if definition.opaque and definition.automatic is None:
        return f"missing: give @{definition.name}.jvp, or declare linear or elementwise"
    if any(not rule.linear for rule in definition.rules):
        return f"missing: a rule is declared linear=False; give @{definition.name}.jvp"
    return "derived from the surrogate" if definition.automatic == "surrogate" else "derived from the vjp rules"


def _batching(definition: Definition) -> str:
    if definition.vmap is not None:
        return "from @vmap"
    if definition.opaque:
        return "from elementwise" if definition.elementwise else f"a loop over the batch; give @{definition.name}.vmap to run it at once"
    return "derived"


def _compile(definition: Definition) -> str:
    if definition.opaque and definition.fake is None:
        return f"missing: an opaque body needs @{definition.name}.fake"
    return "yes"
