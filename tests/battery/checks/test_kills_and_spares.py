"""Every check against the broken ops it must flag and the right ops it must not."""

import importlib.util
import sys
from pathlib import Path

import pytest

from pullback.battery.base import all_checks
from pullback.battery.check import Settings, run_case

HERE = Path(__file__).parent


def load(path):
    name = f"kills_and_spares_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


FILES = {path.stem[:5].upper(): path for path in sorted(HERE.glob("pb*.py"))}


def cases(kind):
    for code, path in FILES.items():
        for i, case in enumerate(getattr(load(path), kind)):
            name = getattr(case.target, "__name__", type(case.target).__name__)
            yield pytest.param(code, case, id=f"{code}-{i}-{name}")


def loud(report):
    return [f"{f.code} {f.severity}: {f.message} {[e.text for e in f.evidence]}" for f in report.findings if f.severity != "note"]


@pytest.mark.parametrize(("code", "case"), list(cases("kills")))
def test_kills(code, case):
    report = run_case(case, Settings())
    assert code in {f.code for f in report.findings}, loud(report)
    assert not [f for f in report.findings if f.code == "PB008"], loud(report)
    for finding in report.findings:
        assert finding.message
        assert finding.repro


@pytest.mark.parametrize(("code", "case"), list(cases("spares")))
def test_spares(code, case):
    report = run_case(case, Settings())
    assert not loud(report)


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.code)
def test_every_check_has_kills_and_spares(check):
    assert check.code in FILES, f"tests/battery/checks has no file for {check.code}"
    module = load(FILES[check.code])
    assert module.kills
    assert module.spares
    assert FILES[check.code].stem == f"{check.code.lower()}_{check.name.replace('-', '_')}"
