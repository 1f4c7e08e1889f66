"""The small training programs: each shows what it says, in a short run."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "training"


def load(name):
    spec = importlib.util.spec_from_file_location(f"training_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "surrogate", ["arctan", pytest.param("fast_sigmoid", marks=pytest.mark.slow), pytest.param("triangle", marks=pytest.mark.slow)]
)
def test_spiking_neurons_learn_by_a_surrogate_alone(surrogate):
    spiking = load("spiking")
    losses, accuracy = spiking.train(surrogate, 60)
    plain, _ = spiking.train("none", 60)
    assert losses[-1] < losses[0] / 4
    assert accuracy > 0.9
    assert plain[-1] > plain[0] / 2


def test_order_alone_tells_the_patterns_apart():
    spikes, label = load("spiking").bursts(4000, torch.Generator().manual_seed(1))
    rates = torch.stack([spikes[:, label == k].mean((0, 1)) for k in (0, 1)])
    torch.testing.assert_close(rates[0], rates[1], atol=0.02, rtol=0)


def test_training_with_few_bits_mends_what_rounding_breaks():
    found = load("quantised").compare(bits=3, steps=120)
    assert found.full < found.trained < found.rounded / 3


def test_implicit_gradients_equal_unrolled_ones_at_constant_memory():
    rows = load("implicit").compare(width=16)
    assert [row.difference < bound for row, bound in zip(rows, (0.1, 1e-4, 1e-10), strict=True)] == [True] * 3
    assert len({row.kept_implicit for row in rows}) == 1
    assert rows[0].kept_implicit < rows[0].kept_unrolled / 10
    assert rows[2].kept_unrolled > 10 * rows[0].kept_unrolled


def test_an_equilibrium_model_learns():
    losses, _ = load("implicit").train(steps=60, width=16, inputs=2)
    assert losses[-1] < losses[0] / 2


def test_reversed_gradients_make_domains_alike():
    adversarial = load("adversarial")
    plain, reversed_ = adversarial.train(0.0, 150), adversarial.train(1.0, 150)
    assert plain.known > 0.95
    assert reversed_.known > 0.95
    assert reversed_.shifted > plain.shifted + 0.15


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spiking", "quantised", "implicit", "adversarial"])
def test_programs_run(name):
    run = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), "--steps", "4"], capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) >= 3
