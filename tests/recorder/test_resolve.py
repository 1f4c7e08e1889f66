"""A name in a recording leads to derivatives of the project, and to nothing else."""

import sys
import textwrap

import pytest
import torch

from pullback.capture.recorded import FunctionRecord
from pullback.recorder.replay import check_recording
from pullback.recorder.resolve import NotFoundError, Resolver

SOURCE = """
    import os
    import torch
    import pullback as pb

    run = os.system
    loaded = torch.autograd.Function

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

        class Inner:
            pass

    @pb.op
    def double(x):
        return x * 2

    @double.vjp("x")
    def _(dy):
        return dy * 2

    def plain(x):
        return x
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(SOURCE))
    (tmp_path / "script.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path, name
    for loaded in (name, "script"):
        sys.modules.pop(loaded, None)


def record(module, qualname, path="", kind="function"):
    return FunctionRecord(f"{module}.{qualname}", kind, module, qualname, path)


def test_functions_and_ops_of_the_project_are_found(project):
    _, name = project
    resolver = Resolver()
    assert issubclass(resolver.find(record(name, "Twice")), torch.autograd.Function)
    assert callable(resolver.find(record(name, "double", kind="op")))


def test_a_script_is_found_by_its_file(project):
    found = Resolver().find(record("__main__", "Twice", "script.py"))
    assert (found.__name__, found.__module__) == ("Twice", "script")


@pytest.mark.parametrize(
    ("module", "qualname", "message"),
    [
        ("os", "system", "not a module of this project"),
        ("subprocess", "run", "not a module of this project"),
        ("", "Twice", "not a module of this project"),
        ("OWN; import os", "Twice", "not a module of this project"),
        ("OWN", "run", "neither a Function class nor an op"),
        ("OWN", "os.system", "neither a Function class nor an op"),
        ("OWN", "plain", "neither a Function class nor an op"),
        ("OWN", "Twice.Inner", "neither a Function class nor an op"),
        ("OWN", "Gone", "neither a Function class nor an op"),
        ("OWN", "loaded", "neither a Function class nor an op"),
        ("OWN", "Twice.__class__", "not the name of a class"),
        ("OWN", "__builtins__.eval", "not the name of a class"),
        ("OWN", "make.<locals>.F", "local to a function"),
        ("torch.utils.checkpoint", "CheckpointFunction", "not a module of this project"),
    ],
)
def test_other_names_are_refused(project, module, qualname, message):
    _, name = project
    with pytest.raises(NotFoundError, match=message):
        Resolver().find(record(module.replace("OWN", name), qualname))


@pytest.mark.parametrize("path", ["../outside.py", "/etc/passwd", "gone.py", "notes.txt", "a\0.py"])
def test_other_files_are_refused(project, path):
    folder, _ = project
    (folder.parent / "outside.py").write_text("raise SystemExit('ran')")
    with pytest.raises(NotFoundError, match="not a module of this project"):
        Resolver().find(record("__main__", "Twice", path))


def test_named_packages_are_imported():
    found = Resolver(["torch.utils.checkpoint"]).find(record("torch.utils.checkpoint", "CheckpointFunction"))
    assert found is torch.utils.checkpoint.CheckpointFunction


def test_a_module_that_fails_to_import_says_so(project):
    folder, _ = project
    (folder / "failing.py").write_text("raise SystemExit(3)")
    with pytest.raises(NotFoundError, match="SystemExit: 3"):
        Resolver().find(record("__main__", "Twice", "failing.py"))


@pytest.mark.parametrize(
    "name", ["aten::add.Tensor", "load_library::x", "__class__::mro", "no_such::op", "a.b::c", "profiler::_record_function_enter"]
)
def test_other_library_ops_are_refused(name):
    with pytest.raises(NotFoundError):
        Resolver().find(record("", name, kind="library"))


def test_what_is_not_found_is_skipped_with_the_reason(project):
    from pullback.capture.recorded import Recording, Signature

    entry = record("__main__", "Gone", "script.py")
    entry.signatures.append(Signature(("x",), calls=1))
    report = check_recording(Recording([entry]), resolver=Resolver())
    assert not report.ok
    (run,) = report.checks
    assert run.status == "skipped"
