"""Import a file and find every custom derivative in it, and the cases that its author gives."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import random
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..authoring.keeping import Sample
from ..capture.calls import resolve_target
from ..capture.case import Case
from ..capture.library import library_op
from ..declare import ATTRIBUTE, Declaration, DeclarationError, declaration_of
from .targets import Target

CASES = "pullback_cases"


class UnknownNameError(ValueError):
    """Raised for a name after ``::`` that the file does not define; the message suggests near ones."""


class CasesError(Exception):
    """Raised when `pullback_cases()` raises or yields something else than cases; the message names its file.

    Args:
        message: What went wrong.
        code: ``"PB001"`` where it raised, ``"PB005"`` where what it says is wrong.
        path: Its file.
        line: The line in that file.
    """

    def __init__(self, message: str, code: str, path: str | None, line: int | None = None) -> None:
        super().__init__(message)
        self.code, self.path, self.line = code, path, line


@dataclass(frozen=True, slots=True)
class Subject:
    """One custom derivative that can be checked.

    Args:
        name: Qualified name, ``"pkg.mod.Class"``.
        short: The name within its file, which goes after ``::``.
        target: The Function class, the op, or the callable of a case.
        path: The file that defines it, as far as it is known.
        line: The line of its definition.
        skip: Why it cannot be checked; empty where it can.
    """

    name: str
    short: str
    target: Any
    path: str | None = None
    line: int | None = None
    skip: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file that was imported: its subjects, and where their cases come from.

    Args:
        module: The file as a module.
        subjects: What can be checked.
        sources: Modules with a `pullback_cases()`.
        configured: `[tool.pullback.declare]`.
        whole: Whether everything in the file was asked for, rather than some names.
        wanted: Names that were asked for and that only a case can explain.
    """

    module: types.ModuleType
    subjects: tuple[Subject, ...]
    sources: tuple[types.ModuleType, ...] = ()
    configured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    whole: bool = True
    wanted: tuple[str, ...] = ()

    def subject(self, name: str) -> Subject:
        """Return the subject of that qualified name."""
        return next(s for s in self.subjects if s.name == name)


def load(target: Target, *, cases: str | None = None, configured: Mapping[str, Mapping[str, Any]] | None = None) -> Loaded:
    """Import a target as pytest does and return what can be checked in it.

    Args:
        target: The file or module.
        cases: A file with another `pullback_cases()`.
        configured: `[tool.pullback.declare]`.

    Raises:
        UnknownNameError: for a name after ``::`` that is not there.
        BaseException: whatever the import of the file raises.
    """
    module = import_target(target)
    others = [import_target(Target(cases, str(Path(cases).resolve())))] if cases else []
    sources = tuple(source for source in (module, *others) if hasattr(source, CASES))
    named = {name: lookup(module, name) for name in target.names}
    found = [subject for subject in named.values() if subject] if named else list(defined_in(module))
    wanted = tuple(name for name, subject in named.items() if subject is None)
    if wanted and not sources:
        raise _unknown(module, wanted[0], found)
    return Loaded(module, tuple(found), sources, configured or {}, whole=not named, wanted=wanted)


def with_subjects_of_cases(loaded: Loaded, seed: int) -> Loaded:
    """Return what was loaded together with the targets that only a case names: all of them, or those that were asked for by name.

    Raises:
        CasesError: if `pullback_cases()` fails.
        UnknownNameError: for a name that neither the file nor a case knows.
    """
    if not loaded.whole and not loaded.wanted:
        return loaded
    more = {subject.short: subject for subject in _more_subjects(loaded, seed)}
    if loaded.whole:
        return replace(loaded, subjects=(*loaded.subjects, *more.values()))
    missing = [name for name in loaded.wanted if name not in more]
    if missing:
        raise _unknown(loaded.module, missing[0], more.values())
    return replace(loaded, subjects=(*loaded.subjects, *(more[name] for name in loaded.wanted)))


def import_target(target: Target) -> types.ModuleType:
    """Import a file under the name that it has in its package, with its folder first on `sys.path` and `sys.argv` set to it."""
    sys.argv = [target.path]
    if target.module is not None:
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(target.module)
    path = Path(target.path)
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():
        name = folder.name if name == "__init__" else f"{folder.name}.{name}"
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if "." in name:
        module = importlib.import_module(name)
        if Path(module.__file__ or "").resolve() != path:
            raise ImportError(f"{name} was imported from {module.__file__}, not from {path}: another package of this name comes first")
        return module
    return _import_file(path, name if name not in sys.modules else f"{name}_checked")


def _import_file(path: Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def defined_in(module: types.ModuleType) -> Iterator[Subject]:
    """Yield every Function and op that `module` itself defines, in order of definition; imported ones are not its own."""
    seen: set[int] = set()
    for short, value in _namespace(vars(module), module.__name__):
        if id(value) in seen or _module_of(value) != module.__name__:
            continue
        if is_op(value) or is_library_op(value) or (is_function(value) and value.forward is not torch.autograd.Function.forward):
            seen.add(id(value))
            yield replace(_subject(value, short), name=f"{module.__name__}.{short}")


def _namespace(names: Mapping[str, Any], module: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in list(names.items()):
        yield prefix + name, value
        if isinstance(value, type) and value.__module__ == module and value.__qualname__ == prefix + name:
            yield from _namespace(vars(value), module, f"{prefix}{name}.")


def is_function(value: Any) -> bool:
    """Return whether `value` is a subclass of `torch.autograd.Function` (not itself)."""
    return isinstance(value, type) and issubclass(value, torch.autograd.Function) and value is not torch.autograd.Function


def is_op(value: Any) -> bool:
    """Return whether `value` is an op: an object with a `__pullback__` mapping and the Function it stands for."""
    return not isinstance(value, type) and isinstance(getattr(value, ATTRIBUTE, None), Mapping) and hasattr(value, "function")


def is_library_op(value: Any) -> bool:
    """Return whether `value` is an op of torch.library with a derivative of its own."""
    op = library_op(value)
    return op is not None and op.backward is not None


def _module_of(value: Any) -> str | None:
    op = library_op(value)
    return getattr(value if op is None else op.forward, "__module__", None)


def lookup(module: types.ModuleType, name: str) -> Subject | None:
    """Return the subject that ``FILE::name`` means, also where it was imported from elsewhere; None where the name is nothing to check."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    value = owner(value)
    if not (is_function(value) or is_op(value) or (callable(value) and not isinstance(value, type))):
        return None
    return _subject(value, name)


def _unknown(module: types.ModuleType, name: str, others: Iterable[Subject]) -> UnknownNameError:
    known = list(dict.fromkeys(subject.short for subject in (*defined_in(module), *others)))
    near = difflib.get_close_matches(name, known, n=3) or known[:5]
    hint = f" Did you mean {', '.join(near)}?" if near else " It defines no custom Function."
    if hasattr(module, name):
        return UnknownNameError(
            f"{module.__file__}::{name} is a {type(getattr(module, name)).__name__}; a Function, an op or a callable can be checked.{hint}"
        )
    return UnknownNameError(f"{module.__file__} defines no {name!r}.{hint}")


def owner(target: Any) -> Any:
    """Return the Function class for its `apply`, and any other target itself."""
    self = getattr(target, "__self__", None)
    return self if is_function(self) and getattr(target, "__name__", "") == "apply" else target


def _subject(value: Any, short: str) -> Subject:
    resolved = resolve_target(value)
    place = resolved.location
    return Subject(resolved.subject, short, value, place.path if place else None, place.line if place else None, _why_not(value))


def _why_not(value: Any) -> str:
    if not is_function(value):
        return ""
    base = torch.autograd.Function
    if value.backward is base.backward and getattr(value, "vjp", None) is getattr(base, "vjp", None) and value.jvp is base.jvp:
        return "it defines neither backward nor jvp"
    return ""


def seed_everything(seed: int) -> None:
    """Seed Python's, torch's and, where it is imported, numpy's generator."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def given_cases(loaded: Loaded, seed: int) -> list[Case]:
    """Return all cases of `pullback_cases()`, called with the generators seeded.

    Raises:
        CasesError: if it raises or yields something else than cases.
    """
    cases: list[Case] = []
    for module in loaded.sources:
        seed_everything(seed)
        cases += _cases_of(getattr(module, CASES), f"{CASES}()", module.__file__)
    return cases


def _cases_of(function: Any, label: str, path: str | None, target: Any = None) -> list[Case]:
    """Call `function` and return its cases; where `target` is given a tuple or a `pb.sample` stands for its arguments."""
    cases: list[Case] = []
    try:
        for item in function() or ():
            if target is not None and isinstance(item, (tuple, Sample)):
                args, kwargs = (item.args, item.kwargs) if isinstance(item, Sample) else (item, {})
                item = Case(target, args, kwargs, declaration_of(target), origin="case")
            if not isinstance(item, Case):
                message = f"{label} yielded a {type(item).__name__}; it must yield pb.case(target, *arguments)"
                raise CasesError(message, "PB005", path, getattr(getattr(function, "__code__", None), "co_firstlineno", None))
            cases.append(item)
    except CasesError:
        raise
    except Exception as error:
        line = (
            next((f.lineno for f in reversed(inspect.getinnerframes(error.__traceback__)) if f.filename == path), None)
            if error.__traceback__
            else None
        )
        code = "PB005" if isinstance(error, DeclarationError) else "PB001"
        raise CasesError(f"{label} raised {type(error).__name__}: {error}", code, path, line) from error
    return cases


def cases_for(loaded: Loaded, subject: Subject, seed: int) -> list[Case]:
    """Return the numbered cases that the author gives for one subject: from `pullback_cases()`, else from its declared samples."""
    cases = [case for case in given_cases(loaded, seed) if _subject_of(case, loaded.subjects) == subject.name]
    declaration = declared(loaded, subject)
    if not cases and declaration.samples is not None:
        seed_everything(seed)
        cases = _cases_of(declaration.samples, f"the samples of {subject.short}", subject.path, subject.target)
    configured = _configured(loaded, subject)
    return [replace(case, index=i, declaration=_under(case.declaration, configured)) for i, case in enumerate(cases)]


def declared(loaded: Loaded, subject: Subject) -> Declaration:
    """Return what the subject's `__pullback__` and the project's configuration declare.

    Raises:
        DeclarationError: for a malformed declaration.
    """
    return declaration_of(subject.target, configured=loaded.configured, subject=subject.name)


def _configured(loaded: Loaded, subject: Subject) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, own in loaded.configured.items():
        if subject.name == name or subject.name.endswith("." + name):
            values |= own
    return values


def _under(declaration: Declaration, configured: Mapping[str, Any]) -> Declaration:
    """Lay the project's configuration under what a case says itself: it fills only what the case leaves open."""
    return Declaration().update("[tool.pullback.declare]", **configured).update("pb.case", **declaration.stated)


def _more_subjects(loaded: Loaded, seed: int) -> Sequence[Subject]:
    """Return the targets of cases that the file does not define itself: a case names them."""
    known = {subject.name for subject in loaded.subjects}
    more: dict[str, Subject] = {}
    for case in given_cases(loaded, seed):
        name = _subject_of(case, loaded.subjects)
        if name not in known:
            more.setdefault(name, _subject(owner(case.target), name.removeprefix(f"{loaded.module.__name__}.")))
    return list(more.values())


def _subject_of(case: Case, subjects: Sequence[Subject]) -> str:
    target = owner(case.target)
    return next((s.name for s in subjects if s.target is target), resolve_target(target).subject)
