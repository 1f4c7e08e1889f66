"""The page of a check holds its findings and what there is to see of the subjects at fault, whatever their code does."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pullback.battery.outcomes import Found, Options, Outcome
from pullback.battery.targets import parse_targets
from pullback.cli._page import write_page
from pullback.cli.main import main
from pullback.report.finding import Finding
from pullback.report.report import Report

MENDED = str(Path(__file__).resolve().parents[2] / "examples" / "tutorial" / "mended.py")
DIES = """
import os, sys, torch

if "see" in sys.argv:
    os._exit(3)
"""


def page_in(text):
    (data,) = re.findall(r'id="data">([^<]*)<', text)
    return json.loads(base64.b64decode(data))


def outcome(spec, name, severity):
    (target,) = parse_targets([spec])
    finding = Finding("PB501", "wrong-gradient", severity, "fail", name, "wrong", repro=f"pullback check {spec} --case 0 --seed 0")
    return Outcome(Found(target, name, name.rpartition(".")[2]), Report((finding,), subjects=(name,)), ["x"])


def test_subjects_at_fault_are_looked_at_and_those_that_die_are_left_out(tmp_path):
    (tmp_path / "dies.py").write_text(DIES)
    outcomes = [
        outcome(MENDED, "mended.Swish", "error"),
        outcome(MENDED, "mended.Exp", "note"),
        outcome(str(tmp_path / "dies.py"), "dies.Gone", "error"),
    ]
    report = Report().merge(*(found.report for found in outcomes))
    output = tmp_path / "page.html"
    write_page(report, outcomes, Options(timeout=120.0), output)
    page = page_in(output.read_text())
    assert [(section["kind"], section.get("subject")) for section in page["sections"]] == [
        ("findings", None),
        ("trace", "mended.Swish"),
        ("saved", "mended.Swish"),
        ("graph", "mended.Swish"),
    ]
    assert page["title"] == "pullback: 3 findings in 3 subjects"


def test_see_writes_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    modules = set(sys.modules)
    output = tmp_path / "swish.html"
    result = CliRunner().invoke(main, ["see", f"{MENDED}::Swish", "--output-format", "html", "--output", str(output)])
    for name in set(sys.modules) - modules:
        if name.startswith("mended"):
            del sys.modules[name]
    assert (result.exit_code, result.stdout) == (0, "")
    page = page_in(output.read_text())
    assert page["title"].startswith("mended.Swish(")
    assert [section["kind"] for section in page["sections"]] == ["trace", "saved", "graph"]


WRONG = """
import torch


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output
"""


@pytest.mark.slow
def test_record_writes_a_page(tmp_path):
    (tmp_path / "program.py").write_text(WRONG + "\n\nWrong.apply(torch.ones(3, requires_grad=True)).sum().backward()\n")
    command = [sys.executable, "-m", "pullback", "record", "--select", "PB501", "--output-format", "html", "--report", "page.html", "program.py"]
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=200).returncode == 1
    sections = page_in((tmp_path / "page.html").read_text())["sections"]
    assert [section["kind"] for section in sections] == ["findings", "trace", "saved", "graph"]
    assert [step["function"] for step in sections[1]["steps"] if step["what"] == "backward"] == ["Wrong"]


@pytest.mark.slow
def test_check_writes_a_page(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    output = tmp_path / "page.html"
    result = CliRunner().invoke(main, ["check", str(tmp_path / "wrong.py"), "--output-format", "html", "--output", str(output)])
    assert result.exit_code == 1
    findings, *rest = page_in(output.read_text())["sections"]
    (wrong,) = [finding for finding in findings["report"]["findings"] if finding["code"] == "PB501"]
    gradient = wrong["attachments"]["gradient"]
    assert len(gradient["where"]) == len(gradient["error"]) == gradient["wrong"]
    assert [section["kind"] for section in rest] == ["trace", "saved", "graph"]
