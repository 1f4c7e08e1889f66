"""Whose code a file is, wherever the reader's project lies."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import pullback
from pullback.capture.frames import is_checkers, is_of_project, is_own, is_readers, is_standard, is_torchs

STANDARD = sysconfig.get_path("stdlib")


@pytest.mark.parametrize(
    "path",
    [
        "/home/ada/torch/pullback/ops.py",
        "/home/ada/torch/swish.py",
        "/home/ada/pullback/examples/swish.py",
        f"{STANDARD}/site-packages/torchvision/ops/boxes.py",
        "<stdin>",
        "<ipython-input-3>",
    ],
)
def test_the_reader_may_call_folders_as_he_likes(path):
    assert is_readers(path)
    assert not is_own(path)
    assert not is_torchs(path)


def test_torch_pullback_and_python_are_not_the_readers():
    assert not is_readers(torch.nn.functional.__file__)
    assert is_torchs(torch.nn.functional.__file__)
    own = str(Path(pullback.__file__).with_name("trees.py"))
    assert not is_readers(own)
    assert is_own(own)
    assert not is_readers(f"{STANDARD}/copy.py")
    assert not is_readers("<frozen runpy>")


def test_the_ops_of_pullback_may_be_checked_themselves():
    root = Path(pullback.__file__).parent
    assert is_checkers(str(root / "battery" / "check.py"))
    assert not is_checkers(str(root / "ops" / "arguments.py"))
    assert not is_checkers("/home/ada/pullback/battery/ops.py")


def test_a_file_of_the_project_is_no_installed_one():
    assert is_of_project("/home/ada/torch/swish.py")
    assert not is_of_project("/home/ada/env/lib/python3.11/site-packages/torchvision/ops/boxes.py")
    assert not is_of_project("<ipython-input-3>")
    assert not is_of_project(f"{STANDARD}/copy.py")
    assert not is_of_project(torch.nn.functional.__file__)
    assert not is_of_project(pullback.__file__)


def test_packages_whose_name_begins_with_torch_are_not_torchs():
    beside = Path(torch.__file__).parents[1]
    assert is_readers(str(beside / "torchvision" / "ops" / "boxes.py"))
    assert is_readers(str(beside / "torch_scatter" / "scatter.py"))
    assert not is_standard(str(beside / "torch_scatter" / "scatter.py"))


def test_whose_a_file_is_can_be_told_without_torch():
    code = (
        "import sys, importlib.util; from pullback.capture.frames import is_torchs;"
        "print(is_torchs(importlib.util.find_spec('torch').origin), is_torchs('/home/ada/swish.py'), 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["True", "False", "False"]
