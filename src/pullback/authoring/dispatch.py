"""Puts an op's generated code into a module, and gives it what it calls by name."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from .. import _compat
from . import autocast, automatic, runtime, structure
from .errors import Place
from .forward_mode import push_of
from .generate import Writer, signature_text
from .guards import complex_gradient_of, refusal_of_order, refuse_gradient, returner, several_of, shape_checker, unkeeper
from .opaque import batched_body, call_opaque
from .packed import UNPACKED, packable, packed_function
from .plan import alias_of
from .probation import Probation
from .rules import Definition, Param, Rule

Tensor = torch.Tensor
_PACKAGE = "pullback._generated"


def new_module(definition: Definition) -> types.ModuleType:
    """A real module for the op's generated code: dynamo looks functions up by module, debuggers and tracebacks by file."""
    for name in _prefixes(f"{_PACKAGE}.{definition.module}"):
        if name not in sys.modules:
            package = types.ModuleType(name, "Generated code of pullback ops.")
            package.__path__ = []
            sys.modules[name] = package
    base = f"{_PACKAGE}.{definition.module}.{re.sub(r'[^0-9A-Za-z_]', '_', definition.name)}"
    name, i = base, 1
    while name in sys.modules and not _replaces(sys.modules[name], definition):
        i += 1
        name = f"{base}_{i}"
    module = types.ModuleType(name, f"Generated code of the op {definition.name}, defined at {definition.place}.")
    module.__file__ = f"<{name}>"
    module.__dict__["defined_at"] = _identity(definition)
    sys.modules[name] = module
    return module


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(1, len(parts))]


def _identity(definition: Definition) -> str:
    return definition.body.__qualname__


def _replaces(module: types.ModuleType, definition: Definition) -> bool:
    """Whether an op defined again (in a notebook) takes the place of the old one; ops made by a factory live side by side."""
    identity = _identity(definition)
    return "<locals>" not in identity and module.__dict__.get("defined_at") == identity


def run_source(module: types.ModuleType, source: str, filename: str = "") -> None:
    """Execute `source` in `module` and make it visible to tracebacks and debuggers."""
    filename = filename or module.__file__ or module.__name__
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), module.__dict__)


def titled(function: Callable[..., Any], title: str) -> Callable[..., Any]:
    """Give a rule a name that says what it is in tracebacks and profiles."""
    if isinstance(function, types.FunctionType):
        function.__code__ = function.__code__.replace(co_name=title, co_qualname=title)
        function.__name__ = function.__qualname__ = title
    return function


class Built:
    """An op's generated functions.

    Args:
        definition: The finished definition.
        module: Where the code goes.
        signature: The parameter list of the wrapper.
    """

    def __init__(self, definition: Definition, module: types.ModuleType, signature: str | None = None) -> None:
        self.module = module
        self.alias = alias = alias_of(definition.name)
        self.declared = definition
        self.body = forward_of(definition, module)
        self.definition = definition = with_automatic_rule(definition, self.body)
        self.writer = Writer(definition, alias, extras_of(definition))
        self.special: dict[Any, str] = {}
        # Dynamo calls it while it traces, and takes a name from it: it would not see what changes in a dictionary that it has looked at.
        self.specialised = _compat.constant_result(lambda key: _specialise(self, key))
        module.__dict__.update(self.namespace())
        if signature is None:
            signature = ", ".join(f"*{param.name}" if param.variadic else param.name for param in definition.params)
        run_source(module, self.writer.source(signature))
        self.call: Callable[..., Any] = module.__dict__[alias]
        if not (self.writer.constant or any(param.variadic for param in definition.params)):
            self._bind_classes()
        self.packed = None
        if packable(self.writer.definition):
            self.packed = _compat.c_apply(packed_function(definition, alias, module.__name__))

    def _bind_classes(self) -> None:
        names, alias = self.module.__dict__, self.alias
        for kind in ("eager", "loose", "autocast", "transform"):
            function = names.get(f"{alias}_{kind}")
            if function is None:
                continue
            function.__name__, function.__qualname__ = f"{alias}_{kind}", self.declared.name
            function.__doc__ = self.declared.body.__doc__
            function.__pullback__ = {}
            if kind != "transform":
                function.apply = _compat.c_apply(function)
        loose, eager = names[f"{alias}_loose"], names[f"{alias}_eager"]
        names["apply"] = Probation(self.definition, eager, names).apply
        names["apply_loose"], names["apply_autocast"] = loose.apply, names[f"{alias}_autocast"].apply
        transform = names.get(f"{alias}_transform")
        if transform is None:
            return
        c_apply = _compat.c_apply(transform)
        call_under_transforms = _compat.call_under_transforms
        names["apply_dual"] = c_apply
        names["transform"] = lambda *args: call_under_transforms(transform, *args)
        to_graph, last_outputs = graph_form(transform, c_apply)
        names["to_graph"] = to_graph
        names["last_outputs"] = _compat.constant_result(last_outputs)
        names["graph"] = graph = names[f"{alias}_graph"]
        names["allow_graph"] = _compat.constant_result(lambda: torch.compiler.allow_in_graph(graph) and None)

    def transform(self, count: int) -> Any:
        """The setup_context-style Function class for so many arguments."""
        if not any(param.variadic for param in self.definition.params):
            return self.module.__dict__[f"{self.alias}_transform"]
        more = count - len(self.definition.params) + 1
        name = self.specialised(tuple(more if param.variadic else not param.static for param in self.definition.params))
        return self._special_module(name).__dict__[f"{self.alias}_transform"]

    def _special_module(self, name: str) -> types.ModuleType:
        return sys.modules[f"{self.module.__name__}_{name.rpartition('_')[2]}"]

    def namespace(self) -> dict[str, Any]:
        """What the generated code calls by name."""
        definition = self.definition
        shared = {name: getattr(runtime, name) for name in _SHARED.split()}
        rules = {f"vjp_{i}": callable_rule(definition, rule) for i, rule in enumerate(self.writer.rules)}
        own = {
            "Function": torch.autograd.Function,
            "transforms": _compat.transforms_active(),
            "any_autocast": _compat.any_autocast(),
            "dual": _compat.forward_level(),
            "compiling": torch.compiler.is_dynamo_compiling,
            "grad_enabled": torch.is_grad_enabled,
            "under": autocast.under,
            "autocast_state": autocast.autocast_state if definition.autocast is None else _state_without_autocast,
            "holds_tensor": structure.holds_tensor,
            "stands": automatic.stands,
            "stand_in": automatic.stand_in,
            "body": self.body,
            "unpack": runtime.unpack_kept if definition.kept else runtime.unpack,
            "refuse": lambda name: refuse_gradient(definition, name),
            "refuse_order": refusal_of_order(definition),
            "unkeep": unkeeper(definition),
            "must_return": returner(definition),
            "several": several_of(definition, self.writer.rules),
            "check_shapes": shape_checker(definition, self.writer.rules),
            "complex_gradient": complex_gradient_of(definition, self.writer.rules),
            "structured": self.structured,
            "packed": None,
            "UNPACKED": UNPACKED,
            "push": push_of(definition, self.body, self.saved_arguments, tuple([not slot.kept for slot in self.writer.slots(forward_mode=True)])),
        }
        if definition.autocast is not None:
            own["cast"] = autocast.caster(definition.autocast)
        if definition.inference is not None:
            own["inference"] = forward_of(replace(definition, body=definition.inference, kernels={}), self.module)
        if definition.automatic == "surrogate":
            own["probe"] = automatic.Probe(definition)
        return {**shared, **own, **rules}

    def saved_arguments(self, ctx: Any, saved: tuple[Any, ...]) -> dict[str, Any]:
        """Residuals by name, as forward mode needs them."""
        slots = self.writer.slots(forward_mode=True)
        found: dict[str, Any] = {}
        original = (*self.declared.names, *self.declared.kept)
        renamed = dict(zip((*self.writer.definition.names, *self.writer.definition.kept), original, strict=True))
        for slot, value in zip(slots, saved, strict=False):
            plain = getattr(ctx, f"plain_{slot.name}", None)
            found[renamed[slot.name]] = plain if value is None else value
        if self.writer.reads_out:
            found[self.definition.out] = runtime.rebuild(ctx, saved[len(slots) :])
        return found

    # containers

    def structured(self, args: tuple[Any, ...]) -> Any:
        """Call the op with containers of tensors: each structure gets code of its own, with one argument for each leaf."""
        leaves: list[Any] = []
        key: list[Any] = []
        for param, value in zip(self.definition.params, args, strict=True):
            if param.static or not (param.variadic or structure.holds_tensor(value)):
                leaves.append(value)
                key.append(isinstance(value, Tensor))
            elif param.variadic and not [item for item in value if type(item) is not Tensor]:
                leaves.extend(value)
                key.append(len(value))
            else:
                found: list[Any] = []
                spec = structure.flatten(value, found)
                leaves.extend(found)
                key.append((spec, tuple([isinstance(leaf, Tensor) for leaf in found])))
        name = self.specialised(tuple(key))
        if self.packed is not None and not torch.compiler.is_dynamo_compiling():
            self._pack(name)
        return getattr(self.module, name)(*leaves)

    def _pack(self, name: str) -> None:
        """Let calls take the short way once the first ones, which are watched, have gone well."""
        apply = self._special_module(name).__dict__["apply"]
        if not isinstance(getattr(apply, "__self__", None), Probation):
            self.module.__dict__["packed"], self.packed = self.packed, None


def _state_without_autocast(args: Any) -> Any:
    state = autocast.autocast_state(args)
    return None if state is None else (state[0], state[1], False, state[3])


def _specialise(built: Built, key: tuple[Any, ...]) -> str:
    """The name in the op's module of the function for arguments of these structures."""
    from .specialise import flat_definition

    found = built.special.get(key)
    if found is not None:
        return found
    name = f"{built.alias}_{len(built.special) + 1}"
    module = types.ModuleType(f"{built.module.__name__}_{len(built.special) + 1}", built.module.__doc__)
    module.__file__ = f"<{module.__name__}>"
    sys.modules[module.__name__] = module
    built.module.__dict__[name] = Built(flat_definition(built.declared, key), module).call
    built.special[key] = name
    return name


_SHARED = """
    PLAIN Tensor add alive any_differentiable any_wanted begin copy_back cotangents filled flat_outputs full from_graph metas_of out_of
    outputs_of parts_of random_state random_state_of rebuild unaliased
"""


def with_automatic_rule(definition: Definition, body: Callable[..., Any]) -> Definition:
    """The definition with the rule that stands for a surrogate or for recomputing."""
    if (
        definition.automatic is None
        or definition.made is not None
        or any(param.variadic for param in definition.params)
        or not definition.differentiable
    ):
        return definition
    return replace(definition, rules=[automatic.automatic_rule(definition, body)], made=definition.automatic)


def extras_of(definition: Definition) -> tuple[str, ...]:
    """Residuals that only forward mode reads."""
    if definition.jvp is not None:
        known = (*definition.names, *definition.kept, definition.out)
        return tuple(name for name in list(inspect.signature(definition.jvp).parameters)[1:] if name in known)
    return definition.names if definition.linear else ()


def forward_of(definition: Definition, module: types.ModuleType) -> Callable[..., Any]:
    """The body as generated code calls it: by device, opaque, batched, without autocast, as the definition says."""
    body = definition.body
    if definition.kernels:
        body = by_device(body, definition.kernels)
    bare = body
    if definition.opaque:
        body = call_opaque(definition, body, module)
    if definition.vmap is not None or definition.opaque:
        body = batched_body(definition, bare if definition.vmap is None and not definition.opaque else body)
    if definition.autocast is not None:
        body = autocast.without_autocast(body)
    return body


def by_device(function: Callable[..., Any], kernels: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """`function`, or the version for the device of the first tensor."""

    def chosen(*args: Any, **flags: Any) -> Any:
        return kernels.get(autocast.device_of(args), function)(*args, **flags)

    return chosen


def callable_rule(definition: Definition, rule: Rule) -> Callable[..., Any]:
    """A rule as generated code calls it."""
    function = rule.function
    if rule.kernels:
        function = by_device(function, rule.kernels)
    if rule.once:
        from .once import once_only

        function = once_only(definition, rule, function)
    return function


def graph_form(transform: Any, c_apply: Any) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """The op as one node of a traced graph: flat tensors out, and what structure they have on the side."""
    active, call_under_transforms = _compat.transforms_active(), _compat.call_under_transforms
    last: list[Any] = [None]

    def to_graph(*args: Any) -> Any:
        result = call_under_transforms(transform, *args) if active() else c_apply(*args)
        if isinstance(result, Tensor):
            last[0] = None
            return result
        outputs = result[-1]
        if type(outputs) is not structure.Outputs:
            last[0] = None
            return result
        last[0] = (outputs.spec, outputs.changed)
        return result[0] if outputs.spec == structure.LEAF else tuple(result[: outputs.count])

    return to_graph, lambda: last[0]


def function_class(
    definition: Definition, module: types.ModuleType, function: Callable[..., Any], built: Callable[[], Built]
) -> type[torch.autograd.Function]:
    """The op as a Function class, which can be there before the op is complete.

    Args:
        definition: The op.
        module: Where its generated code lives.
        function: The author's forward, which gives the class its signature and its place.
        built: Returns the generated code, written when it is first asked for.
    """

    def forward(*args: Any) -> Any:
        return built().transform(len(args)).forward(*args)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        built().transform(len(inputs)).setup_context(ctx, inputs, output)

    def backward(ctx: Any, *dys: Any) -> Any:
        return built().transform(len(ctx.needs_input_grad)).backward(ctx, *dys)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        return built().transform(len(tangents)).jvp(ctx, *tangents)

    forward.__wrapped__ = function  # type: ignore[attr-defined]
    functions: tuple[Any, ...] = (forward, setup_context, backward, jvp)
    methods = {function.__name__: staticmethod(function) for function in functions}
    body = {**methods, "generate_vmap_rule": True, "__module__": module.__name__, "__doc__": definition.body.__doc__}
    return type(definition.name, (torch.autograd.Function,), body)


__all__ = ["Built", "Param", "Place", "new_module", "run_source", "signature_text", "titled"]
