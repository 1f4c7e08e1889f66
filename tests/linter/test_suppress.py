"""`# noqa`, `# pullback: ignore`, and the suppressions that nothing needs."""

import pytest

from pullback.linter.suppress import apply, suppressions, unused
from pullback.report.finding import Finding, Location

OP = """
class Op(torch.autograd.Function):{head}
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        ctx.unread = k{unread}
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g.mul_(ctx.k), None{write}
"""


def op(head: str = "", unread: str = "", write: str = "") -> str:
    return OP.format(head=head, unread=unread, write=write)


def codes(findings: list[Finding]) -> list[str]:
    return sorted(f.code for f in findings)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (op(), ["PB101", "PB204"]),
        (op(write="  # noqa: PB101"), ["PB204"]),
        (op(write="  # noqa"), ["PB204"]),
        (op(write="  # NOQA:PB101,E501"), ["PB204"]),
        (op(write="  # noqa: E501"), ["PB101", "PB204"]),
        (op(write="  # pullback: ignore[PB101] the caller owns it"), ["PB204"]),
        (op(write="  # pullback: ignore[grad-output-written]"), ["PB204"]),
        (op(write="  # pullback: ignore[PB1]"), ["PB204"]),
        (op(write="  # pullback: ignore"), ["PB204"]),
        (op(head="  # pullback: ignore[PB101, PB204] reason"), []),
        (op(head="  # pullback: ignore[PB2]"), ["PB101"]),
    ],
)
def test_comments_silence_their_line_or_their_class(run, text: str, left: list[str]):
    assert codes(run(text)) == left


def test_unused_codes_are_reported_where_they_stand(run):
    findings = [f for f in run(op(unread="  # pullback: ignore[PB204, PB101]")) if f.code == "PB006"]
    assert [(f.location.line, "PB101" in f.message, "PB204" in f.message) for f in findings] == [(11, True, False)]


@pytest.mark.parametrize("comment", ["# pullback: ignore[PB103] never", "# noqa: PB103", "# pullback: ignore"])
def test_a_comment_that_silences_nothing_is_reported(run, comment: str):
    text = op().replace("return x * k", f"return x * k  {comment}")
    assert "PB006" in codes(run(text))


@pytest.mark.parametrize("comment", ["# noqa", "# noqa: E501", "# pullback: ignore[PB604] checked by hand"])
def test_what_cannot_be_judged_is_not_reported(run, comment: str):
    text = op().replace("return x * k", f"return x * k  {comment}")
    assert "PB006" not in codes(run(text))


def test_rules_that_did_not_run_are_not_judged(run):
    assert codes(run(op(write="  # pullback: ignore[PB101]"), "PB204")) == ["PB204"]


def test_an_unknown_code_is_an_error(run):
    findings = [f for f in run(op(write="  # pullback: ignore[PB999]")) if f.code == "PB005"]
    assert [f.severity for f in findings] == ["error"]
    assert "PB999" in findings[0].message


def test_text_in_a_string_is_no_comment(run):
    assert codes(run(op().replace("return x * k", 'print("# noqa: PB103")\n        return x * k'))) == ["PB101", "PB204"]


def test_findings_of_other_codes_can_be_silenced_too():
    text = "class A:  # pullback: ignore[PB604] the kernel asserts it\n    def b(self):\n        pass\n"
    finding = Finding("PB604", "strided-grad-output", "error", "fail", "m.A", "…", Location("m.py", 3))
    comments = suppressions(text)
    assert comments[0].reason == "the kernel asserts it"
    assert apply([finding], comments) == []
    assert unused("m.py", "m", comments, frozenset({"PB604"})) == []
    again = suppressions(text)
    assert [f.code for f in unused("m.py", "m", again, frozenset({"PB604"}))] == ["PB006"]
