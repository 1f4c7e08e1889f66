"""Never a silent wrong number: every transform, eager and compiled, over every op, is equal to plain torch or raises a clear error.

What is equal is committed in tests/golden/op_matrix.txt; PULLBACK_REGENERATE=1 with ``-m ""`` writes it anew. Letters: ``=`` equal, ``e`` an error of
the op that names it, ``t`` torch refuses plain torch code there too.
"""

import os
from pathlib import Path

import pytest
from authoring_matrix import TRANSFORMS, verdict
from authoring_zoo import HAVE_C, ZOO

GOLDEN = Path(__file__).parents[1] / "golden" / "op_matrix.txt"
REGENERATE = bool(os.environ.get("PULLBACK_REGENERATE"))
QUICK = {"muladd (broadcasting)", "round_ste (surrogate)", "rms_norm (bare statistic)"}
INDUCTOR = ["linear_gelu (of=)", "spike (surrogate)", "affine (container)", "numpy_sin (opaque, numpy)"]

# dynamo itself makes an instance of Function for every Function that it traces
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]


def read_golden() -> dict[tuple[str, str], str]:
    found = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.exists() else ():
        if "|" in line and not line.startswith("op "):
            name, *cells = [cell.strip() for cell in line.split("|")]
            found[name, "eager"], found[name, "compile"] = (cell.replace(" ", "") for cell in cells)
    return found


def write_golden(found: dict[tuple[str, str], str]) -> None:
    names = [name for name in ZOO if (name, "eager") in found]
    lines = [
        f"Transforms, in order: {', '.join(TRANSFORMS)}.",
        "= equal to plain torch   e raises, naming the op   t torch refuses plain torch code too",
        "",
    ]
    lines.append(f"{'op':36} | {'eager':17} | compile (aot_eager)")
    for name in names:
        eager, compiled = (" ".join(found.get((name, mode), "?" * len(TRANSFORMS))) for mode in ("eager", "compile"))
        lines.append(f"{name:36} | {eager:17} | {compiled}")
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")


def letter(text: str) -> str:
    return {"equal": "=", "error": "e", "torch": "t"}.get(text.partition(":")[0], "?")


def check(name: str, mode: str) -> None:
    if "C," in name and not HAVE_C:
        pytest.skip("no C compiler")
    verdicts = {transform: verdict(transform, ZOO[name], None if mode == "eager" else "aot_eager") for transform in TRANSFORMS}
    bad = {transform: text for transform, text in verdicts.items() if letter(text) == "?"}
    assert not bad, f"{name}, {mode}: {bad}"
    row = "".join(letter(text) for text in verdicts.values())
    golden = read_golden()
    if REGENERATE:
        golden[name, mode] = row
        write_golden(golden)
    assert row == golden[name, mode], f"{name}, {mode}: {verdicts}"


@pytest.mark.parametrize("name", ZOO)
def test_eager(name):
    check(name, "eager")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ZOO])
def test_compiled(name):
    check(name, "compile")


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["backward", "func.grad", "vmap(grad)", "hessian"])
@pytest.mark.parametrize("name", INDUCTOR)
def test_inductor(name, transform):
    text = verdict(transform, ZOO[name], "inductor")
    assert letter(text) in "=t", text


def test_the_table_covers_every_op_and_has_no_gaps():
    golden = read_golden()
    assert {name for name, _ in golden} == set(ZOO)
    assert all(set(row) <= set("=et") and len(row) == len(TRANSFORMS) for row in golden.values())
    assert sum(row.count("=") for row in golden.values()) > 0.9 * sum(len(row) for row in golden.values())
