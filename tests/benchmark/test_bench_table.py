"""The pages that say how fast the ops are."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_table.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("bench_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(op, kernels, composite, size=10_000, tuned=True):
    return {
        "op": op,
        "size": size,
        "tuned": tuned,
        "kernels": kernels,
        "ms": 0.05,
        "limit": None,
        "ratios": {"composite": composite},
        "kept": {"ours": 0.0},
        "peak": {},
    }


def write(path, *rows):
    path.write_text(json.dumps({"torch": "2.13", "threads": 1, "rows": rows}), encoding="utf-8")
    return str(path)


def test_rows_with_and_without_kernels_go_to_pages_of_their_own(script, tmp_path, monkeypatch):
    first = write(tmp_path / "a.json", row("scale", True, 1.5), row("scale", False, 0.5), row("swish", False, 0.97))
    later = write(tmp_path / "b.json", row("scale", False, 0.75), row("scale", False, 0.85, tuned=False))
    monkeypatch.setattr(sys, "argv", ["bench_table.py", first, later, "--folder", str(tmp_path)])
    script.main()
    fast, fallbacks = ((tmp_path / name).read_text(encoding="utf-8") for name in ("benchmarks.md", "benchmarks-without-compiler.md"))
    assert "with C kernels" in fast
    assert "1.50" in fast
    assert "0.750" not in fast
    assert "without C kernels" in fallbacks
    assert "- 10,000 elements: `scale` 0.750\n" in fallbacks  # the later file wins, and of the allocators the worse one
    assert "| `scale` | 0.0500 ms | – | **0.850** | 0 | – |" in fallbacks


def test_a_page_without_rows_is_left_alone(script, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench_table.py", write(tmp_path / "a.json", row("scale", False, 1.0)), "--folder", str(tmp_path)])
    script.main()
    assert not (tmp_path / "benchmarks.md").exists()
    assert "- 10,000 elements: none\n" in (tmp_path / "benchmarks-without-compiler.md").read_text(encoding="utf-8")
