"""The same seed gives the same samples, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from pullback.battery.search import find_inputs

SCRIPT = """
import sys, hashlib, torch
sys.path.insert(0, {here!r})
import conftest
from pullback.battery.search import find_inputs

functions = [f for f in conftest.load_functions() if not f.__module__.endswith("collectives")]
for function in functions[:: {step}]:
    result = find_inputs(function, seconds=1e9)
    digest = hashlib.sha256()
    for case in result.cases:
        for value in case.args:
            if isinstance(value, torch.Tensor):
                digest.update(value.detach().numpy().tobytes())
    print(function.__name__, result.status, result.evaluations, result.calls, digest.hexdigest())
"""


def _run(hash_seed: str) -> str:
    here = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(here=here, step=4)], capture_output=True, text=True, env=env, timeout=200, check=True)
    return done.stdout


def test_no_dependence_on_the_hash_seed():
    first, second = _run("1"), _run("12345")
    assert len(first.splitlines()) > 20
    assert first == second


def test_same_seed_same_samples(functions):
    for function in functions[::9]:
        one, two = (find_inputs(function, seconds=1e9) for _ in range(2))
        assert one.calls == two.calls
        for a, b in zip(one.cases, two.cases, strict=True):
            for p, q in zip(a.args, b.args, strict=True):
                assert torch.equal(p, q) if isinstance(p, torch.Tensor) else type(p) is type(q)


def test_another_seed_gives_other_values(functions):
    function = functions[0]
    one, two = find_inputs(function, seed=0), find_inputs(function, seed=1)
    assert one.calls == two.calls
    assert not torch.equal(one.cases[0].args[0], two.cases[0].args[0])
