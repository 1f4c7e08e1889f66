"""Every wrong Function is flagged under a fitting code and its cause is named; every right one comes out clean.

`make test` takes 60 mutants at one seed, chosen by a fixed stride; `make thorough` takes all of them at 20 seeds.
"""

import functools
from pathlib import Path

import pytest
from mutant_matrix import VALUE, mutants, subjects

import pullback as pb
from pullback.battery.check import Settings, run_case

QUICK = 60
SEEDS = range(20)
CAUSED = 0.95

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch")


def quick():
    every = mutants()
    return [every[i * len(every) // QUICK] for i in range(QUICK)]


def parameters(chosen):
    """Tests of one mutant share a worker, and with it the report."""
    return [pytest.param(m, id=m.name) for m in chosen]


def rest():
    chosen = {m.name for m in quick()}
    return [m for m in mutants() if m.name not in chosen]


@functools.cache
def report(mutant, seed=0):
    return run_case(pb.case(mutant.build(), *mutant.inputs(seed)), Settings(seed=seed))


def loud(found):
    return {f.code: f.message for f in found.findings if f.severity != "note"}


def causes(found):
    """Return name and certainty of every cause that was told for a wrong value."""
    return [(f.attachments.get("cause"), f.certain) for f in found.findings if f.code in VALUE and f.severity != "note"]


def assert_flagged(mutant, seed=0):
    found = loud(report(mutant, seed))
    assert mutant.codes & set(found), found
    assert "PB008" not in found


def misnamed(mutant, seed=0):
    """Return why the cause is not named as it should be, or an empty string."""
    told = causes(report(mutant, seed))
    if mutant.cause is None:
        certain = [name for name, sure in told if name and sure]
        return f"no word fits, yet {certain} is called certain" if certain else ""
    if any(sure and name not in (None, mutant.cause) for name, sure in told):
        return f"{told} is certain, and wrong"
    return "" if (mutant.cause, True) in told else f"told {told}"


@pytest.mark.parametrize("mutant", parameters(quick()))
def test_mutant_is_wrong(mutant):
    assert mutant.wrong(mutant.build(), mutant.inputs())
    assert not mutant.wrong(mutant.original, mutant.inputs())


@pytest.mark.parametrize("mutant", parameters(quick()))
def test_mutant_is_flagged(mutant):
    assert_flagged(mutant)


@pytest.mark.parametrize("mutant", parameters(m for m in quick() if m.is_value))
def test_cause_is_named(mutant):
    assert not misnamed(mutant)


@pytest.mark.parametrize("mutant", parameters(m for m in quick() if m.is_value and m.cause is None))
def test_without_a_word_the_place_is_told(mutant):
    found = [f for f in report(mutant).findings if f.code == "PB501"]
    assert found
    assert all("no known pattern explains it: " in f.evidence[-1].text and "wrong" in f.evidence[-1].text for f in found)


@pytest.mark.parametrize("subject", [pytest.param(s, id=s.name) for s in subjects()])
def test_right_function_is_clean(subject):
    found = run_case(pb.case(subject.function, *subject.inputs()), Settings())
    assert not loud(found)
    assert found.ok


def test_there_are_enough():
    assert len(subjects()) == 25
    assert len(mutants()) >= 150
    assert len({m.name for m in mutants()}) == len(mutants())
    assert len({m.kind for m in mutants()}) >= 40
    assert len({m.kind for m in quick()}) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("mutant", parameters(rest()))
def test_every_other_mutant_is_wrong(mutant):
    test_mutant_is_wrong(mutant)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", parameters(mutants()))
def test_mutant_is_flagged_at_every_seed(mutant):
    for seed in SEEDS:
        if mutant.wrong(mutant.build(), mutant.inputs(seed)):
            assert_flagged(mutant, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_causes_are_named():
    caused = [m for m in mutants() if m.is_value]
    wrong = {m.name: misnamed(m) for m in caused if misnamed(m)}
    assert not [text for text in wrong.values() if "certain" in text]
    assert len(wrong) <= (1 - CAUSED) * len(caused), wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("subject", [pytest.param(s, id=s.name) for s in subjects()])
def test_right_function_is_clean_at_every_seed(subject):
    for seed in SEEDS:
        found = run_case(pb.case(subject.function, *subject.inputs(seed)), Settings(seed=seed))
        assert not loud(found), seed


def test_the_committed_table_is_of_these_mutants():
    """`scripts/mutation_table.py` writes it."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "mutation-table.md").read_text(encoding="utf-8")
    listed = [line.split(" | ")[0].removeprefix("| ") for line in page.split("## Every mutant")[1].splitlines() if line.startswith("| ")]
    assert sorted(listed[2:]) == sorted(m.name for m in mutants())
    assert "missed" not in page
