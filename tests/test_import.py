"""What importing pullback costs, what it drags in, and that its names stay its names."""

import importlib
import os
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import pullback

ROOT = Path(__file__).resolve().parents[1]
PUBLIC_MODULES = ("testing", "ops")
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}

BESIDES = """
import sys
import collections.abc, importlib, typing
before = set(sys.modules)
import {module}
print(*sorted(set(sys.modules) - before))
"""

LOADED = """
import sys
import {module}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""

COLLISIONS = """
import importlib, sys, types
import pullback
for name in sys.argv[1:]:
    importlib.import_module(name)
for _ in range(2):
    for name in pullback.__all__:
        value = getattr(pullback, name)
        if isinstance(value, types.ModuleType):
            print(name, "became the module", value.__name__)
        if name != "__version__" and not callable(value):
            print(name, "cannot be called:", value)
"""


def python(source: str, *args: str) -> str:
    run = subprocess.run([sys.executable, "-c", source, *args], cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def submodules() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(pullback.__path__, "pullback.") if module.name != "pullback.__main__"]


def test_import_runs_two_files_and_nothing_else():
    assert python(BESIDES.format(module="pullback")).split() == ["__future__", "pullback", "pullback._lazy"]
    assert "torch" in python(BESIDES.format(module="pullback.battery.check")).split()


@pytest.mark.parametrize(
    "module", ["pullback", "pullback.report", "pullback.report.codes", "pullback.declare", "pullback.linter.engine", "pullback.cli.main"]
)
def test_import_leaves_torch_alone(module):
    loaded = python(LOADED.format(module=module)).split()
    assert "pullback" in loaded
    assert "torch" not in loaded


@pytest.mark.skipif(not (ROOT / "src" / "_pullback_pytest.py").exists(), reason="no pytest plugin yet")
def test_pytest_plugin_imports_nothing_of_pullback():
    assert "pullback" not in python(LOADED.format(module="_pullback_pytest")).split()


def test_every_public_name_resolves_twice_after_every_submodule_is_imported():
    assert python(COLLISIONS, *submodules()) == ""


def test_no_submodule_shares_a_name_with_a_public_function():
    modules = {name.removeprefix("pullback.").partition(".")[0] for name in submodules()}
    assert modules & set(pullback.__all__) == set()


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        pullback.chekc  # noqa: B018


def test_dir_lists_every_public_name():
    assert set(pullback.__all__) <= set(dir(pullback))
    assert {name for name in dir(pullback) if not name.startswith("__")} <= {*pullback.__all__, *PUBLIC_MODULES}


def test_public_modules_are_modules():
    present = [name for name in PUBLIC_MODULES if importlib.util.find_spec(f"pullback.{name}")]
    assert present
    assert all(isinstance(getattr(pullback, name), types.ModuleType) for name in present)


def test_missing_torch_is_explained():
    source = """
import sys
sys.modules["torch"] = None
import pullback
try:
    pullback.check
except ImportError as error:
    print(error)
"""
    assert "pip install 'pullback[torch]'" in python(source)


def test_layers_are_kept():
    run = subprocess.run([Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout
