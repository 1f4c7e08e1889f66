"""An op between its decoration and its first call, and what its attributes do."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any, Literal, TypeVar

from .. import _compat
from ..declare import ATTRIBUTE
from .dispatch import Built, function_class, new_module, run_source, signature_text, titled
from .errors import OpError, place_of
from .explain import explanation
from .keeping import Kept
from .making import check_jvp, check_takes, device_type, make_rule
from .plan import alias_of
from .rules import Definition, Rule, positional
from .runtime import out_of

F = TypeVar("F", bound=Callable[..., Any])
RULES = "__pullback_rules__"
FLAGS = "__pullback_flags__"
FINAL = "final_pullback_op"


class RuleDecorator:
    """What ``op.vjp("x")`` returns: decorates the rule, or with ``.kernel(device)`` its version for a device type."""

    def __init__(self, add: Callable[[Callable[..., Any], str | None], None]) -> None:
        self._add = add

    def __call__(self, function: F) -> F:
        self._add(function, None)
        return function

    def kernel(self, device: str) -> Callable[[F], F]:
        """Decorate the version of this rule for tensors on `device`."""

        def decorate(function: F) -> F:
            self._add(function, device)
            return function

        return decorate


class Declared:
    """An op between its decoration and its first call, and what its attributes do."""

    def __init__(self, definition: Definition, function: FunctionType) -> None:
        self.definition = definition
        self.signature = signature_text(function)
        self.module = new_module(definition)
        self.module.__dict__["declared"] = self
        self.lock = threading.RLock()
        self.built: Built | None = None
        self.function = self._stub(function)
        self._attach()

    def _stub(self, function: FunctionType) -> FunctionType:
        """A function with the op's signature that builds the op when it is called, and is the op from then on."""
        alias = alias_of(function.__name__)
        names = self.module.__dict__
        names["build_pullback_op"] = _compat.constant_result(lambda: self.build())
        names[FINAL] = None
        names["PullbackKept"], names["refuse_pullback_out"] = Kept, self._refuse_output
        arguments = ", ".join(_passed(function))
        lines = (
            f"def {alias}({self.signature}):",
            "    build_pullback_op()",
            f"    pullback_out = {FINAL}({arguments})",
            "    if pullback_out is None or pullback_out.__class__ is PullbackKept:",
            "        refuse_pullback_out(pullback_out)",
            "    return pullback_out",
        )
        run_source(self.module, "\n".join(lines) + "\n", f"<{self.module.__name__}, first call>")
        stub: FunctionType = names.pop(alias)
        stub.__defaults__, stub.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        stub.__name__, stub.__qualname__ = function.__name__, function.__qualname__
        stub.__doc__, stub.__module__ = function.__doc__, function.__module__
        stub.__annotations__ = function.__annotations__
        stub.__wrapped__ = function  # type: ignore[attr-defined]
        self.first_call = stub.__code__
        return stub

    def _refuse_output(self, out: Any) -> None:
        """Raise for what no op returns, at this call and at the next ones."""
        self.function.__code__ = self.first_call
        where = f"{self.definition.name} ({self.definition.place})"
        if out is None:
            raise OpError(f"{where} returned None; an op returns tensors. Is a `return` missing?")
        raise OpError(
            f"{where} returned what pb.keep made in another function. What is kept is read from the op's own source: write "
            f"`return pb.keep(out, {', '.join(f'{name}={name}' for name in out.values)})` in its body."
        )

    def build(self) -> None:
        """Write the op's code, once, and put it in the stub's place."""
        with self.lock:
            if self.built is not None:
                return
            definition = self.definition
            if definition.automatic == "recompute" and definition.remembers_all:
                built = None
                final = definition.body
            else:
                built = Built(definition, self.module, self.signature)
                final = built.call
            self.module.__dict__[FINAL] = final
            if built is not None:
                self.function.__code__ = final.__code__.replace(co_name=self.function.__name__, co_qualname=self.function.__qualname__)  # type: ignore[attr-defined]
                final.__defaults__, final.__kwdefaults__ = self.function.__defaults__, self.function.__kwdefaults__  # type: ignore[attr-defined]
            self.built = built

    # attributes of the op

    def _attach(self) -> None:
        function: Any = self.function
        for name in ("vjp", "kernel", "surrogate", "jvp", "vmap", "fake", "inference", "sharding", "samples", "explain"):
            setattr(function, name, getattr(self, name))
        setattr(function, ATTRIBUTE, Declarations(self))
        function.function = None
        if self.definition.opaque:
            self._give_function()

    def _give_function(self) -> None:
        """Let ``op.function`` be a Function class: from now on the op has derivatives of its own."""
        function: Any = self.function
        if function.function is None:
            function.function = function_class(self.definition, self.module, function.__wrapped__, self.complete)
            setattr(function.function, ATTRIBUTE, getattr(function, ATTRIBUTE))
            setattr(function.function, RULES, {})
            setattr(function.function, FLAGS, _flags(self.definition))

    def complete(self) -> Built:
        """The generated code, written now if need be."""
        self.build()
        assert self.built is not None
        return self.built

    def _open(self, what: str, function: Callable[..., Any]) -> None:
        if self.built is not None or self.module.__dict__[FINAL] is not None:
            raise OpError(
                f"{self.definition.name}.{what} ({place_of(function)}): {self.definition.name} ({self.definition.place}) has been called already, "
                "and its rules are fixed from the first call on. Move the rule before it."
            )

    def vjp(
        self,
        *targets: str,
        of: str | None = None,
        exact: bool = True,
        linear: bool = True,
        once: bool = False,
        undefined: Literal["zeros", "none"] = "zeros",
        keeps: Mapping[str, Sequence[str]] | None = None,
        reason: str = "",
    ) -> RuleDecorator:
        """Decorate the rule for `targets`."""
        for target in targets:
            if callable(target):
                name, names = self.definition.name, self.definition.names
                raise OpError(f'{name}.vjp ({place_of(target)}): name the argument whose gradient the rule returns: @{name}.vjp("{names[0]}").')
        options = {"exact": exact, "linear": linear, "once": once, "undefined": undefined, "keeps": keeps, "reason": reason}

        def add(function: Callable[..., Any], device: str | None) -> None:
            with self.lock:
                self._open(f"vjp[{', '.join(map(str, targets))}]", function)
                title = f"{self.definition.name}.vjp[{', '.join(map(str, targets))}]"
                if device is not None:
                    self._add_kernel(targets, of, function, device_type(f'{self.definition.name}.vjp("{targets[0]}").kernel', device))
                else:
                    self.definition.rules.append(make_rule(self.definition, targets, function, of=of, **options))
                    self._give_function()
                    for target in targets:
                        getattr(self.function.function, RULES)[target] = function  # type: ignore[attr-defined]
                titled(function, title)

        return RuleDecorator(add)

    def _add_kernel(self, targets: tuple[str, ...], of: str | None, function: Callable[..., Any], device: str) -> None:
        for rule in self.definition.rules:
            if rule.targets == targets and rule.of == of:
                made = make_rule(_without(self.definition, rule), targets, function, of=of)
                if made.residuals != rule.residuals:
                    raise OpError(
                        f"{self.definition.name}.vjp[{rule.title}].kernel({device!r}) ({place_of(function)}) must take what the rule "
                        f"takes, {list(rule.residuals)}; got {list(made.residuals)}."
                    )
                if device in rule.kernels:
                    raise OpError(
                        f"{self.definition.name}.vjp[{rule.title}] already has a kernel for {device!r} at {place_of(rule.kernels[device])}."
                    )
                rule.kernels[device] = function
                return
        raise OpError(f"{self.definition.name}.vjp[{', '.join(targets)}].kernel({device!r}) ({place_of(function)}): write the rule itself first.")

    def kernel(self, device: str) -> Callable[[F], F]:
        """Decorate another forward, for tensors on `device`."""
        device_type(f"{self.definition.name}.kernel", device)

        def decorate(function: F) -> F:
            with self.lock:
                self._open("kernel", function)
                check_takes(self.definition, "kernel", function)
                self._once_only("kernel", self.definition.kernels.get(device), function)
                self.definition.kernels[device] = positional(function)
            return function

        return decorate

    def _set(self, what: str, function: F, value: Callable[..., Any]) -> F:
        with self.lock:
            if what != "samples":
                self._open(what, function)
            self._once_only(what, getattr(self.definition, what), function)
            setattr(self.definition, what, value)
        titled(function, f"{self.definition.name}.{what}") if what in ("surrogate", "jvp", "vmap", "fake", "inference") else None
        return function

    def _once_only(self, what: str, old: Callable[..., Any] | None, function: Callable[..., Any]) -> None:
        if old is not None:
            raise OpError(f"{self.definition.name}.{what} ({place_of(function)}): there already is one at {place_of(old)}.")

    def surrogate(self, function: F) -> F:
        """Decorate the function whose gradient backward returns instead: by autograd, or by rules that compute the same at less cost."""
        check_takes(self.definition, "surrogate", function)
        self._set("surrogate", function, positional(function))
        self._give_function()
        return function

    def jvp(self, function: F) -> F:
        """Decorate the jvp: ``(tangents, names...)``, where ``tangents.x`` is x's tangent or None."""
        check_jvp(self.definition, function)
        return self._set("jvp", function, function)

    def vmap(self, function: F) -> F:
        """Decorate the batched forward: ``(info, in_dims, *args)`` to ``(out, out_dims)``, as for torch.autograd.Function."""
        check_takes(self.definition, "vmap", function, ("info", "in_dims"))
        return self._set("vmap", function, function)

    def fake(self, function: F) -> F:
        """Decorate what an opaque body returns as far as shapes and dtypes go."""
        check_takes(self.definition, "fake", function)
        return self._set("fake", function, positional(function))

    def inference(self, function: F) -> F:
        """Decorate another forward, for calls in which nobody wants a gradient: it returns the same output, and need not work for backward.

        It must draw the random numbers that the body draws, needed or not: the first run of a checkpoint is such a call, and the next layer would
        draw the same numbers again.
        """
        if self.definition.opaque or self.definition.mutates or self.definition.vmap is not None:
            raise OpError(
                f"{self.definition.name}.inference ({place_of(function)}): an op that is opaque, changes an argument in place or has a vmap rule "
                "has one forward for all calls."
            )
        check_takes(self.definition, "inference", function)
        return self._set("inference", function, positional(function))

    def sharding(self, function: F) -> F:
        """Decorate the acceptable placements of an opaque op, as for torch.distributed.tensor.experimental.register_sharding."""
        return self._set("sharding", function, function)

    def samples(self, function: F) -> F:
        """Decorate a generator of ``pb.sample(...)``: arguments for checks and benchmarks. This may be added at any time."""
        return self._set("samples", function, function)

    def explain(self) -> None:
        """Print for each argument its rule and what that keeps, and which transforms are derived or missing."""
        print(explanation(self.definition))

    def _called_like_the_op(self, function: Callable[..., Any]) -> LikeOp:
        return LikeOp(function, inspect.signature(self.function))

    def declaration(self) -> dict[str, Any]:
        """What the rules declare about the gradient."""
        definition = self.definition
        reasons = [rule.reason for rule in definition.rules if rule.reason]
        first_line = (self.function.__doc__ or "").strip().partition("\n")[0]
        found: dict[str, Any] = {
            "exact": all(rule.exact for rule in definition.rules),
            "linear": all(rule.linear for rule in definition.rules),
            "orders": 1 if definition.deliberate or any(rule.once for rule in definition.rules) else 2,
            "surrogate": definition.surrogate and self._called_like_the_op(definition.surrogate),
            "reference": definition.reference or (None if definition.opaque or definition.mutates else self._called_like_the_op(definition.body)),
            "samples": definition.samples,
            "static": tuple(param.name for param in definition.params if param.static),
            "reason": "; ".join(reasons) or (first_line if definition.deliberate else ""),
        }
        return found


class LikeOp:
    """A body or surrogate, which takes one value for each parameter in order, called as the op is: by keyword, and with the op's defaults."""

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature) -> None:
        self.function = function
        self.signature = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return out_of(self.function(*bound.arguments.values()))


class Declarations(Mapping[str, Any]):
    """``op.__pullback__``: what the op declares so far."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared

    def __getitem__(self, key: str) -> Any:
        return self._declared.declaration()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared.declaration())

    def __len__(self) -> int:
        return len(self._declared.declaration())


def _flags(definition: Definition) -> tuple[str, ...]:
    """What the author declares of the forward, from which forward mode follows: for a checker to verify."""
    flags = ["elementwise=True"] if definition.elementwise else []
    return (*flags, f"linear={definition.linear!r}") if definition.linear else tuple(flags)


def _passed(function: FunctionType) -> list[str]:
    return [
        f"*{p.name}" if p.kind is p.VAR_POSITIONAL else f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name
        for p in inspect.signature(function).parameters.values()
    ]


def _without(definition: Definition, rule: Rule) -> Definition:
    return replace(definition, rules=[other for other in definition.rules if other is not rule])
