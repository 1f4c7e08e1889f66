"""What is found in a file: its own Functions and ops, its cases, its declarations."""

import importlib
import random
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from pullback.battery import discover, samples
from pullback.battery.discover import CasesError, UnknownNameError
from pullback.battery.targets import Target, parse_targets
from pullback.declare import DeclarationError


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(textwrap.dedent(text))


FUNCTION = """
import torch
import pullback as pb

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, times=2, *, flag=False):
        return x * times

    @staticmethod
    def backward(ctx, dy):
        return dy * 2, None
"""


def load(spec, **how):
    return discover.with_subjects_of_cases(discover.load(parse_targets([spec])[0], **how), 0)


def names(loaded):
    return [subject.name for subject in loaded.subjects]


def test_functions_are_found_in_order_of_definition_with_their_lines(project):
    write("found_here.py", FUNCTION + "class Other:\n    class Inner(Double):\n        pass\n\nclass Last(Double): pass\nAlias = Last\n")
    loaded = load("found_here.py")
    assert names(loaded) == ["found_here.Double", "found_here.Other.Inner", "found_here.Last"]
    assert [s.line for s in loaded.subjects] == [5, 14, 17]
    assert all(Path(s.path).name == "found_here.py" for s in loaded.subjects)


def test_imported_functions_are_not_checked_unless_named(project):
    write("library.py", FUNCTION)
    write("user.py", "from library import Double\nfrom torch.autograd import Function\n")
    assert names(load("user.py")) == []
    assert names(load("user.py::Double")) == ["library.Double"]


def test_functions_of_a_factory_are_told_apart(project):
    factory = "def make():\n    class Made(Double):\n        pass\n    return Made\nA = make()\nB = make()\n"
    write("made.py", FUNCTION + factory)
    assert names(load("made.py")) == ["made.Double", "made.A", "made.B"]


def test_a_base_without_forward_is_no_subject_and_one_without_backward_says_why(project):
    half = "class Half(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\n"
    write("bases.py", FUNCTION + "class Base(torch.autograd.Function):\n    scale = 1\n\n" + half)
    loaded = load("bases.py")
    assert names(loaded) == ["bases.Double", "bases.Half"]
    assert loaded.subject("bases.Half").skip == "it defines neither backward nor jvp"
    assert loaded.subject("bases.Double").skip == ""


OP = """
class Op:
    def __init__(self, function):
        self.function = function
        self.__pullback__ = {"exact": True}
        self.__name__ = self.__qualname__ = "double"
        self.__module__ = __name__

    def __call__(self, *args):
        return self.function.apply(*args)

double = Op(Double)
"""


def test_ops_are_found(project):
    write("has_op.py", FUNCTION + OP)
    assert "has_op.double" in names(load("has_op.py"))


def test_files_are_imported_as_pytest_does(project):
    write("outer/__init__.py", "")
    write("outer/inner/__init__.py", "")
    write("outer/inner/ops_a.py", "import sys\nfrom .ops_b import Double\nclass Mine(Double): pass\nARGV = list(sys.argv)\n")
    write("outer/inner/ops_b.py", FUNCTION)
    loaded = load("outer/inner/ops_a.py")
    assert names(loaded) == ["outer.inner.ops_a.Mine"]
    path = str(project / "outer/inner/ops_a.py")
    assert [path] == loaded.module.ARGV
    assert sys.path[0] == str(project)


def test_a_file_with_the_name_of_a_loaded_module_is_still_that_file(project):
    write("json.py", FUNCTION)
    assert load("json.py").module.__file__ == str(project / "json.py")
    assert sys.modules["json"].__file__ != str(project / "json.py")


def test_a_module_by_its_name(project):
    write("by_name/__init__.py", "")
    write("by_name/ops_c.py", FUNCTION)
    assert names(load("by_name.ops_c")) == ["by_name.ops_c.Double"]
    assert names(load("by_name.ops_c::Double")) == ["by_name.ops_c.Double"]


MODULE = """
class Layer(torch.nn.Module):
    def forward(self, x):
        return Double.apply(x)

def pullback_cases():
    yield pb.case(Layer(), torch.ones(2))
    yield pb.case(lambda x: Double.apply(x), torch.ones(3))
"""


def test_modules_and_lambdas_of_cases_can_be_named_as_they_are_printed(project):
    for number, short in enumerate(("Layer", "pullback_cases.<locals>.<lambda>")):
        name = f"callables_{number}"
        write(f"{name}.py", FUNCTION + MODULE)
        loaded = load(f"{name}.py::{short}")
        assert names(loaded) == [f"{name}.{short}"]
        assert len(discover.cases_for(loaded, loaded.subjects[0], 0)) == 1
    with pytest.raises(UnknownNameError, match="Did you mean Layer"):
        load("callables_0.py::Layers")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Doubel", "Did you mean Double?"),
        ("Double.forwards", "defines no 'Double.forwards'"),
        ("SIZE", "SIZE is a int; a Function, an op or a callable"),
    ],
)
def test_unknown_names(project, name, words):
    write("known.py", FUNCTION + "SIZE = 3\n")
    with pytest.raises(UnknownNameError) as caught:
        discover.load(Target("known.py", str(project / "known.py"), None, (name,)))
    assert words in str(caught.value)


CASES = """
def pullback_cases():
    yield pb.case(Double, torch.randn(3), 3)
    yield pb.case(Double.apply, torch.randn(4)).declare(exact=False)
    yield pb.case(twice, torch.randn(5))

def twice(x):
    return Double.apply(x)
"""


def test_cases_are_numbered_for_each_target_and_seeded(project):
    write("with_cases.py", FUNCTION + CASES)
    loaded = load("with_cases.py")
    assert names(loaded) == ["with_cases.Double", "with_cases.twice"]
    double = discover.cases_for(loaded, loaded.subject("with_cases.Double"), 7)
    assert [case.index for case in double] == [0, 1]
    assert [samples.describe(case) for case in double] == ["x: float32[3], times=3", "x: float32[4]"]
    twice = discover.cases_for(loaded, loaded.subject("with_cases.twice"), 7)
    assert [samples.describe(case) for case in twice] == ["x: float32[5]"]
    random.seed(1)
    torch.manual_seed(1)
    again = discover.cases_for(loaded, loaded.subject("with_cases.Double"), 7)
    assert torch.equal(double[0].args[0], again[0].args[0])
    other = discover.cases_for(loaded, loaded.subject("with_cases.Double"), 8)
    assert not torch.equal(double[0].args[0], other[0].args[0])


def test_cases_of_another_file(project):
    write("bare.py", FUNCTION)
    write("its_cases.py", "import torch, pullback as pb\nfrom bare import Double\ndef pullback_cases():\n    yield pb.case(Double, torch.ones(2))\n")
    loaded = load("bare.py", cases="its_cases.py")
    assert len(discover.cases_for(loaded, loaded.subject("bare.Double"), 0)) == 1


def test_a_name_limits_what_cases_add(project):
    for name in ("Double", "twice"):
        write(f"limited_to_{name}.py", FUNCTION + CASES)
        assert names(load(f"limited_to_{name}.py::{name}")) == [f"limited_to_{name}.{name}"]


def test_declared_samples_are_cases(project):
    listed = "[(torch.ones(2),), pb.case(Double, torch.ones(3), 5), pb.sample(torch.ones(4), times=6)]"
    declared = f"Double.__pullback__ = {{'samples': lambda: {listed}, 'reason': 'why'}}\n"
    write("sampled.py", FUNCTION + declared)
    loaded = load("sampled.py")
    cases = discover.cases_for(loaded, loaded.subjects[0], 0)
    assert [samples.describe(case) for case in cases] == ["x: float32[2]", "x: float32[3], times=5", "x: float32[4], times=6"]
    assert {case.declaration.reason for case in cases} == {"why"}


def test_configuration_fills_what_a_case_leaves_open(project):
    write("declared.py", FUNCTION + CASES)
    configured = {"declared.Double": {"exact": False, "linear": False, "reason": "from the project"}}
    loaded = load("declared.py", configured=configured)
    first, second = discover.cases_for(loaded, loaded.subjects[0], 0)
    assert (first.declaration.exact, first.declaration.linear, first.declaration.reason) == (False, False, "from the project")
    assert second.declaration.reason == "from the project"
    assert discover.declared(loaded, loaded.subjects[0]).exact is False


def test_a_malformed_declaration(project):
    write("malformed.py", FUNCTION + "Double.__pullback__ = {'exat': False}\n")
    loaded = load("malformed.py")
    with pytest.raises(DeclarationError, match="unknown key 'exat'"):
        discover.declared(loaded, loaded.subjects[0])
    cases, report = samples.collect(loaded, loaded.subjects[0], 0)
    assert cases == []
    assert report is not None
    assert [f.code for f in report.findings] == ["PB005"]


@pytest.mark.parametrize("body", ["return [3]", "raise KeyError('x')", "yield pb.case(Double).declare(linaer=True)"])
def test_broken_cases_say_where(project, body):
    write("broken_cases.py", FUNCTION + f"def pullback_cases():\n    {body}\n")
    with pytest.raises(CasesError, match="pullback_cases") as caught:
        load("broken_cases.py")
    assert caught.value.path == str(project / "broken_cases.py")
    assert caught.value.line in (13, 14)


@pytest.mark.parametrize(("reason", "codes"), [("", ["PB007"]), ("  ", ["PB007"]), ("guided backpropagation", [])])
def test_a_deliberate_gradient_wants_a_reason(project, reason, codes):
    write("reasons.py", FUNCTION + f"def pullback_cases():\n    yield pb.case(Double, torch.ones(2)).declare(exact=False, reason={reason!r})\n")
    loaded = load("reasons.py")
    cases, report = samples.collect(loaded, loaded.subjects[0], 0)
    assert len(cases) == 1
    assert [f.code for f in (report.findings if report else ())] == codes


class Weird:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2, 3, dtype=torch.float64), "float64[2, 3]"),
        (torch.ones(2, 3).t(), "float32[3, 2] strides (1, 3)"),
        ([torch.ones(1), torch.ones(2)], "list of 2 tensors"),
        (1e-6, "1e-06"),
        ("a\x1b[31m", "'a\\x1b[31m'"),
        (None, "None"),
        (torch.relu, "relu"),
        (Weird(), "Weird"),
        ("x" * 100, "'" + "x" * 37 + "…"),
        (torch.float16, "torch.float16"),
    ],
)
def test_values_in_a_few_words(value, words):
    assert samples.show_value(value) == words
