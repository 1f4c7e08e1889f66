"""Abstract calls: torch operations, ctx methods, in-place writes, and functions of the project, which are entered."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from . import torch_names as names
from .evaluate import Expressions
from .events import Call, CtxRead, CtxWrite, Mark, Save
from .nodes import walk
from .project import dotted
from .syntax import of_grad
from .values import NONE, OTHER, UNKNOWN, Closure, Dtype, Ref, Value, derived, join

if TYPE_CHECKING:
    from .interpret import Interpreter

MAX_DEPTH = 5
_EXTENSION_ENDINGS = ("_C", "_cuda", "_ext", "_cpp", "_backend", "cuda_lib")


class Calls(Expressions):
    """Call half of the interpreter."""

    def of_call(self: Interpreter, node: ast.Call) -> Value:  # type: ignore[misc]
        return self.call(node, discarded=False)

    def call(self: Interpreter, node: ast.Call, *, discarded: bool) -> Value:  # type: ignore[misc]
        func = node.func
        if isinstance(func, ast.Attribute):
            base = self.value(func.value)
            if base.kind == "ctx" and func.attr in names.CTX_METHODS:
                return self._ctx_call(node, func.attr)
            full = f"{base.named}.{func.attr}" if base.named else ""
            closure = self._class_attribute(func).closure if base.kind == "class" else None
        elif isinstance(func, ast.Name):
            base, found = None, self.value(func)
            full, closure = found.named, found.closure
            if not full and not closure and found.has("ctx"):
                full = func.id
        else:
            return self._launch(node, discarded)
        arguments, exact = self._arguments(node)
        if full.startswith("builtins."):
            return self._builtin(node, full[9:], arguments)
        target = self._target(func, closure)
        if target is not None and exact and self._may_enter(target, arguments, base):
            return self._enter(node, target, arguments, base)
        everything = [*arguments, *(self.value(k.value) for k in node.keywords)]
        if any(v.kind == "ctx" for a in everything for v in a.flat()):
            self.record.ctx_escapes = True
        if full or base is None or base.kind == "class":
            return self._function(node, full or (dotted(func) or ""), arguments, discarded)
        assert isinstance(func, ast.Attribute)
        return self._method(node, func, base, arguments, discarded)

    def _arguments(self: Interpreter, node: ast.Call) -> tuple[list[Value], bool]:  # type: ignore[misc]
        values: list[Value] = []
        exact = all(k.arg is not None for k in node.keywords)
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                value = self.value(argument.value)
                if value.items is not None:
                    values.extend(value.items)
                    continue
                self.touch(value, "argument", argument)
                exact = False
                values.append(Value(value.all_refs() | ({Ref(value.sequence[0], "*")} if value.sequence else set())))
            else:
                values.append(self.value(argument))
        return values, exact

    def _touch_all(self: Interpreter, node: ast.Call, arguments: list[Value]) -> None:  # type: ignore[misc]
        for value in arguments:
            self.touch(value, "argument", node)
        for keyword in node.keywords:
            self.use(keyword.value, "argument")

    def _launch(self: Interpreter, node: ast.Call, discarded: bool) -> Value:  # type: ignore[misc]
        kernel = isinstance(node.func, ast.Subscript) and self._is_launch(node.func)
        self.value(node.func)
        arguments, _ = self._arguments(node)
        self._touch_all(node, arguments)
        arguments += [self.value(k.value) for k in node.keywords]
        named = dotted(node.func.value) if isinstance(node.func, ast.Subscript) else ""
        self.emit(Call, node, name=named or "", arguments=tuple(arguments), receiver=None, discarded=discarded, result=UNKNOWN, kernel=kernel)
        return derived(*arguments)

    def _is_launch(self: Interpreter, node: ast.Subscript) -> bool:  # type: ignore[misc]
        """Whether ``f[grid](…)`` launches a kernel, and is not a call out of a table of functions."""
        name = dotted(node.value) or ""
        grid = isinstance(node.slice, (ast.Tuple, ast.Lambda)) or (isinstance(node.slice, ast.Name) and "grid" in node.slice.id.lower())
        return grid or "kernel" in name.lower() or (bool(name) and self.project.function(self.source, name) is not None)

    def _ctx_call(self: Interpreter, node: ast.Call, method: str) -> Value:  # type: ignore[misc]
        arguments, exact = self._arguments(node)
        exact = exact and not any(isinstance(a, ast.Starred) and self.value(a.value).items is None for a in node.args)
        for argument in arguments:
            self.touch(argument, "stored", node)
        if method in ("save_for_backward", "save_for_forward"):
            forward = method == "save_for_forward"
            event = self.emit(Save, node, values=tuple(arguments) if exact else None, before=self.saves, forward_mode=forward)
            if not forward:
                self.saves = (*self.saves, event)  # type: ignore[assignment]
        else:
            off = method == "set_materialize_grads" and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value is True)
            self.emit(Mark, node, name=method, values=tuple(arguments), exact=exact, off=off)
        return NONE

    def _builtin(self: Interpreter, node: ast.Call, name: str, arguments: list[Value]) -> Value:  # type: ignore[misc]
        first = arguments[0] if arguments else UNKNOWN
        if name in ("getattr", "hasattr", "setattr", "delattr", "vars") and first.kind == "ctx":
            return self._ctx_reflection(node, name, arguments)
        if name in ("len", "isinstance", "type", "id", "hasattr", "callable"):
            if first.sequence is not None:
                return Value(frozenset({Ref(first.sequence[0], f"{first.sequence[1]}+")}), "other")
            return OTHER
        if name in ("tuple", "list"):
            return (
                replace(first, container=name)
                if first.items is not None or first.container
                else first
                if first.sequence
                else Value(first.all_refs(), container=name)
            )  # type: ignore[arg-type]
        if name in ("any", "all") and self.flag_sink is None:
            return replace(OTHER, refs=frozenset(r for r in first.all_refs() if r.root == "needs"))
        self._touch_all(node, arguments)
        if name == "super":
            self.record.ctx_escapes = True
        if name in ("abs", "sum", "max", "min", "pow") and any(v.is_tensor for v in arguments):
            return self.computed(name, node, tuple(arguments))
        if name in ("int", "float", "bool", "str", "range", "print", "round", "any", "all", "divmod"):
            return OTHER
        return derived(*arguments)

    def _ctx_reflection(self: Interpreter, node: ast.Call, name: str, arguments: list[Value]) -> Value:  # type: ignore[misc]
        attribute = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
        if not isinstance(attribute, str) or name in ("vars", "delattr"):
            self.record.ctx_escapes = True
        elif name == "setattr" and len(arguments) == 3:
            self.remember(attribute, arguments[2])
            self.emit(CtxWrite, node, attribute=attribute, value=arguments[2])
        else:
            self.emit(CtxRead, node, attribute=attribute)
            self.record.optional_reads.add(attribute)
            return self.memory.attributes.get(attribute, UNKNOWN)
        return UNKNOWN

    def _target(self: Interpreter, func: ast.expr, closure: Closure | None) -> Closure | None:  # type: ignore[misc]
        if closure is not None:
            return closure
        name = dotted(func)
        if name is None or name.split(".", 1)[0] in self.scope:
            return None
        return self.project.function(self.source, name)

    def _may_enter(self: Interpreter, target: Closure, arguments: list[Value], base: Value | None) -> bool:  # type: ignore[misc]
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
        outer = (self.scope, self.outer, self.source, self.site, self.via, self.returns, self.globals, list(self.guards))
        self.scope, self.outer, self.source = scope, target.scope, target.source
        self.site, self.via, self.returns, self.globals = self.site or node, (*self.via, getattr(function, "name", "<lambda>")), [], set()
        self.stack.append(id(function))
        if isinstance(function, ast.Lambda):
            self.returns.append(self.use(function.body, "returned"))
        elif self.block(function.body):
            self.returns.append(NONE)
        self.stack.pop()
        returned = self.returns
        self.scope, self.outer, self.source, self.site, self.via, self.returns, self.globals, self.guards = outer
        result = returned[0] if returned else NONE
        for value in returned[1:]:
            result = join(result, value)
        return replace(result, unbound=None) if result.unbound is not None else result

    def _function(self: Interpreter, node: ast.Call, full: str, arguments: list[Value], discarded: bool) -> Value:  # type: ignore[misc]
        last = full.rsplit(".", 1)[-1]
        torch = full.startswith(("torch.", "numpy."))
        if torch and last in names.LIKE:
            for value in arguments:
                self.touch(value, "meta", node)
        else:
            self._touch_all(node, arguments)
        self._function_writes(node, full, last, arguments)
        module = full.rpartition(".")[0]
        if module in names.OPERATION_MODULES and last not in names.NOT_TENSORS and not last[:1].isupper():
            result = self.computed(last, node, tuple(arguments))
        elif _is_python_value(full, module, last):
            result = OTHER
        else:
            result = derived(*arguments)
        kernel = any(part.endswith(_EXTENSION_ENDINGS) for part in full.split(".")[:-1]) or (
            full.startswith("torch.ops.") and not full.startswith("torch.ops.aten")
        )
        self.emit(Call, node, name=full, arguments=tuple(arguments), receiver=None, discarded=discarded, result=result, kernel=kernel)
        return result

    def _function_writes(self: Interpreter, node: ast.Call, full: str, last: str, arguments: list[Value]) -> None:  # type: ignore[misc]
        for keyword in node.keywords:
            if keyword.arg == "out" and full.startswith("torch."):
                value = self.value(keyword.value)
                for part in value.items if value.items is not None else (value,):
                    self.write(part, node, "out=", "out", keyword.value)
        if not arguments or not node.args or isinstance(node.args[0], ast.Starred):
            return
        first, receiver = arguments[0], node.args[0]
        distributed = (full.startswith("torch.distributed.") and "functional" not in full) or full.split(".")[0] in ("dist", "torch_dist")
        if distributed and last in names.COLLECTIVES | names.OUTPUT_FIRST_COLLECTIVES:
            self.write(first, node, last, "collective", receiver)
        elif full.startswith("torch.nn.init."):
            self.write(first, node, last, "init", receiver)
        elif full.startswith("torch.") and (_is_inplace(last) or any(k.arg == "inplace" and _is_true(k.value) for k in node.keywords)):
            self.write(first, node, last, "method", receiver)

    def _method(self: Interpreter, node: ast.Call, func: ast.Attribute, base: Value, arguments: list[Value], discarded: bool) -> Value:  # type: ignore[misc]
        name = func.attr
        if name in names.META_METHODS and base.kind != "ctx":
            self.touch(base, "meta", node)
            return OTHER
        everything = (base, *arguments)
        self.touch(base, "meta" if name in names.LIKE else "operand", node)
        self._touch_all(node, arguments)
        if _is_inplace(name) and base.kind != "other":
            self.write(base, node, name, "method", func.value)
            result = replace(base, kind="tensor", refs=base.refs | derived(*arguments).refs)
            if name in names.NONLINEAR_WRITES and of_grad(base):
                result = self.bend(result, node)
                self._taint(func.value, result)
        elif name in ("requires_grad_", "retain_grad", "share_memory_"):
            result = base
        elif base.container in ("list", "dict") and name in ("append", "extend", "insert", "update", "pop", "get", "items", "values", "keys"):
            result = self._container_method(func, base, name, arguments)
        elif base.kind == "other":
            result = replace(derived(*everything), kind="other") if not base.closure else derived(*everything)
        elif base.kind in ("ctx", "class"):
            result = derived(*arguments)
        elif base.is_tensor or name in names.TENSOR_EVIDENCE or (name in names.MAYBE_COPIES and base.refs):
            result = self.computed(name, node, everything)
        else:
            result = derived(*everything)
        self._function_writes_out(node)
        self.emit(Call, node, name=name, arguments=tuple(arguments), receiver=base, discarded=discarded, result=result)
        return result

    def _function_writes_out(self: Interpreter, node: ast.Call) -> None:  # type: ignore[misc]
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.write(self.value(keyword.value), node, "out=", "out", keyword.value)

    def _container_method(self: Interpreter, func: ast.Attribute, base: Value, name: str, arguments: list[Value]) -> Value:  # type: ignore[misc]
        if name in ("append", "extend", "insert", "update") and isinstance(func.value, ast.Name):
            refs = base.all_refs().union(*(a.all_refs() for a in arguments))
            if any(a.kind == "ctx" for a in arguments):
                self.record.ctx_escapes = True
            self.scope[func.value.id] = Value(refs, "other", container=base.container)
            return NONE
        return Value(base.all_refs())

    def computed(self: Interpreter, name: str, node: ast.expr, operands: tuple[Value, ...]) -> Value:  # type: ignore[misc]
        """Return the result of torch's operation `name`, as a function or a method."""
        first = operands[0] if operands else UNKNOWN
        if name == "matmul" and isinstance(node, ast.BinOp):
            result = self.fresh_tensor(derived(*operands, kind="tensor", dtype=first.dtype))
            self.emit(Call, node, name="matmul", arguments=operands, receiver=None, discarded=False, result=result)
            return result
        if name in names.PYTHON_RESULTS:
            return replace(derived(*operands), kind="other")
        if name in names.VIEWS:
            return replace(first.through("view"), kind="tensor")
        if name in names.MAYBE_COPIES:
            return replace(first.through("maybe"), kind="tensor")
        if name in names.CASTS:
            return self.fresh_tensor(replace(derived(*operands[:1]), kind="tensor", dtype=_cast(name, node, first)))
        if name in names.TUPLE_RESULTS:
            return replace(derived(*operands, kind="tensor"), container="tuple")
        if name in names.VIEW_SEQUENCES:
            return replace(first.through("view"), kind="tensor", container="tuple")
        if name in names.LIKE or name in names.FACTORIES:
            return self.fresh_tensor(Value(kind="tensor", dtype=_made_dtype(name, node, first)))
        dtype = (
            "int" if name in names.INTEGER_RESULTS else "float" if name in names.FLOAT_RESULTS else first.dtype if name in names.SAME_DTYPE else None
        )
        if dtype is None and name in names.SAME_DTYPE:
            dtype = next((o.dtype for o in operands if o.dtype == "float"), None)
        result = self.fresh_tensor(derived(*operands, kind="tensor", dtype=dtype))  # type: ignore[arg-type]
        if name == "clone" and first.has("grad", "is", "view", "maybe"):
            result = replace(result, refs=result.refs | {Ref("cloned", next(r.key for r in result.refs if r.root == "local"))})
        if name in names.PAIR_WITH_INDICES or (name in ("max", "min") and len(operands) > 1):
            result = replace(result, named="", container="tuple", items=(replace(result, dtype=first.dtype), replace(result, dtype="int")))
        bent = operands[:1] if name in ("pow", "float_power") else operands
        return self.bend(result, node) if name in names.NONLINEAR and any(of_grad(o) for o in bent) else result

    def fresh_tensor(self: Interpreter, value: Value) -> Value:  # type: ignore[misc]
        return value.tied(self.new_local()) if value.kind == "tensor" else value

    def bend(self: Interpreter, value: Value, node: ast.expr) -> Value:  # type: ignore[misc]
        """Mark a value as not linear in grad_output; the key tells where."""
        if not self.via:
            self.record.bends[node.lineno] = node
        site = self.site or node
        self.record.bends[site.lineno] = site  # type: ignore[attr-defined]
        return value.tied(Ref("nonlinear", site.lineno, "from"))  # type: ignore[attr-defined]


def _is_python_value(full: str, module: str, name: str) -> bool:
    """Whether a function of torch returns no tensor: a setting, a process group, a dtype."""
    if module == "torch":
        return name in names.NOT_TENSORS
    return full.startswith(names.SUBMODULES_NOT_TENSOR) and not full.startswith(("torch.ops.", "torch.autograd.")) and "all_to_all" not in name


def _is_inplace(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__") and name not in names.INPLACE_NOT_WRITES


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _dtype_word(node: ast.expr | None) -> Dtype:
    word = node.attr if isinstance(node, ast.Attribute) else ""
    if word in ("int8", "int16", "int32", "int64", "long", "int", "uint8", "bool", "short"):
        return "int"
    return "float" if word in ("float32", "float64", "float16", "bfloat16", "float", "half", "double") else None


def _keyword(node: ast.expr, name: str) -> ast.expr | None:
    return next((k.value for k in node.keywords if k.arg == name), None) if isinstance(node, ast.Call) else None


def _cast(name: str, node: ast.expr, first: Value):
    if name in ("float", "half", "bfloat16", "double"):
        return "float"
    if name in ("int", "long", "bool"):
        return "int"
    if name in ("to", "type") and isinstance(node, ast.Call):
        candidates = [*node.args[:2], _keyword(node, "dtype")]
        words = [_dtype_word(c) for c in candidates]
        known = next((w for w in words if w), None)
        return known or (first.dtype if name == "to" and _keyword(node, "dtype") is None and len(node.args) < 1 else None)
    return first.dtype


def _made_dtype(name: str, node: ast.expr, first: Value):
    given = _keyword(node, "dtype")
    if given is not None:
        return _dtype_word(given)
    if name in ("randperm", "tril_indices", "triu_indices", "randint", "randint_like"):
        return "int"
    if name.endswith("_like") or name.startswith("new_"):
        return first.dtype
    return "float" if name in ("rand", "randn", "normal", "linspace") else None


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
