"""Write how fast the ops are, against what each competes with: docs/explanation/benchmarks.md with C kernels, benchmarks-without-compiler.md without.

    .venv/bin/python benchmarks/ops.py --json ops.json
    .venv/bin/python benchmarks/ops.py --kernels 0 --no-compile --json fallbacks.json
    .venv/bin/python scripts/bench_table.py ops.json fallbacks.json [--folder FOLDER]

Without a file benchmarks/ops.py is run first in both ways, which takes some twenty minutes on a quiet core. Several files are laid over each other,
the later one wins: ops may be measured one at a time. A page of which no row was measured is left as it is.
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
FOLDER = ROOT / "docs" / "explanation"
PAGES = {True: "benchmarks.md", False: "benchmarks-without-compiler.md"}
COMMAND = ".venv/bin/python scripts/bench_table.py"
COLUMNS = (("native", "torch's own"), ("compile", "torch.compile"), ("composite", "plain composite"), ("tutorial", "tutorial's Function"))
FASTER, SLOWER = 1.05, 1 / 1.05
EXPLAINED = """\
All contenders of an op take turns in one process, the order reversed every round. *ours* is forward and backward of pullback's op, median. *limit* is
ours over a plain copy of the bytes that must move. The columns after it say how many times longer the others take, as the median of the rounds' own
ratios: above 1 ours is faster, and bold where the other one is faster by more than 5 %. *kept* is what ours keeps for backward beside arguments and
output, *peak* the most that is in use at once, both in bytes an element. Up to 10,000 elements the cost of a call is measured, not the arithmetic."""

FALLBACKS = """\
This is what the ops do where `pb.ops.compile_kernels()` was not called: the same numbers, random streams included, by torch's own operations.
[With C kernels](benchmarks.md) they are faster."""
REMAINS = """\
What a plain composite does faster, it does because torch runs it without coming back to Python, or because it has less to promise:

- An op is a node of its own in the graph, at every size, and torch calls its forward and its backward in Python: five to ten microseconds more than
  a node of torch's own, with the checks of its arguments. Beside one or two operations on 10,000 elements, which take two to five microseconds each,
  that shows: `scale`, `split`, `muladd`, `guided_relu`, `exp_scaled`, `swiglu`. A bare `torch.autograd.Function` around the same calls, without
  checks, took as long as its composite times 1.07 (`scale`), 1.20 (`muladd`) and 1.14 (`swiglu`), ours 1.20, 1.25 and 1.33, in one run of 200 rounds
  on a quiet machine. An op could hand small tensors to its composite. Then what it keeps, its place in the graph and its last digits would depend
  on the size, and what was checked on small samples would not be what runs on large ones.
- `dropout` and `add_noise` make the numbers that the kernels make, from a seed and the place of each element, whatever the threads and strides. That
  takes torch nine operations for a mask and twenty for normal numbers, where `rand_like` and `randn_like` are one loop.
- `softmax_cross_entropy`, `logsumexp` and `rms_norm` keep at most one number a row, and compute again in backward what a composite keeps in a tensor
  of the size of theirs."""

Row = dict[str, Any]


def read(paths: Sequence[Path]) -> tuple[dict[str, Any], list[Row]]:
    """Return what was said about the machine, and the rows; of two of the same op, size, allocator and kernels the later one."""
    about: dict[str, Any] = {}
    rows: dict[tuple[str, int, bool, bool], Row] = {}
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        about |= {key: value for key, value in data.items() if key != "rows"}
        rows |= {(row["op"], row["size"], row["tuned"], row["kernels"]): row for row in data["rows"]}
    return about, list(rows.values())


def page(about: dict[str, Any], rows: Sequence[Row], machine: str, note: str = "") -> str:
    """Return the page of rows that were measured all with kernels, or all without."""
    kernels = rows[0]["kernels"]
    threads = about.get("threads", 1)
    where = [machine, f"{threads} thread{'s' if threads != 1 else ''}", f"torch {about.get('torch', '?')}", "float32"]
    where.append("with C kernels" if kernels else "without C kernels")
    parts = [
        "# How fast the ops are" if kernels else "# How fast the ops are without a compiler",
        f"Measured on one machine: {', '.join(where)}. Written by `{COMMAND}` from what `benchmarks/ops.py` measures; every number is of that run.",
        *([note] if note else []),
        *([] if kernels else [FALLBACKS]),
        EXPLAINED,
        verdict(rows),
        *([] if kernels else [slower_than_composite(rows), REMAINS]),
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


def slower_than_composite(rows: Sequence[Row]) -> str:
    """Return at which sizes which ops take more than 1.05 times as long as their plain composites, with either allocator."""
    parts = []
    for size in sorted({row["size"] for row in rows}):
        worst: dict[str, float] = {}
        for row in rows:
            if row["size"] == size:
                worst[row["op"]] = min(worst.get(row["op"], math.inf), row["ratios"]["composite"])
        found = [f"`{op}` {digits(ratio)}" for op, ratio in sorted(worst.items(), key=lambda item: item[1]) if ratio < SLOWER]
        parts.append(f"- {size:,} elements: {', '.join(found) or 'none'}")
    return "\n".join(["Ops that take more than 1.05 times as long as their plain composite, the composite's time over ours:", "", *parts])


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
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages go")
    parser.add_argument("--note", default="", metavar="TEXT", help="what else a reader must know of the run")
    options = parser.parse_args()
    import torch

    from pullback.benchmark.environment import device_name

    with tempfile.TemporaryDirectory() as folder:
        if not options.files:
            options.files = [measured(Path(folder) / "ops.json"), measured(Path(folder) / "fallbacks.json", "--kernels", "0", "--no-compile")]
        about, rows = read(options.files)
    for kernels, name in PAGES.items():
        chosen = [row for row in rows if row["kernels"] is kernels]
        if chosen:
            (options.folder / name).write_text(page(about, chosen, device_name(torch.device("cpu")), options.note), encoding="utf-8")
            print(f"{options.folder / name}: {len(chosen)} rows. {verdict(chosen)}")


def measured(path: Path, *flags: str) -> Path:
    """Run the benchmark and return where its figures are; it exits with 1 where a promise is not kept, which the page shows."""
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "ops.py"), *flags, "--json", str(path)], check=False, cwd=ROOT)
    return path


if __name__ == "__main__":
    main()
