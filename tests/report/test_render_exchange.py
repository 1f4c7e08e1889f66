"""SARIF, GitHub and JUnit: what other programs read."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from pullback.report.finding import Edit, Evidence, Finding, Location
from pullback.report.render import github, junit, sarif
from pullback.report.report import CheckRun, Report

ROOT = Path(__file__).resolve().parents[2]
FULL_SCHEMA = ROOT / "web/node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json"

# The part of the SARIF 2.1.0 schema that concerns what we write: required members, types, no others.
POSITION = {"type": "integer", "minimum": 1}
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}, "additionalProperties": False}
ARTIFACT = {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string", "format": "uri-reference", "pattern": r"^\S+$"}}}
REGION = {
    "type": "object",
    "properties": {"startLine": POSITION, "startColumn": POSITION, "endLine": POSITION},
    "required": ["startLine"],
    "additionalProperties": False,
}
LOCATION = {
    "type": "object",
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "properties": {"artifactLocation": ARTIFACT, "region": REGION},
            "additionalProperties": False,
        },
        "logicalLocations": {"type": "array", "items": {"type": "object", "properties": {"fullyQualifiedName": {"type": "string"}}}},
    },
    "additionalProperties": False,
}
REPLACEMENT = {
    "type": "object",
    "required": ["deletedRegion"],
    "properties": {
        "deletedRegion": {
            "type": "object",
            "required": ["byteOffset", "byteLength"],
            "properties": {"byteOffset": {"type": "integer", "minimum": 0}, "byteLength": {"type": "integer", "minimum": 0}},
        },
        "insertedContent": MESSAGE | {"properties": {"text": {"type": "string"}}},
    },
    "additionalProperties": False,
}
FIX = {
    "type": "object",
    "required": ["artifactChanges"],
    "properties": {
        "description": MESSAGE,
        "artifactChanges": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["artifactLocation", "replacements"],
                "properties": {"artifactLocation": ARTIFACT, "replacements": {"type": "array", "minItems": 1, "items": REPLACEMENT}},
            },
        },
    },
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}, "additionalProperties": False},
    },
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": "array", "items": LOCATION},
        "fixes": {"type": "array", "items": FIX},
    },
    "additionalProperties": False,
}
SUBSET = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "semanticVersion": {"type": "string"},
                                    "rules": {"type": "array", "items": RULE, "uniqueItems": True},
                                },
                                "additionalProperties": False,
                            }
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "invocations": {"type": "array", "items": {"type": "object", "required": ["executionSuccessful"]}},
                    "results": {"type": "array", "items": RESULT},
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}


def report() -> Report:
    hostile = "a%b\n::error::c\x1b[31m\x00 <x & 'y'>, d:e"
    findings = (
        Finding(
            "PB604",
            "strided-grad-output",
            "error",
            "fail",
            "pkg.ops.Fused",
            "backward is wrong when grad_output is not contiguous",
            Location("pkg/a b.py", 4, 5, 6),
            (Evidence("transposed [8, 64]", got="1.0", expected="2.0", error=1.0, tolerance=1e-9),),
            cause="strides are ignored",
            fix="grad_output.contiguous()",
            edits=(Edit("pkg/a b.py", 3, 3, "x", True),),
            repro="pullback check pkg/a.py",
        ),
        Finding("PB101", "grad-output-written", "warning", "fail", "pkg.ops.Other", hostile, Location("pkg/ü.py", 1)),
        Finding("PB301", "nonlinear-in-grad-output", "note", "fail", "pkg.ops.Other", "not linear", None),
    )
    checks = (
        CheckRun("PB604", "pkg.ops.Fused", "fail", seconds=0.25),
        CheckRun("PB501", "pkg.ops.Fused", "pass"),
        CheckRun("PB701", "pkg.ops.Fused", "unsupported", "no setup_context"),
        CheckRun("PB502", "pkg.ops.Other", "error", "ValueError: broke"),
    )
    return Report(findings, checks, ("pkg.ops.Fused", "pkg.ops.Other"), {"pullback": "0.1.0"})


def validate(document: Any, schema: Any) -> None:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)
    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(document)


@pytest.mark.parametrize("given", [Report(), report()], ids=["empty", "full"])
def test_sarif_has_the_required_structure(given: Report):
    validate(json.loads(sarif.render(given)), SUBSET)


@pytest.mark.parametrize("given", [Report(), report()], ids=["empty", "full"])
def test_sarif_validates_against_the_published_schema(given: Report):
    if not FULL_SCHEMA.is_file():
        pytest.skip("the SARIF schema of the package @microsoft/jest-sarif is not installed under web/node_modules")
    validate(json.loads(sarif.render(given)), json.loads(FULL_SCHEMA.read_text(encoding="utf-8")))


def test_the_subset_rejects_what_the_schema_forbids():
    document = json.loads(sarif.render(report()))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        validate(document, SUBSET)


def test_sarif_refers_to_its_rules_and_escapes_paths():
    run = json.loads(sarif.render(report()))["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    uris = [r["locations"][0].get("physicalLocation", {}).get("artifactLocation", {}).get("uri") for r in run["results"]]
    assert uris == ["pkg/a%20b.py", "pkg/%C3%BC.py", None]
    assert run["invocations"] == [{"executionSuccessful": False}]
    assert "\x1b" not in sarif.render(report())


def test_github_writes_one_command_a_finding_and_no_text_can_end_one():
    lines = github.render(report()).split("\n")
    assert len(lines) == 3
    assert lines[0].startswith("::error endLine=6,file=pkg/a b.py,line=4,title=PB604 strided-grad-output::backward is wrong")
    assert lines[0].endswith("%0Afix: grad_output.contiguous()")
    assert lines[1].startswith("::warning col=1,file=pkg/ü.py,line=1,title=")
    assert "a%25b%0A::error::c\\x1b" in lines[1]
    assert lines[2] == "::notice title=PB301 nonlinear-in-grad-output::not linear"
    assert github.render(Report()) == ""


def test_github_escapes_separators_in_properties():
    finding = Finding("PB101", "x", "error", "fail", "s", "m", Location("a,b:c.py", 1))
    assert "file=a%2Cb%3Ac.py," in github.render(Report((finding,)))


def test_junit_counts_and_marks_every_outcome():
    root = ElementTree.fromstring(junit.render(report()).partition("\n")[2])
    assert root.tag == "testsuites"
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    first = root.find("testsuite[@name='pkg.ops.Fused']/testcase[@name='PB604 strided-grad-output']")
    assert first is not None
    assert (first.get("file"), first.get("line"), first.get("time")) == ("pkg/a b.py", "4", "0.250")
    failure = first.find("failure")
    assert failure is not None
    assert failure.get("type") == "error"
    assert "expected: 2.0" in (failure.text or "")
    assert root.find("testsuite/testcase[@name='PB301 nonlinear-in-grad-output']/system-out") is not None


def test_junit_is_xml_whatever_the_message_holds():
    finding = Finding("PB101", "x", "error", "fail", "s\ud800", "\x00\x0b\ufffe]]>", Location("a.py", 1))
    assert ElementTree.fromstring(junit.render(Report((finding,))).partition("\n")[2]).get("failures") == "1"
    ElementTree.fromstring(junit.render(Report()).partition("\n")[2])
