"""The character transformer: both kinds of ops learn alike, and the program shows them side by side."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "training" / "character_transformer.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("character_transformer", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def trained(example, **settings):
    small = example.Settings(**{"steps": 8, "batch": 4, "length": 24, "width": 16, "layers": 2, "dropout": 0.0, **settings})
    return [example.train(replace(small, ops=name)) for name in ("pullback", "torch")]


def test_the_same_losses_without_randomness(example):
    ours, plain = trained(example)
    torch.testing.assert_close(ours.losses, plain.losses, rtol=1e-4, atol=0)
    assert ours.losses[-1] < ours.losses[0]


def test_the_same_curve_within_the_noise_of_dropout(example):
    """Which is how far dropout moves the curve at all."""
    ours, plain = trained(example, dropout=0.1, steps=12)
    without = trained(example, steps=12)[1]
    noise = max(abs(a - b) for a, b in zip(plain.losses, without.losses, strict=True))
    assert 0 < max(abs(a - b) for a, b in zip(ours.losses, plain.losses, strict=True)) < 2 * noise


def test_sums_are_right(example):
    import random

    (row,) = example.sums(1, 60, random.Random(0)).tolist()
    text = "".join(example.ALPHABET[code] for code in row)
    for line in text.split(";")[:-1]:
        left, right = line.split("=")
        assert sum(map(int, left.split("+"))) == int(right)


@pytest.mark.slow
def test_program_shows_both_columns():
    size = ["--steps", "3", "--batch", "2", "--length", "16", "--width", "16", "--layers", "1"]
    run = subprocess.run([sys.executable, str(PROGRAM), *size], capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    first, *steps, time, peak = run.stdout.splitlines()
    assert first.split() == ["step", "pullback", "torch"]
    assert [line.split()[0] for line in steps] == ["0", "1", "2"]
    assert time.split()[0] == "ms/step"
    assert peak.split()[:2] == ["MiB", "peak"]
