"""The reader of sources: methods, wrapped ones, helpers of the module and of the class, and what cannot be read."""

import ast
import functools

import torch
from torch.autograd.function import once_differentiable

from pullback.capture.source import called_by, plain, syntax_of, text_of, text_of_class, tree_of


def helper(x):
    return x.chunk(2)


class Base(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        """Says float32."""
        # speaks of float16
        Base.checked(x)
        return helper(x)[0] * 2

    @staticmethod
    def checked(x):
        """Nothing else."""

    @staticmethod
    def unused(x):
        return x - 1


class Derived(Base):
    double = staticmethod(lambda x: x + 7)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return dy.abs()


def test_a_tree_keeps_the_lines_of_its_file():
    tree = tree_of(helper)
    assert (tree.name, tree.lineno) == ("helper", helper.__code__.co_firstlineno)
    assert tree_of(helper) is tree


def test_text_has_neither_comments_nor_docstrings():
    text = text_of(Base.forward)
    assert "float" not in text
    assert "return helper(x)[0] * 2" in text
    assert text_of(Base.checked).splitlines()[-1].strip() == "pass"
    assert '"""Says float32."""' in ast.unparse(tree_of(Base.forward))


def test_wrapped_methods_are_read_with_their_decorators():
    text = text_of(Derived.backward)
    assert "@once_differentiable" in text
    assert "return dy.abs()" in text
    assert plain(functools.wraps(helper)(lambda x: x)) is helper


def test_the_text_of_a_class_holds_that_of_its_bases():
    text = text_of_class(Derived)
    assert all(part in text for part in ("dy.abs()", "x + 7", "x - 1", "helper(x)[0]"))
    assert "NotImplementedError" not in text


def test_what_forward_calls():
    assert [f.__name__ for f in called_by(Derived, Derived.forward)] == ["forward", "helper", "checked"]


def test_what_has_no_source_is_left_out():
    made = {}
    exec("def forward(ctx, x):\n    return x", made)
    assert tree_of(made["forward"]) is None
    assert syntax_of(torch.sin) is None
    assert text_of(made["forward"], torch.sin, None) == ""
