"""What a Function class stands for: itself, a `pb.op`, or a torch.library op; and under which name it is recorded."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import _compat
from ..capture.calls import forward_names, parameter_names, relative_path, resolve_target
from ..capture.library import MODULE, PREFIX, op_behind
from ..capture.recorded import FunctionRecord

GENERATED = "pullback._generated."
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_recorded(function: type[torch.autograd.Function]) -> bool:
    """Whether calls of a class are noted: the classes of a program and its libraries are, those by which torch and this package work are not."""
    module = function.__module__ or ""
    if module == MODULE:
        return function.__name__.startswith(PREFIX)
    if module.startswith(GENERATED):
        return True
    return module.partition(".")[0] not in ("torch", "pullback", "functorch")


def is_own(record: FunctionRecord, modules: Sequence[str] = ()) -> bool:
    """Return whether a derivative is the user's own rather than of an installed package, or belongs to a package of `modules`."""
    if any(record.module == name or record.module.startswith(f"{name}.") for name in modules):
        return True
    return not _INSTALLED & set(Path(record.path).parts)


def record_of(function: type[torch.autograd.Function]) -> FunctionRecord:
    """Return an empty record under the name of what the class stands for; `locate` adds where that is, which takes reading its file."""
    module = function.__module__
    if module == MODULE:
        return _of_library(function)
    if module.startswith(GENERATED):
        return _of_op(function)
    name = f"{module}.{function.__qualname__}"
    return FunctionRecord(name, "function", module, function.__qualname__, live=function)


def locate(record: FunctionRecord) -> None:
    """Add file and line to the record of something that is loaded."""
    if record.live is None or record.path or record.kind == "library":
        return
    location = resolve_target(record.live).location
    if location is not None:
        record.path, record.line = relative_path(location.path), location.line


def argument_names(function: type[torch.autograd.Function], record: FunctionRecord) -> tuple[str, ...]:
    """Return the names of a call's arguments."""
    if record.kind == "library" and record.live is not None:
        return _compat.library_arguments(record.live)
    if record.kind == "op":
        names = parameter_names(record.live) if record.live is not None else forward_names(function)
        return tuple(name.removeprefix("arg_") for name in names)
    return forward_names(function)


def arguments_of(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a torch.library op from those of its Function, which has the keyword arguments and a key set in one last object."""
    return args[:-1], dict(getattr(args[-1], "keyword_only_args", None) or {})


def _of_op(function: type[torch.autograd.Function]) -> FunctionRecord:
    generated = sys.modules.get(function.__module__)
    module = function.__module__.removeprefix(GENERATED).rpartition(".")[0]
    identity = getattr(generated, "defined_at", None)
    qualname = identity or function.__qualname__
    live = _live_op(module, qualname, generated) if identity else None
    return FunctionRecord(f"{module}.{qualname}", "op", module, qualname, live=live)


def _live_op(module: str, qualname: str, generated: Any) -> Any:
    """Return the op by its name; where it is local to a function, the generated function behind it."""
    value: Any = sys.modules.get(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    if value is not None and hasattr(value, "__pullback__"):
        return value
    return vars(generated).get(re.sub(r"\W", "_", qualname.rpartition(".")[2]))


def _of_library(function: type[torch.autograd.Function]) -> FunctionRecord:
    op = op_behind(function)
    name = _compat.library_op(op.overload) if op is not None else function.__name__.removeprefix(PREFIX)
    return FunctionRecord(name, "library", "", name, live=op.overload if op is not None else None)
