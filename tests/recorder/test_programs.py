"""Real programs: a planted fault that only their layouts, frozen parameters, autocast or checkpointing bring out is found; mended, nothing is."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import pullback as pb

FOLDER = Path(__file__).parents[2] / "examples" / "programs"
FAULTS = {"transformer": "PB604", "spiking": "PB614", "quantised": "PB621", "adversarial": "PB606"}
CLASSES = {"transformer": "PackedLayerNorm", "spiking": "AdaptiveSpike", "quantised": "OffsetLinear", "adversarial": "FrozenAffine"}


@pytest.fixture
def program(request, monkeypatch):
    name = request.param
    spec = importlib.util.spec_from_file_location(f"programs_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)

    def run(*args):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *args])
        module.main()
        return torch.get_rng_state()

    return name, run


every_program = pytest.mark.parametrize("program", list(FAULTS), indirect=True)


@every_program
def test_the_fault_is_found_in_the_faulty_class_only(program):
    name, run = program
    with pb.recording() as recorded:
        run("--faulty")
    report = recorded.report()
    wrong = [f for f in report.findings if f.severity != "note"]
    assert FAULTS[name] in {f.code for f in wrong}
    assert {f.subject.rpartition(".")[2] for f in wrong} == {CLASSES[name]}
    assert all("recorded call" in f.evidence[-1].text for f in wrong)


@every_program
def test_the_mended_program_raises_no_alarm(program):
    _, run = program
    with pb.recording() as recorded:
        run()
    report = recorded.report()
    assert [(f.code, f.message) for f in report.findings if f.severity != "note"] == []
    assert report.ok
    assert len({run.subject for run in report.checks if run.status == "pass"}) == len(recorded.recording.functions)


@every_program
def test_the_program_does_the_same(program, capsys):
    _, run = program
    state = run()
    plain = capsys.readouterr()
    with pb.recording():
        again = run()
    assert torch.equal(state, again)
    assert capsys.readouterr() == plain
    assert "loss" in plain.out
