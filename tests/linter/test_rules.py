"""Every rule's own data: `bad` is found, `good` is not, `fixed` is what the fix makes of `bad`."""

import ast
import inspect
from pathlib import Path

import pytest

from pullback.linter.engine import Settings, all_rules, default_codes, lint_file
from pullback.linter.repair import repair
from pullback.linter.rule import PREAMBLE, Rule
from pullback.report.codes import registry

RULES = sorted(all_rules().values(), key=lambda rule: rule.code)
MENDING = [rule for rule in RULES if rule.fixed]
SECTIONS = ("Why it matters:", "How it is measured:", "Instead:")

by_code = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def code(text: str) -> bytes:
    return (PREAMBLE + text.strip("\n") + "\n").encode()


def found(text: str, *codes: str) -> list[str]:
    path = Path("ops.py")
    return [f.code for f in lint_file(path, Settings(frozenset(codes)), data=code(text)).findings]


@by_code
def test_bad_code_is_found(rule: Rule):
    assert found(rule.bad, rule.code)


@by_code
def test_good_code_is_not(rule: Rule):
    assert found(rule.good, rule.code) == []


@by_code
def test_good_code_is_clean_under_every_default_rule(rule: Rule):
    assert found(rule.good, *default_codes()) == []


@by_code
def test_findings_name_the_class_the_line_and_the_remedy(rule: Rule):
    text = code(rule.bad)
    findings = lint_file(Path("ops.py"), Settings(frozenset([rule.code])), data=text).findings
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    for finding in findings:
        assert finding.subject.rsplit(".", 1)[-1] in names
        assert finding.location is not None
        assert 1 <= finding.location.line <= text.count(b"\n")
        assert finding.fix
        assert finding.message
        assert "\n" not in finding.message


@pytest.mark.parametrize("rule", MENDING, ids=lambda rule: rule.code)
def test_fix_gives_fixed_is_clean_and_changes_nothing_more(rule: Rule):
    settings = Settings(frozenset([rule.code]))
    mended = repair(Path("ops.py"), settings, unsafe=True, data=code(rule.bad)).after
    assert mended.decode() == code(rule.fixed).decode()
    assert lint_file(Path("ops.py"), settings, data=mended).findings == []
    assert repair(Path("ops.py"), settings, unsafe=True, data=mended).after == mended


@pytest.mark.parametrize("rule", MENDING, ids=lambda rule: rule.code)
def test_a_fix_brings_no_new_finding(rule: Rule):
    settings = Settings(default_codes())
    before = {f.code for f in lint_file(Path("ops.py"), settings, data=code(rule.bad)).findings}
    after = {f.code for f in lint_file(Path("ops.py"), settings, data=code(rule.fixed)).findings}
    assert after <= before


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.fixed], ids=lambda rule: rule.code)
def test_a_rule_without_fixed_offers_no_edit(rule: Rule):
    findings = lint_file(Path("ops.py"), Settings(frozenset([rule.code])), data=code(rule.bad)).findings
    assert all(not f.edits for f in findings)


@by_code
def test_safe_means_that_its_edits_are(rule: Rule):
    if rule.fixed:
        findings = lint_file(Path("ops.py"), Settings(frozenset([rule.code])), data=code(rule.bad)).findings
        assert all(e.safe is rule.safe for f in findings for e in f.edits)


@by_code
def test_documentation_has_its_sections(rule: Rule):
    doc = inspect.getdoc(type(rule)) or ""
    assert doc.splitlines()[0].endswith(".")
    assert [s for s in SECTIONS if s in doc] == list(SECTIONS)


def test_registry_and_rules_agree():
    listed = {c: e for c, e in registry().items() if c[:3] in ("PB1", "PB2", "PB3", "PB4")}
    assert listed.keys() == all_rules().keys()
    for rule_code, entry in listed.items():
        rule = all_rules()[rule_code]
        assert (entry.name, entry.severity) == (rule.name, rule.severity)
        assert entry.severity == {"PB1": "error", "PB2": "warning", "PB3": "note", "PB4": "warning"}[rule_code[:3]]
        assert rule.default is (rule_code[:3] != "PB4")


def test_names_are_unique_over_the_whole_space():
    names = [entry.name for entry in registry().values()]
    assert len(names) == len(set(names))
