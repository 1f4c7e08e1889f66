"""Abstract calls: torch operations, ctx methods, in-place writes, and functions of the project, which are entered."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from . import torch_names as names
from .entering import Entering
from .events import Call, CtxRead, CtxWrite, Mark, Save
from .project import dotted
from .syntax import of_grad
from .values import NONE, OTHER, UNKNOWN, Ref, Value, derived

if TYPE_CHECKING:
    from .interpret import Interpreter

_EXTENSION_ENDINGS = ("_C", "_cuda", "_ext", "_cpp", "_backend", "cuda_lib")


class Calls(Entering):
    """The part of the interpreter that reads calls."""

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
        if target is not None and exact and self._may_enter(target):
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


def _is_python_value(full: str, module: str, name: str) -> bool:
    """Whether a function of torch returns no tensor: a setting, a process group, a dtype."""
    if module == "torch":
        return name in names.NOT_TENSORS
    return full.startswith(names.SUBMODULES_NOT_TENSOR) and not full.startswith(("torch.ops.", "torch.autograd.")) and "all_to_all" not in name


def _is_inplace(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__") and name not in names.INPLACE_NOT_WRITES


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
