"""Find the code that a recorded name means, in the project or in packages that the user names; nowhere else."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import _compat
from ..battery.discover import import_target, is_function, is_op, owner
from ..battery.targets import Target
from ..capture.recorded import FunctionRecord

_OWN_NAMESPACES = ("aten", "prim", "prims", "c10d", "inductor", "quantized", "profiler")


class NotFoundError(LookupError):
    """Raised for a name that is not looked up, or that means no derivative; the message says why."""


class Resolver:
    """Finds recorded derivatives.

    Args:
        modules: Packages whose code may be imported besides the project's own.
        project: The folder whose code may be imported.
    """

    def __init__(self, modules: Sequence[str] = (), project: Path | None = None) -> None:
        self._modules = tuple(modules)
        self._project = (project or Path.cwd()).resolve()
        self._files: dict[str, Any] = {}
        self._imported = False

    def find(self, record: FunctionRecord) -> Any:
        """Return the Function class, op or torch.library op that a record names.

        Raises:
            NotFoundError: where the name lies outside of the project and the named packages, or means something else.
        """
        if record.kind == "library":
            return self._library_op(record.name)
        if "<locals>" in record.qualname:
            raise NotFoundError(f"{record.name} is local to a function; only the program that recorded it can check it")
        module = self._module(record)
        value: Any = module
        for part in record.qualname.split("."):
            if not part.isidentifier() or part.startswith("__"):
                raise NotFoundError(f"{record.qualname[:80]!r} is not the name of a class")
            value = vars(value).get(part) if hasattr(value, "__dict__") else None
        value = owner(value.__func__ if isinstance(value, staticmethod) else value)
        if not (is_function(value) or is_op(value)):
            raise NotFoundError(f"{record.qualname} in {record.module} is neither a Function class nor an op")
        return value

    def _module(self, record: FunctionRecord) -> Any:
        if self._may_import(record.module):
            for folder in (self._project / "src", self._project):
                if str(folder) not in sys.path:
                    sys.path.insert(0, str(folder))
            return self._guarded(record, lambda: importlib.import_module(record.module))
        path = self._own_file(record.path)
        if path is None:
            raise NotFoundError(
                f"{record.module} is not a module of this project: `--module {record.module.partition('.')[0]}` allows importing it, "
                "or run this in the project's folder"
            )
        if str(path) not in self._files:
            self._files[str(path)] = self._guarded(record, lambda: import_target(Target(record.path, str(path))))
        return self._files[str(path)]

    def _guarded(self, record: FunctionRecord, load: Any) -> Any:
        argv = list(sys.argv)
        try:
            return load()
        except (Exception, SystemExit) as error:
            raise NotFoundError(f"{record.path or record.module} cannot be imported: {type(error).__name__}: {error}") from error
        finally:
            sys.argv = argv

    def _may_import(self, module: str) -> bool:
        if not module or not all(part.isidentifier() for part in module.split(".")) or module == "__main__":
            return False
        if any(module == name or module.startswith(f"{name}.") for name in self._modules):
            return True
        first = module.partition(".")[0]
        spec = importlib.machinery.PathFinder.find_spec(first, [str(self._project / "src"), str(self._project)])
        if spec is None or spec.origin is None:
            return False
        parts = Path(spec.origin).resolve()
        return parts.is_relative_to(self._project) and "site-packages" not in parts.parts

    def _own_file(self, path: str) -> Path | None:
        if not path.endswith(".py") or "\0" in path:
            return None
        found = (self._project / path).resolve()
        return found if found.is_relative_to(self._project) and "site-packages" not in found.parts and found.is_file() else None

    def _library_op(self, name: str) -> Any:
        self._import_named()
        namespace, _, rest = name.partition("::")
        op, _, overload = rest.partition(".")
        if not namespace.isidentifier() or not op.isidentifier() or not (overload or "default").isidentifier() or namespace in _OWN_NAMESPACES:
            raise NotFoundError(f"{name[:80]!r} is not the name of a custom torch.library op")
        if not _compat.is_registered(f"{namespace}::{op}"):
            raise NotFoundError(f"no torch.library op {name} is registered: `--module NAME` imports the package that registers it")
        found = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default", None)
        if not _compat.library_op(found):
            raise NotFoundError(f"{name} is not an overload of a torch.library op")
        return found

    def _import_named(self) -> None:
        if self._imported:
            return
        self._imported = True
        for module in self._modules:
            try:
                importlib.import_module(module)
            except (Exception, SystemExit) as error:
                raise NotFoundError(f"--module {module} cannot be imported: {type(error).__name__}: {error}") from error
