"""The pytest plugin: ``pytest --pullback PACKAGE``, the fixture `pullback_check`, and the mark `pullback`.

pytest imports this file in every run of every project that has pullback installed, so it imports nothing of pullback until it is asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pullback.battery.outcomes import Found, Outcome
    from pullback.cli._suite import Policy, Suite
    from pullback.report import Finding, Report
    from pullback.report.codes import Code

PREFIX = "pullback::"
_MARK = (
    "pullback(select, ignore, orders, thorough, seed, dtype, device): the test returns pb.case(...), or several; "
    "it passes where the battery finds nothing"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--pullback``."""
    group = parser.getgroup("pullback", "custom derivatives")
    group.addoption(
        "--pullback",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="Check every custom derivative of a package, module, folder or FILE[::NAME], each check as a test of its own "
        "(may be given several times). `-m pullback` runs only these tests and the marked ones.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and take test ids of ours out of the arguments: they name no file."""
    config.addinivalue_line("markers", _MARK)
    if not config.option.pullback:
        return
    config.option.pullback_ids = [argument for argument in config.args if argument.startswith(PREFIX)]
    config.args = [argument for argument in config.args if not argument.startswith(PREFIX)]
    config.option.pullback_only = not config.args


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each check of each Function of ``--pullback``, before other plugins select among them."""
    specs = config.option.pullback
    if not specs:
        return
    try:
        found = _asked_for(list(_collected(session, specs)), config.option.pullback_ids, specs[0])
    except pytest.UsageError as error:
        if not hasattr(config, "workerinput"):
            raise
        found = [ProblemItem.from_parent(session, name="pullback", nodeid=f"{PREFIX}problem", problem=str(error))]
    items[:] = found if config.option.pullback_only else [*items, *found]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``-n``, keep the checks of a Function in one process, so that its battery runs once, and hand out Function by Function."""
    if not config.option.pullback or config.getoption("dist") not in ("load", "loadgroup", "worksteal"):
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFunction(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("[")[0] if nodeid.startswith(PREFIX) else super()._split_scope(nodeid)

    return ByFunction(config, log)


def _asked_for(found: list[pytest.Item], ids: list[str], spec: str) -> list[pytest.Item]:
    unknown = [i for i in ids if not any(_named_by(item.nodeid, i) for item in found)]
    if unknown:
        raise pytest.UsageError(f"no such check: {unknown[0]} (`pytest --pullback {spec} --collect-only -q -m pullback` lists them)")
    return [item for item in found if not ids or any(_named_by(item.nodeid, i) for i in ids)]


def _named_by(nodeid: str, given: str) -> bool:
    return nodeid == given or nodeid.startswith(f"{given}[")


def _collected(session: pytest.Session, specs: list[str]) -> Iterator[pytest.Item]:
    from pullback.battery.targets import TargetError
    from pullback.battery.workers import WorkerError
    from pullback.cli._suite import Suite
    from pullback.report.codes import registry

    policy = _policy(session.config)
    suite = Suite(policy)
    session.config.add_cleanup(suite.close)
    root = Functions.from_parent(session, name="pullback", nodeid="pullback")
    codes = [registry()["PB002"], *policy.codes()]
    try:
        for outcome in suite.find(specs):
            if outcome.found is None:
                yield FileItem.from_parent(root, name=_file_id(outcome), nodeid=f"{PREFIX}{_file_id(outcome)}", report=outcome.report, policy=policy)
                continue
            for code in codes:
                yield CheckItem.of(root, suite, outcome.found, code)
    except (TargetError, WorkerError) as error:
        raise pytest.UsageError(f"--pullback: {error}") from error


def _file_id(outcome: Outcome) -> str:
    finding = outcome.report.findings[0]
    return f"{finding.subject}[{finding.code}-{finding.name}]"


def _policy(config: pytest.Config) -> Policy:
    """Return `[tool.pullback]` of the project, read once."""
    if not hasattr(config, "_pullback_policy"):
        import click

        from pullback.cli._suite import Policy

        try:
            config._pullback_policy = Policy.of(config.rootpath)  # type: ignore[attr-defined]
        except (click.UsageError, ValueError, OSError) as error:
            raise pytest.UsageError(str(error)) from error
    return config._pullback_policy  # type: ignore[attr-defined]


class Functions(pytest.Collector):
    """Stands above the tests of ``--pullback``."""

    def collect(self) -> Iterable[pytest.Item]:
        return ()


class _Failed(Exception):
    """Carries findings to the place where pytest asks how a failure reads."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        super().__init__()
        self.findings = tuple(findings)


class _Item(pytest.Item):
    """A test whose failure is printed as findings, without a traceback of ours."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, _Failed):
            return _printed(excinfo.value.findings)
        return super().repr_failure(excinfo, style)


class CheckItem(_Item):
    """One check on one Function. The battery runs once for all checks of a Function."""

    suite: Suite
    found: Found
    code: str
    label: str

    @classmethod
    def of(cls, parent: pytest.Collector, suite: Suite, found: Found, code: Code) -> CheckItem:
        from pullback.cli._suite import label

        name = f"{found.name}[{label(code)}]"
        item = cls.from_parent(parent, name=name, nodeid=f"{PREFIX}{name}")
        item.suite, item.found, item.code, item.label = suite, found, code.code, f"{code.code} {code.name}"
        item.add_marker("pullback")
        return item

    def runtest(self) -> None:
        from pullback.cli._suite import verdict

        judged = verdict(self.suite.report(self.found), self.code, self.suite.policy)
        if judged.grave:
            raise _Failed(judged.grave)
        if judged.notes:
            self.add_report_section("call", "notes of pullback", _printed(judged.notes))
        if judged.skipped:
            raise pytest.skip.Exception(judged.skipped, _use_item_location=True)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        path = self.found.path or self.found.target.path
        return Path(path), self.found.line - 1 if self.found.line else None, f"{self.found.short}: {self.label}"


class FileItem(_Item):
    """A file that cannot be imported, or whose cases are broken."""

    def __init__(self, *, report: Report, policy: Policy, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report, self.policy = report, policy
        self.add_marker("pullback")

    def runtest(self) -> None:
        grave = self.policy.grave(self.report.findings)
        if grave:
            raise _Failed(grave)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        first = self.report.findings[0]
        return Path(first.location.path) if first.location else self.path, None, f"{first.subject}: {first.label}"


class ProblemItem(pytest.Item):
    """What is wrong with the arguments, as a test: pytest-xdist shows no usage error of its workers."""

    def __init__(self, *, problem: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problem = problem
        self.add_marker("pullback")

    def runtest(self) -> None:
        pytest.fail(self.problem, pytrace=False)


def _printed(findings: Iterable[Finding]) -> str:
    from pullback.report import Report

    return str(Report(tuple(findings)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Check the cases that a marked test returns."""
    __tracebackhide__ = True
    mark = pyfuncitem.get_closest_marker("pullback")
    if mark is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    returned = pyfuncitem.obj(**arguments)
    _check_cases(_cases(returned, pyfuncitem.name), _policy(pyfuncitem.config), mark.kwargs)
    return True


def _cases(returned: Any, name: str) -> list[Any]:
    from pullback.capture.case import Case

    cases = [returned] if isinstance(returned, Case) else returned
    if isinstance(cases, Iterable) and not hasattr(cases, "__torch_function__"):
        cases = list(cases)
        if cases and all(isinstance(case, Case) for case in cases):
            return cases
    given = f"a list with {_kinds(cases)}" if isinstance(cases, list) else type(returned).__name__ if returned is not None else "nothing"
    raise TypeError(f"{name} is marked `pullback` and returned {given}; it must return pb.case(op, *arguments), or a list of them")


def _kinds(values: list[Any]) -> str:
    return ", ".join(sorted({type(value).__name__ for value in values})) or "nothing in it"


def _check_cases(cases: list[Any], policy: Policy, options: Mapping[str, Any]) -> None:
    __tracebackhide__ = True
    from pullback.cli._suite import run_cases

    _raise_if_failed(run_cases(cases, policy, options), policy)


def _raise_if_failed(report: Report, policy: Policy) -> None:
    __tracebackhide__ = True
    from pullback.report import CheckFailed
    from pullback.report.report import RAN

    ran = any(run.status in RAN for run in report.checks)
    grave = policy.grave(report.findings)
    if grave or not ran:
        raise CheckFailed("\n" + (_printed(grave) if grave else str(report)), report)


@pytest.fixture
def pullback_check(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Call it as `pullback.check`: it fails the test with the printed findings where there are any, and returns the report.

    The settings of `[tool.pullback]` and comments on the class line count as they do on the command line.
    """
    policy = _policy(request.config)

    def check(target: Any, inputs: Any = None, /, **options: Any) -> Report:
        __tracebackhide__ = True
        import pullback
        from pullback.capture.calls import resolve_target

        own = policy.options.settings
        defaults = {key: own[key] for key in ("select", "orders", "thorough", "seed")}
        ignore = [*own["ignore"], *options.pop("ignore", ())]
        report = pullback.check(target, inputs, **{**defaults, **options}, ignore=ignore)
        resolved = resolve_target(target)
        report = policy.left(report, resolved.subject, resolved.location)
        _raise_if_failed(report, policy)
        return report

    return check
