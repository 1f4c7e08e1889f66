"""Precision on code in the styles of public libraries.

Each file under labelled/ is read by a person once: ``# expect: PB101`` marks a line where that finding is right. A label that is not found is a miss.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from pullback.linter.engine import default_codes, lint

FOLDER = Path(__file__).parent / "labelled"
LABEL = re.compile(r"# expect: (?P<codes>[A-Z0-9 ]+)$")
Place = tuple[str, int, str]


def labels() -> set[Place]:
    marked = set()
    for path in FOLDER.glob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = LABEL.search(line)
            marked |= {(path.name, number, code) for code in (match["codes"].split() if match else ())}
    return marked


@pytest.fixture(scope="module")
def found() -> list[Place]:
    report = lint(sorted(FOLDER.glob("*.py")))
    return [(Path(f.location.path).name, f.location.line, f.code) for f in report.findings if f.location]


def test_there_are_200_findings(found: list[Place]):
    assert len(found) >= 200


def test_98_of_100_findings_of_the_default_rules_are_right(found: list[Place]):
    right = labels()
    wrong = [place for place in found if place not in right]
    assert len(wrong) <= 0.02 * len(found), wrong


def test_95_of_100_labelled_faults_are_found(found: list[Place]):
    expected = labels()
    missed = expected - set(found)
    assert len(missed) <= 0.05 * len(expected), sorted(missed)


def test_the_set_covers_the_default_rules(found: list[Place]):
    assert default_codes() - Counter(code for *_, code in found).keys() <= {"PB118", "PB205"} - Counter(code for *_, code in found).keys()
