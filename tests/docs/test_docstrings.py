"""Every example in a public docstring runs and prints what it says, and every public function has one."""

import doctest
import importlib
import inspect

import pytest

import pullback

NAMES = [f"pullback.{name}" for name in pullback.__all__ if name != "__version__"]
NAMES += [f"pullback.{module}.{name}" for module in pullback._MODULES for name in importlib.import_module(f"pullback.{module}").__all__]


def value_of(path: str) -> object:
    home, _, name = path.rpartition(".")
    return getattr(importlib.import_module(home), name)


def examples_of(path: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(value_of(path), path, module=False, globs={}) if test.examples]


@pytest.mark.parametrize("path", [path for path in NAMES if examples_of(path)])
def test_examples_run(path):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    for test in examples_of(path):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("path", [path for path in NAMES if inspect.isfunction(value_of(path))])
def test_every_public_function_shows_an_example(path):
    assert examples_of(path)


@pytest.mark.parametrize("path", NAMES)
def test_every_public_name_says_what_it_is(path):
    assert (inspect.getdoc(value_of(path)) or "").strip()
