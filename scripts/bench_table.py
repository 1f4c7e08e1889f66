"""Write docs/explanation/benchmarks.md: every op of pullback.ops against what it competes with, as benchmarks/ops.py measured it.

    .venv/bin/python benchmarks/ops.py --json ops.json
    .venv/bin/python scripts/bench_table.py ops.json [--output PAGE]

Without a file benchmarks/ops.py is run first, which takes some ten minutes on a quiet core. Several files are laid over each other, the later one
wins: ops may be measured one at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
COMMAND = ".venv/bin/python scripts/bench_table.py"
COLUMNS = (("native", "torch's own"), ("compile", "torch.compile"), ("composite", "plain composite"), ("tutorial", "tutorial's Function"))
FASTER, SLOWER = 1.05, 1 / 1.05
EXPLAINED = """\
All contenders of an op take turns in one process, the order reversed every round. *ours* is forward and backward of pullback's op, median. *limit* is
ours over a plain copy of the bytes that must move. The columns after it say how many times longer the others take, as the median of the rounds' own
ratios: above 1 ours is faster, and bold where the other one is faster by more than 5 %. *kept* is what ours keeps for backward beside arguments and
output, *peak* the most that is in use at once, both in bytes an element. Up to 10,000 elements the cost of a call is measured, not the arithmetic."""

Row = dict[str, Any]


def read(paths: Sequence[Path]) -> tuple[dict[str, Any], list[Row]]:
    """Return what was said about the machine, and the rows; of two of the same op, size and allocator the later one."""
    about: dict[str, Any] = {}
    rows: dict[tuple[str, int, bool], Row] = {}
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        about |= {key: value for key, value in data.items() if key != "rows"}
        rows |= {(row["op"], row["size"], row["tuned"]): row for row in data["rows"]}
    return about, list(rows.values())


def page(about: dict[str, Any], rows: Sequence[Row], machine: str, note: str = "") -> str:
    """Return the page."""
    kernels = all(row["kernels"] for row in rows)
    threads = about.get("threads", 1)
    where = [machine, f"{threads} thread{'s' if threads != 1 else ''}", f"torch {about.get('torch', '?')}", "float32"]
    where.append("with C kernels" if kernels else "without C kernels")
    parts = [
        "# How fast the ops are",
        f"Measured on one machine: {', '.join(where)}. Written by `{COMMAND}` from what `benchmarks/ops.py` measures; every number is of that run.",
        *([note] if note else []),
        EXPLAINED,
        verdict(rows),
    ]
    for tuned, title, text in (
        (True, "With `pb.ops.tune_allocator()`", "Freed memory stays with the process, so that new blocks are not faulted in again."),
        (False, "With the allocator as it is", "From 32 MB a block on, faulting in fresh memory hides most of what differs."),
    ):
        chosen = [row for row in rows if row["tuned"] is tuned]
        if chosen:
            parts += [f"## {title}", text]
            for size in sorted({row["size"] for row in chosen}):
                parts += [f"### {size:,} elements", table([row for row in chosen if row["size"] == size])]
    return "\n\n".join(parts) + "\n"


def verdict(rows: Iterable[Row]) -> str:
    """Return in how many comparisons ours is faster, even or slower."""
    ratios = [ratio for row in rows for ratio in row["ratios"].values()]
    faster, slower = sum(r > FASTER for r in ratios), sum(r < SLOWER for r in ratios)
    return f"Of {len(ratios)} comparisons ours is faster in {faster}, within 5 % in {len(ratios) - faster - slower}, and slower in {slower}."


def table(rows: Sequence[Row]) -> str:
    """Return the rows of one size as a table."""
    columns = [(key, title) for key, title in COLUMNS if any(key in row["ratios"] for row in rows)]
    head = ["op", "ours", "limit", *(title for _, title in columns), "kept", "peak"]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for row in rows:
        ratios = [cell(row["ratios"].get(key)) for key, _ in columns]
        limit = digits(row["limit"]) if row["limit"] else "–"
        peak = digits(row["peak"]["ours"]) if "ours" in row["peak"] else "–"
        lines.append([f"`{row['op']}`", f"{digits(row['ms'])} ms", limit, *ratios, digits(row["kept"]["ours"]), peak])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"**{digits(ratio)}**" if ratio < SLOWER else digits(ratio)


def digits(value: float) -> str:
    """Return three digits, none of them an exponent; a state of a few bytes shared by all elements is next to nothing."""
    value = float(f"{value:.3g}")
    if value < 1e-3:
        return "< 0.001" if value else "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--output", type=Path, default=PAGE, metavar="PAGE")
    parser.add_argument("--note", default="", metavar="TEXT", help="what else a reader must know of the run")
    options = parser.parse_args()
    import torch

    from pullback.benchmark.environment import device_name

    with tempfile.TemporaryDirectory() as folder:
        if not options.files:
            options.files = [Path(folder) / "ops.json"]
            subprocess.run([sys.executable, str(ROOT / "benchmarks" / "ops.py"), "--json", str(options.files[0])], check=False, cwd=ROOT)
        about, rows = read(options.files)
    options.output.write_text(page(about, rows, device_name(torch.device("cpu")), options.note), encoding="utf-8")
    print(f"{options.output}: {len(rows)} rows. {verdict(rows)}")


if __name__ == "__main__":
    main()
