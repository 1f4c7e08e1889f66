"""pyright and mypy agree with what op_types.py says."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "op_types.py"
ROOT = FILE.parents[2]


@pytest.mark.parametrize(
    "command", [["pyright"], pytest.param(["mypy", "--strict", "--cache-dir", "{tmp}"], marks=pytest.mark.slow)], ids=["pyright", "mypy"]
)
def test_types_of_ops(command, tmp_path):
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    arguments = [part.format(tmp=tmp_path) for part in command]
    result = subprocess.run([sys.executable, "-m", *arguments, str(FILE)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
