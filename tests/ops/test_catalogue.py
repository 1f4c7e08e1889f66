"""Every op of pullback.ops: its names, its docstring, what it declares."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pullback as pb

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ["Math", "Args", "Returns", "Saves", "Supports", "Raises", "Example", "References"]
HELPERS = {"KernelError", "compile_kernels", "probe_products", "tune_allocator"}
OPS = [name for name in pb.ops.__all__ if name not in HELPERS]

COLLISIONS = """
import importlib, sys, types
import pullback.ops
for name in sys.argv[1:]:
    importlib.import_module(name)
for _ in range(2):
    for name in pullback.ops.__all__:
        value = getattr(pullback.ops, name)
        if isinstance(value, types.ModuleType) or not callable(value):
            print(name, "is", value)
"""


def modules():
    return [m.name for m in pkgutil.walk_packages(pb.ops.__path__, "pullback.ops.") if "triton" not in m.name and ".kernels." not in m.name]


def test_every_name_is_its_op_after_every_module_is_imported():
    run = subprocess.run([sys.executable, "-c", COLLISIONS, *modules()], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (0, ""), run.stdout + run.stderr


def test_no_module_of_the_package_is_named_like_an_op():
    own = {name.removeprefix("pullback.ops.").partition(".")[0] for name in modules()}
    assert own & set(pb.ops.__all__) == set()


def test_only_what_is_public_is_listed():
    _ = pb.ops.relu
    assert [name for name in dir(pb.ops) if not name.startswith("__")] == sorted(pb.ops.__all__)


def test_importing_the_package_imports_no_torch():
    code = "import sys, pullback.ops; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout.strip() == "False"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'swihs'"):
        pb.ops.swihs  # noqa: B018


@pytest.mark.parametrize("name", OPS)
def test_docstring_has_every_section_in_order(name):
    doc = inspect.getdoc(getattr(pb.ops, name)) or ""
    assert doc.startswith("Return "), doc.partition("\n")[0]
    found = [line[:-1] for line in doc.splitlines() if line[:-1] in SECTIONS and line.endswith(":")]
    assert found == SECTIONS


@pytest.mark.parametrize("name", pb.ops.__all__)
def test_example_runs(name):
    value = getattr(pb.ops, name)
    finder = doctest.DocTestFinder(recurse=False)
    with torch.random.fork_rng():
        for example in finder.find(value, name, globs={}):
            outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
            assert outcome.failed == 0
            assert outcome.attempted > 0 or name in HELPERS, f"{name} has no example"


@pytest.mark.parametrize("name", [name for name in OPS if hasattr(getattr(pb.ops, name), "__pullback__")])
def test_declares_a_reference_and_samples(name):
    op = getattr(pb.ops, name)
    home = importlib.import_module(op.__module__)
    assert op.__pullback__["reference"] is getattr(home, f"{name}_reference")
    assert list(op.__pullback__["samples"]())
