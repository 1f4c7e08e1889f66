"""docs/tutorials/first-op.md: its python blocks run with the other pages; its Triton block runs here, in Triton's interpreter."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-op.md"
TRITON = re.compile(r"^:::\{code-block\} python\n:class: triton\n\n(.*?)^:::$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_triton_block_runs_in_the_interpreter(tmp_path):
    blocks = TRITON.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 1
    script = tmp_path / "triton_block.py"
    script.write_text(blocks[0], encoding="utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(PAGE.parents[2] / "src")}
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr


def test_the_page_names_only_what_exists():
    import pullback as pb

    text = PAGE.read_text(encoding="utf-8")
    for name in set(re.findall(r"\bpb\.(\w+)", text)):
        assert hasattr(pb, name), name
