"""Every check against the broken ops it must flag and the right ops it must not.

`tests/golden/mutants.txt` holds what the whole battery says about every broken op, so that a review shows misses and false alarms;
`make golden` writes it anew.
"""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from pullback.battery.base import all_checks
from pullback.battery.check import Settings, run_case

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden" / "mutants.txt"
NAMES = {check.code: f"{check.code.lower()}_{check.name.replace('-', '_')}" for check in all_checks()}
FILES = {code: HERE / f"{name}.py" for code, name in NAMES.items() if (HERE / f"{name}.py").exists()}
"""The file of every check. Others may stand beside it that hold more of its kills and spares, each under a theme: ``pb625_ranks.py``."""


@cache
def load(path):
    return loaded_anew(path, "")


def loaded_anew(path, suffix="_anew"):
    """Return the module of one file: what its Functions keep between calls is as at the beginning, and so is what it draws."""
    name = f"kills_and_spares_{path.stem}{suffix}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(sum(map(ord, path.stem)))
        spec.loader.exec_module(module)
    return module


def themes(code):
    """Return the files that stand beside that of a check, by their theme."""
    found = {path.stem.removeprefix(f"{code.lower()}_"): path for path in sorted(HERE.glob(f"{code.lower()}_*.py"))}
    return {theme: path for theme, path in found.items() if path != FILES[code]}


def mutants(kind, load=load):
    """Return (identity, code, case) for every case of a kind; the identity is stable as long as the lists only grow at their ends."""
    found = []
    for code, path in FILES.items():
        for start, file in {code: path, **{f"{code}-{theme}": file for theme, file in themes(code).items()}}.items():
            for i, case in enumerate(getattr(load(file), kind)):
                name = getattr(case.target, "__qualname__", type(case.target).__name__)
                found.append((f"{start}-{i}-{name}", code, case))
    return found


def on_gpu(code):
    return any(check.code == code and check.tier == "gpu" for check in all_checks())


NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def parameters(kind):
    return [pytest.param(identity, code, case, id=identity, marks=NEEDS_CUDA if on_gpu(code) else ()) for identity, code, case in mutants(kind)]


def loud(report):
    return [
        f"{f.code} {f.severity}: {f.message} {[(e.text, e.got, e.expected) for e in f.evidence]}" for f in report.findings if f.severity != "note"
    ]


def codes(report):
    return " ".join(sorted({f.code for f in report.findings if f.severity != "note"})) or "-"


def steady(code, identity):
    """Whether what the battery finds besides is the same every time: not where an op returns memory that nobody wrote."""
    return not any(identity.endswith(f"-{name}") for name in getattr(load(FILES[code]), "unsteady", ()))


def settings(code):
    """The default tier, where the check itself belongs to the thorough tier that check too, and what its file sets."""
    thorough = {check.code for check in all_checks() if check.tier == "thorough"}
    own = getattr(load(FILES[code]), "settings", {})
    return Settings(**{"thorough": code in thorough, "ignore": frozenset(thorough - {code})} | own)


@cache
def golden():
    return dict(line.split(": ", 1) for line in GOLDEN.read_text().splitlines() if ": " in line)


@pytest.mark.parametrize(("identity", "code", "case"), parameters("kills"))
def test_kills(identity, code, case):
    report = run_case(case, settings(code))
    assert code in {f.code for f in report.findings}, loud(report)
    assert not [f for f in report.findings if f.code == "PB008"], loud(report)
    assert all(f.message and f.repro for f in report.findings)


@pytest.mark.parametrize(("identity", "code", "case"), parameters("spares"))
def test_spares(identity, code, case):
    assert not loud(run_case(case, settings(code)))


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.code)
def test_every_check_has_kills_and_spares(check):
    assert check.code in FILES, f"tests/battery/checks has no file for {check.code}"
    module = load(FILES[check.code])
    assert module.kills
    assert module.spares
    assert all(load(path).kills or load(path).spares for path in themes(check.code).values())


def test_every_file_belongs_to_a_check():
    known = {path for code in FILES for path in (FILES[code], *themes(code).values())}
    assert not {path.name for path in HERE.glob("pb*.py") if path not in known}


def test_golden_lists_every_mutant():
    assert set(golden()) == {identity for identity, code, _ in mutants("kills") if not on_gpu(code)}, "run `make golden`"


@pytest.mark.slow
def test_golden_is_what_the_battery_says():
    """Slow, since sweeps with a budget may find one code more or less on another machine: read the difference, do not just write it anew."""
    chosen = [(identity, code, case) for identity, code, case in mutants("kills", loaded_anew) if steady(code, identity) and not on_gpu(code)]
    now = {identity: codes(run_case(case, settings(code))) for identity, code, case in chosen}
    assert {identity: golden().get(identity) for identity in now} == now, "run `make golden` and read the difference"
