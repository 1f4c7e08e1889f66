"""What surrounds a check changes no verdict, and is there again afterwards."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import disable_saved_tensors_hooks
from weighted_rows import Weighted, WeightedByMean

import pullback as pb


class DeviceSeen(torch.autograd.Function):
    devices: set[str] = set()

    @staticmethod
    def forward(ctx, x):
        DeviceSeen.devices.add(torch.empty(1).device.type)
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def arguments():
    torch.manual_seed(0)
    return torch.randn(3, 4, device="cpu"), torch.randn(4, device="cpu")


def verdicts(given):
    select = ["PB501", "PB605", "PB616", "PB619"]
    return pb.check(Weighted, given, select=select).ok, pb.check(WeightedByMean, given, select=select).ok


SURROUNDINGS = {
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "a default device": lambda: torch.device("meta"),
    "no hooks on saved tensors": lambda: disable_saved_tensors_hooks("none here"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "a dual level": torch.autograd.forward_ad.dual_level,
}


@pytest.mark.parametrize("surrounding", SURROUNDINGS.values(), ids=SURROUNDINGS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_verdicts_are_the_same_within(surrounding):
    with surrounding():
        assert verdicts(arguments()) == (True, False)
        assert pb.check(Weighted, select=["PB501"]).ok
        assert not pb.check(WeightedByMean, select=["PB501"]).ok


def test_tensors_made_in_inference_mode_can_be_given():
    with torch.inference_mode():
        given = arguments()
    assert verdicts(given) == (True, False)


def test_modes_are_there_again_afterwards():
    with torch.inference_mode(), torch.device("meta"):
        pb.check(Weighted, arguments(), select=["PB501"])
        assert torch.is_inference_mode_enabled()
        assert torch.empty(1).device.type == "meta"
    assert torch.empty(1).device.type == "cpu"
    with disable_saved_tensors_hooks("none here"):
        pb.check(Weighted, arguments(), select=["PB501"])
        with pytest.raises(RuntimeError, match="none here"), torch.autograd.graph.save_on_cpu():
            pass


def test_the_default_device_is_there_for_the_checked_code():
    DeviceSeen.devices.clear()
    with torch.device("meta"):
        assert pb.check(DeviceSeen, torch.ones(3, device="cpu"), select=["PB501"]).ok
    assert DeviceSeen.devices == {"meta"}


def test_threads_may_check_at_once_and_standard_output_stays(capsys):
    before, found = sys.stdout, []
    threads = [threading.Thread(target=lambda: found.append(verdicts(arguments()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(True, False)] * 3
    assert sys.stdout is before
    print("still here")
    assert capsys.readouterr().out == "still here\n"


class Prints(torch.autograd.Function):
    """Prints itself, and waits for another thread to print."""

    turn, done = threading.Event(), threading.Event()

    @staticmethod
    def forward(ctx, x):
        print("of the checked code")
        Prints.turn.set()
        Prints.done.wait(10)
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def test_what_other_threads_print_meanwhile_is_not_lost(capsys):
    def other():
        Prints.turn.wait(10)
        print("of another thread")
        Prints.done.set()

    thread = threading.Thread(target=other)
    thread.start()
    pb.check(Prints, torch.ones(3), select=["PB501"])
    thread.join()
    assert capsys.readouterr().out == "of another thread\n"


def test_a_case_is_checked_with_its_arguments_and_what_it_declares():
    assert pb.check(pb.case(Weighted, *arguments()), select=["PB501"]).ok
    assert not pb.check(pb.case(WeightedByMean, *arguments()), select=["PB501"]).ok
    declared = pb.case(WeightedByMean, *arguments()).declare(exact=False, reason="a mean is meant")
    assert pb.check(declared, select=["PB501"]).findings == ()
    against = pb.case(Weighted, *arguments()).against(lambda x, w: x + w)
    assert [finding.code for finding in pb.check(against, select=["PB511"]).findings] == ["PB511"]


def test_a_case_and_arguments_are_refused_and_nothing_is_printed_whole():
    with pytest.raises(TypeError, match=r"put them into pb\.case"):
        pb.check(pb.case(Weighted, *arguments()), torch.ones(3))
    with pytest.raises(TypeError, match=r"^pullback cannot check tensor") as refused:
        pb.check(torch.randn(100, 100))
    assert len(str(refused.value)) < 250


WITHIN = """
import sys
import torch
sys.path.insert(0, "tests/battery")
torch.set_default_device("meta")
with torch.inference_mode():
    import pullback as pb
    from test_surroundings import Weighted, WeightedByMean, arguments
    with pb.recording(values=False) as run, torch.inference_mode(False):
        x, w = (a.requires_grad_() for a in arguments())
        Weighted.apply(x, w).sum().backward()
    report = run.report(select=["PB5", "PB6"])
    print(pb.check(Weighted, arguments(), select=["PB5", "PB6"]).ok, pb.check(WeightedByMean, arguments(), select=["PB501"]).ok, report.ok)
"""


def test_nothing_that_the_first_import_makes_depends_on_them():
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run([sys.executable, "-c", WITHIN], cwd=root, capture_output=True, text=True, timeout=300)
    assert (found.stdout.split(), found.returncode) == (["True", "False", "True"], 0), found.stderr
