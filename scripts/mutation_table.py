"""Write docs/explanation/mutation-table.md: every mutant of tests/mutants under pullback and under torch's own checkers.

    OMP_NUM_THREADS=1 .venv/bin/python scripts/mutation_table.py

Takes some ten minutes on one core. `--only TEXT` prints the rows of the mutants whose names hold TEXT and writes nothing.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "mutants"), str(Path(__file__).parent)]

from mutant_matrix import Mutant, mutants, subjects  # noqa: E402
from torch_checkers import CHECKERS, FAILS, PASSES, verdicts  # noqa: E402

import pullback as pb  # noqa: E402
from pullback.battery.check import Settings, run_case  # noqa: E402

TABLE = ROOT / "docs" / "explanation" / "mutation-table.md"
COMMAND = "OMP_NUM_THREADS=1 .venv/bin/python scripts/mutation_table.py"
FOUND, MISSED, UNFIT = "yes", "no", "–"


@dataclass(frozen=True, slots=True)
class Row:
    """What is said about one mutant."""

    mutant: Mutant
    codes: tuple[str, ...]
    cause: str
    found: dict[str, str]
    seconds: float

    @property
    def flagged(self) -> bool:
        return bool(self.mutant.codes & set(self.codes))

    def cells(self) -> list[str]:
        codes = " ".join(c for c in self.codes if c in self.mutant.codes) or "**missed**"
        return [self.mutant.name, codes, self.cause, *(self.found[c] for c in CHECKERS)]


def row(mutant: Mutant, right: dict[str, str]) -> Row:
    start = time.perf_counter()
    report = run_case(pb.case(mutant.build(), *mutant.inputs()), Settings())
    seconds = time.perf_counter() - start
    loud = [f for f in report.findings if f.severity != "note"]
    causes = [str(f.attachments["cause"]) for f in loud if f.attachments.get("cause")]
    said = verdicts(mutant.build().apply, mutant.inputs())
    found = {c: UNFIT if right[c] != PASSES else FOUND if said[c] == FAILS else MISSED for c in CHECKERS}
    return Row(mutant, tuple(sorted({f.code for f in loud})), causes[0] if causes else "", found, seconds)


def right_ones() -> tuple[dict[Any, dict[str, str]], list[str]]:
    """Return what torch's checkers say about every right Function, and the right Functions that pullback flags."""
    said, flagged = {}, []
    for subject in subjects():
        said[subject.function] = verdicts(subject.function.apply, subject.inputs())
        if not run_case(pb.case(subject.function, *subject.inputs()), Settings()).ok:
            flagged.append(subject.name)
    return said, flagged


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def page(rows: list[Row], right: dict[Any, dict[str, str]], flagged: list[str], seconds: float) -> str:
    def share(chosen: list[Row], checker: str) -> str:
        return f"{sum(r.found[checker] == FOUND for r in chosen)} of {len(chosen)}"

    kinds = sorted({r.mutant.kind for r in rows})
    by_kind = [[r for r in rows if r.mutant.kind == kind] for kind in kinds]
    counts = [(f"{sum(r.flagged for r in g)} of {len(g)}", *(share(g, c) for c in CHECKERS)) for g in (rows, *by_kind)]
    valued = [r for r in rows if r.mutant.is_value]
    named = [r for r in valued if r.mutant.cause]
    agreed = sum((r.mutant.cause or "") == r.cause for r in valued)
    unfit = ", ".join(f"{c} {sum(v[c] != PASSES for v in right.values())}" for c in CHECKERS)
    median = sorted(r.seconds for r in rows)[len(rows) // 2]
    version = str(torch.__version__).split("+")[0]
    clean = f"Right Functions with an error or a warning: {len(flagged)} of {len(right)}{''.join(f', {name}' for name in flagged)}."
    return f"""# What is found: mutants

{len(right)} right Functions of different kinds, each made wrong in several ways: {len(rows)} wrong Functions in all.
Each of them is shown to be wrong by an experiment that does not use pullback (`tests/mutants/mutant_witness.py`: difference quotients, other
strides, two calls at once, …). "yes" means that a checker with its defaults fails the wrong Function and passes the right one; "–" that it does
not take the right one, or fails it too. opcheck takes operators, not Functions: it got each forward and backward registered as a torch.library op.

Written on {datetime.date.today().isoformat()} by `{COMMAND}`,
with torch {version} on a CPU, in {seconds / 60:.0f} minutes. The median check of the whole battery took {median:.2f} s.
{clean} Right Functions that torch's checkers fail or do not take: {unfit}.

{len(valued)} mutants have a wrong value at the sample itself; the vocabulary of causes has a word for {len(named)} of them.
The first cause told is the expected one, or none where there is no word, for {agreed} of {len(valued)}.

{table(("fault", "pullback", *CHECKERS), (("all", *counts[0]), *((k, *c) for k, c in zip(kinds, counts[1:], strict=True))))}

## Every mutant

{table(("mutant", "pullback", "cause told", *CHECKERS), (r.cells() for r in rows))}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.perf_counter()
    right, flagged = right_ones()
    rows = []
    for mutant in mutants():
        if only in mutant.name:
            rows.append(row(mutant, right[mutant.original]))
            print(*rows[-1].cells(), f"{rows[-1].seconds:.1f} s", sep="  ", flush=True)
    if not only:
        TABLE.write_text(page(rows, right, flagged, time.perf_counter() - start), encoding="utf-8")


if __name__ == "__main__":
    main()
