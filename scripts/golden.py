"""Write tests/golden/mutants.txt: which errors and warnings the whole battery reports for every mutant of the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    spec = importlib.util.spec_from_file_location("kills_and_spares", ROOT / "tests/battery/checks/test_kills_and_spares.py")
    assert spec is not None
    assert spec.loader is not None
    harness = importlib.util.module_from_spec(spec)
    sys.modules["kills_and_spares"] = harness
    spec.loader.exec_module(harness)
    lines = ["Errors and warnings of the whole battery on every mutant; the code in front is the one it was made for."]
    for identity, code, case in harness.mutants("kills"):
        if harness.on_gpu(code):
            continue
        found = harness.codes(harness.run_case(case, harness.settings(code)))
        lines.append(f"{identity}: {found if harness.steady(code, identity) else f'{code} and, from call to call, others'}")
        print(lines[-1], flush=True)
    harness.GOLDEN.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
