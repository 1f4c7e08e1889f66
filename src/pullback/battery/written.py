"""A Function's samples as a pytest file that a person can read and edit."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import math
import os
import pprint
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..capture.calls import resolve_target
from ..capture.case import Case
from ..capture.library import library_op, stand_in
from ..declare import KEYS, Declaration, declaration_of
from .discover import CASES, Loaded, Subject

WRITTEN_OUT = 256
"""How many elements of a tensor are written into the file; larger ones go into a file beside it."""
_WIDTH = 120
_MODULES = (torch, torch.nn.functional, torch.nn, math)
_DEFAULTS = {"seed": 0, "orders": 1, "thorough": False, "dtype": None, "device": None, "select": [], "ignore": []}


class Inexpressible(Exception):
    """Raised for a value that cannot be written as code."""


def importable(value: Any) -> tuple[str, str] | None:
    """Return module and qualified name by which a class, a function or an op of torch.library can be imported, or None."""
    op = library_op(value)
    named = value if op is None else stand_in(op)
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


@dataclass(slots=True)
class Writer:
    """Writes values as code, and remembers what that code needs.

    Args:
        imports: Names to import, by module.
        large: Tensors that are kept beside the file, by name.
        lines: Assignments of tensors that the code refers to.
        names: Variables of tensors by identity.
    """

    imports: dict[str, set[str]] = field(default_factory=dict)
    large: dict[str, Tensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def value(self, value: Any, name: str) -> str:
        """Return the code of a value; tensors become variables called `name`, or after it.

        Raises:
            Inexpressible: for an object without a literal or a name to import.
        """
        if isinstance(value, Tensor):
            return self._variable(value, name)
        if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes):
            return repr(value)
        if isinstance(value, (float, complex)) and type(value) in (float, complex):
            return _number(value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, enum.Enum):
            return f"{self.name(type(value))}.{value.name}"
        if isinstance(value, slice):
            return f"slice({', '.join(self.value(part, name) for part in (value.start, value.stop, value.step))})"
        if type(value) in (list, tuple, torch.Size, dict):
            return self._container(value, name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [f"{f.name}={self.value(getattr(value, f.name), f'{name}_{f.name}')}" for f in dataclasses.fields(value) if f.init]
            return f"{self.name(type(value))}({', '.join(parts)})"
        return self.name(value)

    def name(self, value: Any) -> str:
        """Return the name of a class or function, which will be imported.

        Raises:
            Inexpressible: where it has none.
        """
        known = next((f"{m.__name__}.{value.__name__}" for m in _MODULES if getattr(m, getattr(value, "__name__", ""), None) is value), None)
        if known is not None:
            return known
        home = importable(value) if callable(value) else None
        if home is None:
            raise Inexpressible(f"{type(value).__name__} {getattr(value, '__qualname__', '')}".strip())
        module, name = home
        if module == "builtins":
            return name
        self.imports.setdefault(module, set()).add(name.partition(".")[0])
        return name

    def _container(self, value: Any, name: str) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.value(k, name)}: {self.value(v, f'{name}_{k}')}" for k, v in value.items()) + "}"
        parts = [self.value(part, f"{name}_{i}") for i, part in enumerate(value)]
        if isinstance(value, list):
            return f"[{', '.join(parts)}]"
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def _variable(self, tensor: Tensor, name: str) -> str:
        if id(tensor) not in self.names:
            wanted = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "tensor"
            taken = set(self.names.values())
            unique = wanted if wanted not in taken else next(f"{wanted}_{i}" for i in range(2, 1000) if f"{wanted}_{i}" not in taken)
            code = self._tensor(tensor, unique)
            self.names[id(tensor)] = unique
            self.lines.append(f"{unique} = {code}")
        return self.names[id(tensor)]

    def _tensor(self, tensor: Tensor, name: str) -> str:
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.__dict__ or tensor.is_quantized:
            raise Inexpressible(f"{type(tensor).__name__} with attributes or a layout of its own")
        code = self._data(tensor.detach(), name)
        if isinstance(tensor, torch.nn.Parameter):
            return f"torch.nn.Parameter({code}{'' if tensor.requires_grad else ', requires_grad=False'})"
        return f"{code}.requires_grad_()" if tensor.requires_grad else code

    def _data(self, data: Tensor, name: str) -> str:
        if 0 in data.stride() and data.numel() > 1:
            raise Inexpressible("expanded tensor")
        device = "" if data.device.type == "cpu" else f", device={str(data.device)!r}"
        if data.numel() == 0:
            code = f"torch.empty({tuple(data.shape)}, dtype={data.dtype}{device})"
        elif data.numel() <= WRITTEN_OUT:
            code = f"torch.tensor({_rows(data.resolve_conj().resolve_neg())}, dtype={data.dtype}{device})"
        else:
            key = f"{name}_{len(self.large)}"
            self.large[key] = data.cpu().clone(memory_format=torch.contiguous_format)
            code = f"DATA[{key!r}]" + (f".to({str(data.device)!r})" if device else ".clone()")
        if data.is_contiguous():
            return code
        return f"torch.empty_strided({tuple(data.shape)}, {data.stride()}, dtype={data.dtype}{device}).copy_({code})"


def _number(value: complex) -> str:
    if isinstance(value, complex):
        return repr(value) if math.isfinite(value.real) and math.isfinite(value.imag) else f"complex({_number(value.real)}, {_number(value.imag)})"
    if math.isnan(value):
        return "math.nan"
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}math.inf"


class _Literal:
    """A number that pprint writes as it stands."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _rows(data: Tensor) -> str:
    def written(value: Any) -> Any:
        if isinstance(value, list):
            return [written(part) for part in value]
        return _Literal(_number(value)) if isinstance(value, (float, complex)) else value

    return pprint.pformat(written(data.tolist()), width=_WIDTH, compact=True).replace("\n", "\n    ")


@dataclass(frozen=True, slots=True)
class TestFile:
    """A test file.

    Args:
        name: Its file's name without the ending.
        source: Its text; empty where the target itself cannot be imported.
        large: Tensors to keep beside it, in ``NAME.pt``.
    """

    __test__ = False

    name: str
    source: str
    large: Mapping[str, Tensor]


def test_file(loaded: Loaded, subject: Subject, cases: Sequence[Case], settings: Mapping[str, Any], folder: Path) -> TestFile:
    """Return a pytest file with one test for each sample.

    Args:
        loaded: The file that was checked.
        subject: The Function in it.
        cases: Its samples.
        settings: The battery's settings that are not the default ones.
        folder: Where the test file will lie.
    """
    writer = Writer()
    name = "test_" + "".join(c if c.isalnum() else "_" for c in subject.name.lower())
    try:
        target = writer.name(subject.target)
    except Inexpressible:
        return TestFile(name, "", {})
    given: list[int] = []
    tests = [_test(writer, case, target, given, settings) for case in cases]
    tests = list(dict.fromkeys(tests))
    if given:
        for source in loaded.sources:
            writer.imports.setdefault(source.__name__, set()).add(CASES)
        tests.insert(0, _given(target, settings.get("seed", 0)))
    body = "\n\n\n".join(tests)
    return TestFile(name, f"{_head(loaded, subject, writer, body, name, folder)}\n\n\n{body}\n", writer.large)


test_file.__test__ = False  # type: ignore[attr-defined]


def _test(writer: Writer, case: Case, target: str, given: list[int], settings: Mapping[str, Any]) -> str:
    writer.lines, writer.names = [], {}
    before = set(writer.large)
    try:
        code = _case(writer, case, target)
        lines = [*writer.lines, f"return {code}"]
    except Inexpressible as error:
        for key in writer.large.keys() - before:
            del writer.large[key]
        if case.origin == "searched":
            seed = f", seed={settings['seed']}" if settings.get("seed") else ""
            return (
                f"def test_searched_samples(pullback_check):\n    # A sample holds what cannot be written down ({error}): it is searched for again.\n"
                f"    pullback_check({target}{seed})"
            )
        given.append(case.index)
        lines = [f"return given({case.index})  # holds what cannot be written down: {error}"]
    body = "\n".join(f"    {line}" for line in lines)
    return f"@pytest.mark.pullback{_options(settings)}\ndef test_sample_{case.index}():\n{body}"


def _options(settings: Mapping[str, Any]) -> str:
    parts = [f"{key}={value!r}" for key, value in settings.items() if key in _DEFAULTS and value != _DEFAULTS[key]]
    return f"({', '.join(parts)})" if parts else ""


def _case(writer: Writer, case: Case, target: str) -> str:
    names = resolve_target(case.target).positional(len(case.args))
    parts = [target, *(writer.value(arg, name) for name, arg in zip(names, case.args, strict=True))]
    parts += [f"{name}={writer.value(value, name)}" for name, value in case.kwargs.items()]
    code = f"pb.case({', '.join(parts)})" + _declared(writer, case)
    extra = {key: getattr(case, key) for key in ("invented", "only") if getattr(case, key)}
    if case.origin == "searched" or extra:
        code = f"replace({code}, {', '.join(f'{key}={value!r}' for key, value in {'origin': case.origin, **extra}.items())})"
    return code


def _declared(writer: Writer, case: Case) -> str:
    owner = getattr(case.target, "__self__", case.target)
    own = declaration_of(owner if isinstance(owner, type) else case.target)
    differing = {key: getattr(case.declaration, key) for key in KEYS if key != "samples" and getattr(case.declaration, key) != getattr(own, key)}
    if any(value == getattr(Declaration(), key) for key, value in differing.items()):
        raise Inexpressible("declaration that takes something back")
    reference = differing.pop("reference", None)
    code = f".against({writer.name(reference)})" if reference is not None else ""
    if differing:
        code += f".declare({', '.join(f'{key}={writer.value(value, key)}' for key, value in differing.items())})"
    return code


def _given(target: str, seed: int) -> str:
    return (
        f"def given(number):\n    random.seed({seed})\n    torch.manual_seed({seed})\n"
        f"    return [case for case in {CASES}() if getattr(case.target, '__self__', case.target) is {target}][number]"
    )


def _head(loaded: Loaded, subject: Subject, writer: Writer, body: str, name: str, folder: Path) -> str:
    where = os.path.relpath(subject.path or loaded.module.__file__ or "", Path.cwd())
    roots = _roots([sys.modules[m] for m in writer.imports if m in sys.modules], folder)
    standard = [m for m, used in (("math", "math."), ("random", "random.seed")) if used in body]
    standard += ["sys"] if roots else []
    lines = [f'"""{subject.short} of {where} on the samples of `pullback check` (pullback {__version__})."""', ""]
    lines += [f"import {m}" for m in standard]
    lines += ["from dataclasses import replace"] if "replace(" in body else []
    lines += ["from pathlib import Path"] if roots or writer.large else []
    lines += ["", "import pytest", "import torch", "", "import pullback as pb", ""]
    lines += [f"sys.path.insert(0, str(Path(__file__).resolve().parent / {root!r}))" for root in roots]
    end = "  # noqa: E402" if roots else ""
    lines += [f"from {m} import {', '.join(sorted(names))}{end}" for m, names in sorted(writer.imports.items())]
    if writer.large:
        lines += ["", f'DATA = torch.load(Path(__file__).with_name("{name}.pt"), weights_only=True)']
    unused = [line for line, used in (("import pytest", "pytest."), ("import torch", "torch."), ("import pullback as pb", "pb.")) if used not in body]
    if writer.large:
        unused = [line for line in unused if line != "import torch"]
    return "\n".join(line for line in lines if line not in unused).replace("\n\n\n", "\n\n")


def _roots(modules: Iterable[types.ModuleType], folder: Path) -> list[str]:
    """Return the folders from which modules are imported, relative to the test file's; installed ones need none."""
    found: list[str] = []
    for module in modules:
        top = importlib.import_module(module.__name__.partition(".")[0]) if "." in module.__name__ else module
        file = Path(top.__file__) if top.__file__ else None
        if file is None or "site-packages" in file.parts:
            continue
        root = file.parent.parent if file.name == "__init__.py" else file.parent
        found.append(os.path.relpath(root.resolve(), folder.resolve()))
    return list(dict.fromkeys(found))
