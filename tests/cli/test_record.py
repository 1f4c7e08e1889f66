"""`pullback record` runs a program as it is, and checks what it did."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
import torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x * FACTOR

def step():
    x, w = torch.ones(3, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True).t()
    (Twice.apply(x, w) @ torch.randn(4, 2)).sum().backward()

if __name__ == "__main__":
    print(sys.argv[1:], __name__, os.path.basename(__file__))
    step()
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "raise":
        raise ValueError("boom")
    if how == "exit":
        sys.exit(7)
    if how == "text":
        sys.exit("no luck")
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "redirect":
        sys.stdout, sys.path[:] = open(os.devnull, "w"), []
    if how == "child":
        import multiprocessing, time
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        child.terminate()
        child.join()
        print("child ended with", child.exitcode)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wrong.py").write_text(SCRIPT.replace("FACTOR", "2"))
    (tmp_path / "right.py").write_text(SCRIPT.replace("FACTOR", "1"))
    return tmp_path


def pullback(folder, *args, module=("pullback",), **more):
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | more
    command = [sys.executable, "-m", *module, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def test_findings_decide_the_exit_status(folder):
    wrong = pullback(folder, "record", "--select", "PB501", "wrong.py", "--output", "x", "--select")
    assert wrong.stdout.startswith("['--output', 'x', '--select'] __main__ wrong.py\n")
    assert wrong.returncode == 1, wrong.stderr
    assert "PB501 wrong-gradient: Twice.backward" in wrong.stdout
    assert "pullback record --select PB501 --seed 0 -- wrong.py --output x --select" in " ".join(wrong.stdout.split())
    right = pullback(folder, "record", "--select", "PB501", "right.py")
    assert (right.returncode, "nothing found" in right.stdout) == (0, True), right.stdout + right.stderr


@pytest.mark.parametrize(
    ("how", "status", "error"),
    [("raise", 1, "boom"), ("exit", 7, ""), ("text", 1, "no luck"), ("interrupt", 130, "Keyboard"), ("terminate", 143, "")],
)
def test_the_program_ends_as_it_would_and_is_reported_all_the_same(folder, how, status, error):
    found = pullback(folder, "record", "--profile", "right.py", how)
    assert found.returncode == status
    assert error in found.stderr
    assert "__main__.Twice         1" in found.stdout
    assert "pullback" not in found.stderr


def test_a_program_that_ends_badly_is_checked_too(folder):
    wrong = pullback(folder, "record", "--select", "PB501", "wrong.py", "terminate")
    assert "PB501 wrong-gradient: Twice.backward" in wrong.stdout
    assert wrong.returncode == 143
    right = pullback(folder, "record", "--select", "PB501", "right.py", "exit")
    assert "nothing found" in right.stdout
    assert right.returncode == 7


def test_a_program_that_redirects_its_output_is_reported_on_the_first_one(folder):
    found = pullback(folder, "record", "--select", "PB501", "right.py", "redirect")
    assert "nothing found" in found.stdout
    assert found.returncode == 0, found.stderr


def test_children_of_a_program_are_terminated_as_ever(folder):
    assert "child ended with -15\n" in pullback(folder, "record", "--profile", "right.py", "child").stdout


def test_a_traceback_shows_the_program_only(folder):
    plain = subprocess.run([sys.executable, "right.py", "raise"], cwd=folder, capture_output=True, text=True)
    found = pullback(folder, "record", "--profile", "right.py", "raise")
    assert found.stderr == plain.stderr


def test_a_recording_is_kept_and_checked_elsewhere(folder):
    kept = pullback(folder, "record", "--profile", "--output", "run.pbrec", "wrong.py")
    assert kept.returncode == 0, kept.stderr
    checked = pullback(folder, "check", "run.pbrec", "--select", "PB501", "--output-format", "json")
    report = json.loads(checked.stdout)
    assert (checked.returncode, [f["code"] for f in report["findings"]]) == (1, ["PB501"]), checked.stderr
    assert report["findings"][0]["location"]["path"] == "wrong.py"
    replayed = pullback(folder, "record", "--replay", "run.pbrec", "--profile")
    assert "1 × x: float32[3, 4], w: float32[3, 4] strides (1, 3)" in replayed.stdout


def test_a_recording_imports_nothing_outside_of_the_project(folder, tmp_path_factory):
    pullback(folder, "record", "--profile", "--output", "run.pbrec", "wrong.py")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    checked = pullback(elsewhere, "check", str(folder / "run.pbrec"))
    assert checked.returncode == 1
    text = " ".join(checked.stdout.split())
    assert "is not a module of this project" in text


def test_a_module_and_a_command_are_run(folder):
    module = pullback(folder, "record", "--profile", "-m", "right", "--epochs", "3")
    assert module.stdout.startswith("['--epochs', '3'] __main__ right.py\n"), module.stderr
    (folder / "test_it.py").write_text("import right\n\ndef test_it():\n    right.step()\n    assert False\n")
    command = pullback(folder, "record", "--profile", "--", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert command.returncode == 1
    assert "1 failed" in command.stdout
    assert "right.Twice" in command.stdout


def test_without_values_statistics_are_kept(folder):
    pullback(folder, "record", "--no-values", "--profile", "--output", "run.pbrec", "wrong.py")
    assert b"tensors/" not in (folder / "run.pbrec").read_bytes()
    checked = pullback(folder, "check", "run.pbrec", "--select", "PB501")
    assert "values drawn anew" in " ".join(checked.stdout.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["record"], "name a program"),
        (["record", "gone.py"], "No such file"),
        (["record", "-m", "no_such_module"], "no such module"),
        (["record", "--", "no-such-command"], "neither a Python file nor a console command"),
        (["record", "python", "right.py"], "leave out 'python'"),
        (["record", "--output", "run.txt", "right.py"], ".pbrec"),
        (["check", "gone.pbrec"], "no file 'gone.pbrec'"),
        (["check", "right.py", "damaged.pbrec"], "by a command each"),
        (["check", "damaged.pbrec"], "not a recording"),
        (["record", "--replay", "damaged.pbrec", "right.py"], "runs no program"),
    ],
)
def test_wrong_usage_is_explained(folder, args, message):
    (folder / "damaged.pbrec").write_bytes(b"x")
    found = pullback(folder, *args)
    assert found.returncode == 2
    assert message in " ".join(found.stderr.split())


def test_output_of_another_form_takes_the_findings(folder):
    found = pullback(folder, "record", "--select", "PB501", "--output-format", "json", "--output", "findings.json", "wrong.py")
    assert found.returncode == 1
    assert [finding["code"] for finding in json.loads((folder / "findings.json").read_text())["findings"]] == ["PB501"]


def test_a_program_without_functions_says_so(folder):
    (folder / "plain.py").write_text("print('hello')\n")
    found = pullback(folder, "record", "plain.py")
    assert found.stdout.startswith("hello\n")
    assert "applied no custom Function" in found.stderr


LOADER = """
import multiprocessing
import torch
from right import Twice

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return Twice.apply(torch.ones(2), torch.full((2,), float(i)))

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork")
    print(sum(float(batch.sum()) for batch in loader))
    Twice.apply(torch.ones(2, requires_grad=True), torch.ones(2)).sum().backward()
"""


def test_data_loader_workers_work_and_their_calls_are_added(folder):
    (folder / "loader.py").write_text(LOADER)
    found = pullback(folder, "record", "--profile", "loader.py")
    assert found.stdout.startswith("12.0\n"), found.stderr
    assert "right.Twice         5 " in found.stdout


RANKS = """
import torch
import torch.distributed as dist
from right import Twice

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
y = Twice.apply(model(torch.randn(3, 4)), torch.randn(3, 4))
y.sum().backward()
print("rank", dist.get_rank(), "norm", float(next(model.parameters()).grad.norm()))
dist.destroy_process_group()
"""


def test_recordings_of_two_ranks_are_merged(folder):
    (folder / "ranks.py").write_text(RANKS)
    module = ("torch.distributed.run", "--nproc-per-node", "2", "-m", "pullback")
    found = pullback(folder, "record", "--output", "run.pbrec", "ranks.py", module=module, MASTER_ADDR="127.0.0.1")
    assert found.returncode == 0, found.stderr
    assert "pullback check run.rank*.pbrec" in found.stderr
    files = sorted(p.name for p in Path(folder).glob("*.pbrec"))
    assert files == ["run.rank0.pbrec", "run.rank1.pbrec"]
    merged = pullback(folder, "record", "--profile", *(part for name in files for part in ("--replay", name)))
    assert "right.Twice         2 " in merged.stdout
    checked = pullback(folder, "check", *files, "--select", "PB501")
    assert checked.returncode == 0, checked.stdout + checked.stderr


SUPPRESSED = """
import torch

class Loud(torch.autograd.Function):  # pullback: ignore[PB501] mended next week
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 4

def typed(value: "later"): ...

assert isinstance(typed.__annotations__["value"], str) and typed.__annotations__["value"] == "later"
def exact(value: int): ...
assert exact.__annotations__["value"] is int, "compiled with the future statements of another file"
Loud.apply(torch.randn(3, requires_grad=True)).sum().backward()
"""


def test_comments_suppress_and_the_program_is_compiled_as_it_is(folder):
    (folder / "loud.py").write_text(SUPPRESSED)
    found = pullback(folder, "record", "--select", "PB501", "loud.py")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 suppressed" in found.stdout
    report = pullback(folder, "record", "--ignore", "PB501", "--profile", "--output-format", "json", "loud.py")
    (row,) = json.loads(report.stdout)
    assert (row["name"], row["calls"], row["backward_calls"]) == ("__main__.Loud", 1, 1)


def test_an_op_of_a_package_is_checked_from_its_recording(folder):
    package = folder / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text(
        "import pullback as pb\n\n@pb.op\ndef double(x):\n    return x * 2\n\n@double.vjp('x')\ndef _(dy):\n    return dy * 3\n"
    )
    (package / "train.py").write_text(
        "import torch\nfrom .ops import double\n\nif __name__ == '__main__':\n    double(torch.randn(4, requires_grad=True)).sum().backward()\n"
    )
    kept = pullback(folder, "record", "--profile", "--output", "run.pbrec", "-m", "mine.train")
    assert "mine.ops.double" in kept.stdout, kept.stderr
    checked = pullback(folder, "check", "run.pbrec", "--select", "PB501")
    assert "PB501 wrong-gradient: double" in " ".join(checked.stdout.split()), checked.stdout + checked.stderr
    assert checked.returncode == 1
