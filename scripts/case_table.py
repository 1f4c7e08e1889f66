"""Write docs/explanation/case-table.md: faults of record under pullback and under torch's own checkers.

    OMP_NUM_THREADS=1 .venv/bin/python scripts/case_table.py [FOLDER] [--only ID,ID]

FOLDER (default ../shared/cases) holds one file a fault with `Buggy`, `Fixed` and `make_inputs()`; some name a `target(F)`, a `reference`, a
`surrogate`, SURROGATE (exact=False) or ORDERS. Each class is checked in a process of its own.
A checker tells a case apart when it fails Buggy and passes Fixed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import multiprocessing
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from torch_checkers import CHECKERS, verdicts

import pullback as pb
from pullback.battery.base import all_checks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT.parent / "shared" / "cases"
TABLE = ROOT / "docs" / "explanation" / "case-table.md"
COMMAND = "OMP_NUM_THREADS=1 .venv/bin/python scripts/case_table.py"
TIMEOUT = 120
LOUD = ("error", "warning")


def judge(path: Path, which: str) -> dict[str, Any]:
    """Return what pullback and torch's checkers say about one class of one file; runs in a process of its own."""
    warnings.simplefilter("ignore")
    spec = importlib.util.spec_from_file_location("case", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["case"] = module
    spec.loader.exec_module(module)
    function = getattr(module, which)
    target = module.target(function) if hasattr(module, "target") else function
    stated = {key: getattr(module, key) for key in ("reference", "surrogate") if hasattr(module, key)}
    if getattr(module, "SURROGATE", False) and "surrogate" not in stated:
        stated["exact"] = False
    start = time.perf_counter()
    report = pb.check(target, module.make_inputs(), orders=getattr(module, "ORDERS", 1), **stated)
    seconds = time.perf_counter() - start
    findings = [[f.code, f.severity] for f in report.findings]
    inputs = module.make_inputs()
    call = target.apply if target is function else target
    return {"findings": findings, "seconds": seconds, "torch": verdicts(call, inputs if isinstance(inputs, tuple) else (inputs,))}


def in_a_process(path: Path, which: str) -> dict[str, Any]:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(judge, (path, which)).get(TIMEOUT)
        except multiprocessing.TimeoutError:
            return {"findings": [], "seconds": float(TIMEOUT), "torch": dict.fromkeys(CHECKERS, "died")}


def compared(path: Path) -> dict[str, Any]:
    """Return the row of one case."""
    buggy, fixed = in_a_process(path, "Buggy"), in_a_process(path, "Fixed")
    bad = {code for code, severity in buggy["findings"] if severity in LOUD}
    good = {code for code, severity in fixed["findings"] if severity in LOUD}
    cells = {c: _cell(buggy["torch"][c], fixed["torch"][c]) for c in CHECKERS}
    kind = next((line.split('"')[1] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("KIND")), "")
    return {"id": path.stem, "kind": kind.replace("_", " "), "codes": sorted(bad - good), "noisy": sorted(good), "seconds": buggy["seconds"], **cells}


def _cell(buggy: str, fixed: str) -> str:
    if buggy == "fails" and fixed == "passes":
        return "yes"
    return {("passes", "passes"): "no", ("fails", "fails"): "no: fails both"}.get((buggy, fixed), "–")


def page(rows: list[dict[str, Any]], seconds: float) -> str:
    version = str(torch.__version__).split("+")[0]
    told = [r for r in rows if r["codes"] and not r["noisy"]]
    noisy = [r for r in rows if r["noisy"]]
    totals = [f"{len(told)} of {len(rows)}", *(f"{sum(r[c] == 'yes' for r in rows)} of {len(rows)}" for c in CHECKERS)]
    lines = [("fault", "kind", "pullback", *CHECKERS), ["---"] * 7, ("told apart", "", *totals)]
    lines += [
        (
            r["id"],
            r["kind"],
            " ".join(r["codes"]) + (f" (mended version: {' '.join(r['noisy'])})" if r["noisy"] else "") or "**missed**",
            *(r[c] for c in CHECKERS),
        )
        for r in rows
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"""# What is found: faults of record

{len(rows)} faults that were reported in public repositories, each rewritten as a small broken Function and its mended version. A checker tells them
apart when it fails the broken one and passes the mended one, on the inputs of a test that the author could have written. torch's checkers run
with their default arguments, on the same inputs in float64; opcheck takes operators, not Functions: it got each forward and backward registered
as a torch.library op. "no: fails both" is a checker that fails the mended version too, "–" one that does not take such a Function.
pullback's column holds the codes that the broken version has and the mended one has not.

Written on {datetime.date.today().isoformat()} by `{COMMAND}`, with torch {version} on a CPU, in {seconds / 60:.0f} minutes.
Mended versions with an error or a warning: {len(noisy)} of {len(rows)}.

{body}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"{options.folder} is not there: the faults of record are not part of this repository, so the table stays as it is.")
        return
    torch.set_num_threads(1)
    all_checks()
    start = time.perf_counter()
    only = [name for name in options.only.split(",") if name]
    rows = []
    for path in sorted(p for p in options.folder.glob("*.py") if not p.name.startswith("_") and (not only or p.stem in only)):
        rows.append(compared(path))
        print(*(f"{key}={value}" for key, value in rows[-1].items()), sep="  ", flush=True)
    if rows and not only:
        TABLE.write_text(page(rows, time.perf_counter() - start), encoding="utf-8")


if __name__ == "__main__":
    main()
