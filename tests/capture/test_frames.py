"""Whose code a file is, wherever the reader's project lies."""

import sysconfig
from pathlib import Path

import pytest
import torch

import pullback
from pullback.capture.frames import is_checkers, is_own, is_readers, is_torchs

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
