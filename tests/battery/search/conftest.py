"""The Functions of `functions_*.py`, and what the search finds for them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from pullback.battery.search import find_inputs
from pullback.battery.search.attempt import named_arguments
from pullback.battery.search.syntax import read_function

HERE = Path(__file__).parent
SEVERE = ("no gradient for", "gradient of", "outputs are constant", "outputs are empty", "another draw", "two runs")


def load_functions() -> list[type]:
    """Return every Function with an `expects` in the files beside this one."""
    found: list[type] = []
    for path in sorted(HERE.glob("functions_*.py")):
        name = f"search_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        found += [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, torch.autograd.Function) and "expects" in vars(v)]
    return found


def differentiated_names(function, case) -> set[str]:
    """Return the parameters of which the case differentiates a tensor."""
    named = named_arguments(case.args, read_function(function).slots)
    return {path.partition("[")[0] for path, value in named if isinstance(value, torch.Tensor) and value.requires_grad}


def _shortcoming(function, result) -> str:
    """Return why a result is not meaningful, empty if it is."""
    if result.status != "found":
        return f"{function.__name__}: {result.status}: {result.reason}"
    missing = set(function.expects) - differentiated_names(function, result.cases[0])
    if missing:
        return f"{function.__name__}: {sorted(missing)} not differentiated in {result.call}"
    severe = [flag for flag in result.flags if any(word in flag for word in SEVERE)]
    return f"{function.__name__}: {severe} in {result.call}" if severe else ""


@pytest.fixture(scope="session")
def shortcoming():
    return _shortcoming


@pytest.fixture(scope="session")
def functions():
    return load_functions()


@pytest.fixture(scope="session")
def results(functions):
    """The results for all Functions, bounded by evaluations so that a slow machine finds the same."""
    found = {function: find_inputs(function, seconds=1e9) for function in functions}
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return found


@pytest.fixture(autouse=True)
def _no_group_left():
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
