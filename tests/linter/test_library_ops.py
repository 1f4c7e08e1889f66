"""Rules read the derivative of a torch.library op as they read a Function's."""

import textwrap
from pathlib import Path

import pytest

from pullback.linter.engine import facts_of, lint_file
from pullback.linter.settings import Settings

HEAD = """
import torch
from torch import Tensor


@torch.library.custom_op("mine::f", mutates_args=())
def f(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def gradient(ctx, g):
    x, w = ctx.saved_tensors
    return g * w, g * x
"""
WRITES = HEAD.replace("    return g * w", "    g.mul_(2)\n    return g * w")


def codes(text):
    return [(f.code, f.location.line) for f in lint_file(Path("ops.py"), Settings(), data=textwrap.dedent(text).encode()).findings if f.location]


def facts(text):
    return facts_of(Path("ops.py"), textwrap.dedent(text).encode())


@pytest.mark.parametrize(
    "register",
    [
        "f.register_autograd(gradient, setup_context=keep)",
        'torch.library.register_autograd("mine::f", gradient, setup_context=keep)',
        "torch.library.register_autograd(f, gradient, setup_context=keep)",
    ],
)
def test_a_fault_is_found_however_the_rule_is_registered(register):
    line = WRITES.splitlines().index("    g.mul_(2)") + 1
    assert codes(f"{WRITES}\n\n{register}\n") == [("PB101", line)]
    assert codes(f"{HEAD}\n\n{register}\n") == []


def test_an_op_that_is_made_by_a_call_is_read_too():
    text = HEAD.replace('@torch.library.custom_op("mine::f", mutates_args=())\n', "") + (
        '\n\nop = torch.library.custom_op("mine::f", f, mutates_args=[])\nop.register_autograd(gradient, setup_context=keep)\n'
    )
    (found,) = facts(text)
    assert found.name == "f"
    assert [p.name for p in found.inputs] == ["x", "w"]
    assert found.setup is not None
    assert found.backward is not None


def test_without_setup_context_nothing_is_kept():
    (found,) = facts(HEAD + "\n\nf.register_autograd(gradient)\n")
    assert found.saves == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mutates_args=()", 'mutates_args={"x"}'),  # what it writes to is declared otherwise than by mark_dirty
        ("w: Tensor)", "*, w: Tensor)"),  # gets no gradient
        ("f.register_autograd(gradient", "f.register_autograd(make_gradient()"),
        ("f.register_autograd", "other.register_autograd"),
    ],
)
def test_what_cannot_be_read_so_is_left_alone(old, new):
    text = HEAD + "\n\nf.register_autograd(gradient, setup_context=keep)\n"
    assert old in text
    assert facts(text)
    assert not facts(text.replace(old, new))


def test_too_few_gradients_are_counted():
    text = HEAD.replace("return g * w, g * x", "return g * w") + "\n\nf.register_autograd(gradient, setup_context=keep)\n"
    assert "PB109" in [code for code, _ in codes(text)]
