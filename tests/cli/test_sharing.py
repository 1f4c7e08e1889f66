"""`torchrun -m pullback check`: the work is shared, rank 0 tells all of it, once."""

import json
import os
import subprocess
import sys

import pytest

from pullback.battery.outcomes import Found, Outcome
from pullback.battery.targets import Target
from pullback.cli._sharing import Sharing, outcome_from_data, outcome_to_data
from pullback.report import CheckRun, Report

OP = """
class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert "RANK" not in os.environ and "MASTER_PORT" not in os.environ
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * {factor}
"""
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RUN_ID": "none",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ops")
    head = "import os\nimport torch\n"
    (folder / "first.py").write_text(head + OP.format(name="A", factor=2) + OP.format(name="B", factor=3))
    (folder / "second.py").write_text(head + OP.format(name="C", factor=2))
    (folder / "third.py").write_text("from torch.autograd import Function\nraise RuntimeError('no')\n")
    return folder


def test_two_processes_report_once(folder):
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "pullback", "check", ".", "--select", "PB501,PB604"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    where = folder / "report.json"
    run = subprocess.run(
        [sys.executable, *command, "--output-format", "json", "--output", where],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    report = json.loads(where.read_text())
    assert report["subjects"] == ["first.A", "first.B", "second.C", "third.py"]
    assert sorted((f["code"], f["subject"]) for f in report["findings"] if f["severity"] == "error") == [("PB001", "third.py"), ("PB501", "first.B")]
    assert sorted((c["code"], c["subject"]) for c in report["checks"] if c["code"] == "PB604") == [
        ("PB604", "first.A"),
        ("PB604", "first.B"),
        ("PB604", "second.C"),
    ]
    assert run.returncode == 1


def test_the_environment_of_torchrun_is_read_and_taken_away():
    environment = TORCHRUN | {"HOME": "/"}
    sharing = Sharing.from_environment(environment)
    assert sharing == Sharing(1, 3, ("localhost", 29500), hosts=False, local=2)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("change", [{"WORLD_SIZE": "1"}, {"RANK": None}, {"MASTER_ADDR": None}])
def test_one_process_shares_nothing(change):
    environment = {name: value for name, value in (TORCHRUN | change).items() if value is not None}
    before = dict(environment)
    assert Sharing.from_environment(environment) is None
    assert environment == before


@pytest.mark.parametrize("found", [None, Found(Target("a.py", "/a.py", None, ("F",)), "a.F", "F", "/a.py", 3)])
def test_outcomes_travel_as_json(found):
    report = Report((), (CheckRun("PB501", "a.F", "pass"),), ("a.F",))
    outcome = Outcome(found, report, ["x: float64[3]"], imported=False, origin="case")
    assert outcome_from_data(json.loads(json.dumps(outcome_to_data(outcome)))) == outcome
