"""The report as JUnit XML: one suite for each subject, one case for each check."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from xml.etree import ElementTree

from ..clean import clean
from ..finding import Finding
from ..report import CheckRun, Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """Return the report as JUnit XML text.

    An error or warning is a failure, a check that broke an error, a skipped or unsupported check is skipped; notes are passed cases with output.
    """
    suites = ElementTree.Element("testsuites", name="pullback")
    runs: dict[str, list[CheckRun]] = defaultdict(list)
    findings: dict[str, list[Finding]] = defaultdict(list)
    for run in report.checks:
        runs[run.subject].append(run)
    for finding in report.findings:
        findings[finding.subject].append(finding)
    for subject in dict.fromkeys([*report.subjects, *runs, *findings]):
        suites.append(_suite(subject, runs[subject], findings[subject]))
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ElementTree.indent(suites, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode")


def _suite(subject: str, runs: Iterable[CheckRun], findings: list[Finding]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_safe(subject))
    shown: set[str] = set()
    for run in runs:
        if run.code not in shown:
            shown.add(run.code)
            suite.append(_case(subject, run.code, run, [f for f in findings if f.code == run.code]))
    for code in dict.fromkeys(f.code for f in findings if f.code not in shown):
        suite.append(_case(subject, code, None, [f for f in findings if f.code == code]))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in suite):.3f}")
    return suite


def _case(subject: str, code: str, run: CheckRun | None, findings: list[Finding]) -> ElementTree.Element:
    name = findings[0].label if findings else code
    case = ElementTree.Element("testcase", classname=_safe(subject), name=_safe(name), time=f"{run.seconds if run else 0.0:.3f}")
    grave = [f for f in findings if f.severity in ("error", "warning")]
    if findings and findings[0].location is not None:
        case.set("file", _safe(findings[0].location.path))
        case.set("line", str(findings[0].location.line))
    if run is not None and run.status == "error" and not grave:
        ElementTree.SubElement(case, "error", message=_safe(run.reason or "the check broke"))
    elif grave:
        failure = ElementTree.SubElement(case, "failure", message=_safe(grave[0].message), type=grave[0].severity)
        failure.text = "\n\n".join(_describe(f) for f in grave)
    elif run is not None and run.status in ("skipped", "unsupported"):
        ElementTree.SubElement(case, "skipped", message=_safe(run.reason or run.status))
    elif findings:
        ElementTree.SubElement(case, "system-out").text = "\n\n".join(_describe(f) for f in findings)
    return case


def _describe(finding: Finding) -> str:
    lines = [f"{finding.label}: {finding.message}"]
    lines += [str(finding.location)] if finding.location else []
    for evidence in finding.evidence:
        lines.append(f"evidence: {evidence.text}")
        lines += [f"got: {evidence.got}"] if evidence.got else []
        lines += [f"expected: {evidence.expected}"] if evidence.expected else []
    lines += [f"cause: {finding.cause}"] if finding.cause else []
    lines += [f"fix: {finding.fix}"] if finding.fix else []
    lines += [f"repro: {finding.repro}"] if finding.repro else []
    return "\n".join(_safe(line) for line in lines)


def _safe(text: str) -> str:
    """Escape what a terminal and XML 1.0 forbid."""
    return _NOT_XML.sub(lambda m: f"\\u{ord(m[0]):04x}", clean(text, keep_newlines=True))
