"""Mended code computes what it did before: values and gradients, run with torch."""

import inspect
from typing import Any

import pytest
import torch

from pullback.linter.engine import all_rules
from pullback.linter.rule import PREAMBLE, Rule

RUNNABLE = [rule for rule in all_rules().values() if rule.code in ("PB101", "PB207", "PB214", "PB310", "PB311", "PB406")]


def gradients(text: str) -> tuple[list[torch.Tensor], torch.Tensor]:
    scope: dict[str, Any] = {}
    exec(compile(PREAMBLE + text.strip("\n"), "fixed.py", "exec"), scope)
    function = next(v for v in scope.values() if isinstance(v, type) and issubclass(v, torch.autograd.Function) and v.__module__ == "builtins")
    names = [n for n in inspect.signature(function.forward).parameters if n not in ("ctx", "self")]
    generator = torch.Generator().manual_seed(0)
    values = [2.0 if n in ("k", "scale") else torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_() for n in names]
    output = function.apply(*values)
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return list(torch.autograd.grad(output, tensors, cotangent)), output.detach()


@pytest.mark.parametrize("rule", RUNNABLE, ids=lambda rule: rule.code)
def test_fixed_code_gives_the_same_value_and_gradients(rule: Rule):
    text = rule.bad.replace("saved_variables", "saved_tensors").replace("torch.cuda.amp.custom_fwd", "torch.amp.custom_fwd(device_type='cuda')")
    text = text.replace("torch.cuda.amp.custom_bwd", "torch.amp.custom_bwd(device_type='cuda')")
    before, value = gradients(text)
    after, mended = gradients(rule.fixed)
    assert torch.equal(value, mended)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_moved_setup_context_works_under_func():
    scope: dict[str, Any] = {}
    exec(compile(PREAMBLE + all_rules()["PB406"].fixed.strip("\n"), "fixed.py", "exec"), scope)
    x = torch.randn(3, dtype=torch.float64)
    assert torch.allclose(torch.func.grad(lambda t: scope["Exp"].apply(t, 2.0).sum())(x), 2 * x.exp())
