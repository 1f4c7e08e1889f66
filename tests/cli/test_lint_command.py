"""`pullback lint`: options, configuration, exit status."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pullback.cli.main import main
from pullback.report.report import Report

SOURCE = """import torch


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        ctx.unread = 1
        return x * k

    @staticmethod
    def backward(ctx, g):
        if not g.is_contiguous:
            g = g.contiguous()
        return g.mul_(ctx.k)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(SOURCE)
    return tmp_path


def lint(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["lint", *arguments], catch_exceptions=False)


def found(*arguments: str) -> list[str]:
    return [f.code for f in Report.from_json(lint(*arguments, "--output-format", "json").stdout).findings]


def configure(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def test_findings_are_listed_with_the_place_and_a_summary():
    result = lint("ops.py")
    assert result.exit_code == 1
    assert "PB118 method-not-called" in result.stdout
    assert "ops.py:13" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 Function in 1 file · 2 can be mended with --fix · 1 more with --fix --unsafe-fixes"


def test_the_current_folder_is_the_default():
    assert found() == found("ops.py") == found(".") == ["PB204", "PB118", "PB109", "PB101"]


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (("--select", "PB101"), ["PB101"]),
        (("--select", "method-not-called,PB2"), ["PB204", "PB118"]),
        (("--select", "PB1", "--ignore", "PB118"), ["PB109", "PB101"]),
        (("--extend-select", "PB406"), ["PB406", "PB204", "PB118", "PB109", "PB101"]),
        (("--select", "PB3"), []),
    ],
)
def test_rules_are_chosen_by_code_name_and_family(options: tuple[str, ...], codes: list[str]):
    assert found("ops.py", *options) == codes


def test_exit_status():
    assert lint("ops.py", "--select", "PB3").exit_code == 0
    assert lint("ops.py", "--select", "PB2").exit_code == 1
    assert lint("ops.py", "--select", "PB2", "--fail-on", "error").exit_code == 0
    assert lint("ops.py", "--exit-zero").exit_code == 0
    assert lint("missing.py").exit_code == 2
    assert lint("ops.py", "--select", "PB999").exit_code == 2
    Path("empty").mkdir()
    assert lint("empty").exit_code == 2


def test_no_function_is_no_failure():
    Path("plain.py").write_text("x = 1\n")
    result = lint("plain.py")
    assert (result.exit_code, result.stdout) == (0, "nothing found · 0 Functions in 1 file\n")


def test_fix_mends_what_is_safe_and_no_more():
    result = lint("ops.py", "--fix")
    text = Path("ops.py").read_text()
    assert "g = g.clone()" in text
    assert "is_contiguous():" in text
    assert "return g.mul_(ctx.k)\n" in text
    assert "2 mended" in result.stdout
    before = text
    lint("ops.py", "--fix")
    assert Path("ops.py").read_text() == before


def test_unsafe_fixes_are_made_only_on_demand():
    lint("ops.py", "--fix", "--unsafe-fixes")
    assert "return g.mul_(ctx.k), None\n" in Path("ops.py").read_text()
    assert found("ops.py") == ["PB204"]


def test_diff_shows_and_changes_nothing():
    result = lint("ops.py", "--diff")
    assert result.exit_code == 1
    assert "+        g = g.clone()" in result.stdout
    assert "-        if not g.is_contiguous:" in result.stdout
    assert Path("ops.py").read_text() == SOURCE
    assert lint("ops.py", "--diff", "--exit-zero").exit_code == 0
    lint("ops.py", "--fix")
    assert lint("ops.py", "--diff").stdout == ""


def test_baseline_hides_what_is_known_and_shows_what_is_new():
    lint("ops.py", "--output-format", "json", "--output", "known.json")
    assert found("ops.py", "--baseline", "known.json") == []
    Path("ops.py").write_text("# moved down\n\n" + SOURCE.replace("return x * k", "ctx.new = 2\n        return x * k"))
    assert found("ops.py", "--baseline", "known.json") == ["PB204"]
    assert lint("ops.py", "--baseline", "ops.py").exit_code == 2


def test_statistics_count_by_code():
    lines = lint("ops.py", "--statistics").stdout.splitlines()
    assert lines[0].split() == ["1", "PB101", "grad-output-written", "(error)", "[1", "can", "be", "mended]"]
    assert len(lines) == 5


@pytest.mark.parametrize("output_format", ["text", "concise", "json", "sarif", "github", "junit"])
def test_every_format_is_written_to_a_file_too(output_format: str):
    result = lint("ops.py", "--output-format", output_format, "--output", "out")
    assert result.exit_code == 1
    assert "PB101" in Path("out").read_text()
    assert "PB101" not in result.stdout


def test_sarif_carries_the_fixes():
    run = json.loads(lint("ops.py", "--output-format", "sarif").stdout)["runs"][0]
    fixes = [r["fixes"][0]["artifactChanges"][0]["replacements"][0] for r in run["results"] if r.get("fixes")]
    assert {"deletedRegion": {"byteOffset": SOURCE.index(".is_contiguous") + 14, "byteLength": 0}, "insertedContent": {"text": "()"}} in fixes


def test_facts_are_shown_as_a_table():
    result = lint("--facts", "ops.py")
    assert result.exit_code == 0
    assert "Op   ops.py:4" in result.stdout
    assert "sets     ctx.unread" in result.stdout


def test_configuration_chooses_rules_and_files(folder: Path):
    configure(folder, '[tool.pullback.lint]\nselect = ["PB1"]\nignore = ["PB118"]\n')
    assert found("ops.py") == ["PB109", "PB101"]
    assert found("ops.py", "--select", "PB2") == ["PB204"]
    configure(folder, '[tool.pullback.lint]\nper-file-ignores = { "ops.py" = ["PB1"] }\nextend-select = ["PB406"]\n')
    assert found("ops.py") == ["PB406", "PB204"]
    configure(folder, '[tool.pullback.lint]\nexclude = ["generated"]\nfail-on = "error"\nselect = ["PB2"]\n')
    (folder / "generated").mkdir()
    (folder / "generated" / "more.py").write_text(SOURCE)
    assert found(".") == ["PB204"]
    assert lint(".").exit_code == 0


def test_declarations_of_the_configuration_count(folder: Path):
    (folder / "ops.py").write_text(SOURCE.replace("return g.mul_(ctx.k)", "return g.clamp(-1, 1), None"))
    assert "PB301" in found("ops.py")
    configure(folder, '[tool.pullback.declare]\n"ops.Op" = { linear = false, reason = "clips" }\n')
    assert "PB301" not in found("ops.py")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[tool.pullback.lint]\nselct = ["PB1"]\n', "Did you mean 'select'?"),
        ("[tool.pullback]\nlnt = {}\n", "unknown key 'lnt'"),
        ('[tool.pullback.lint]\nselect = "PB1"\n', "must be a list of strings"),
        ('[tool.pullback.lint]\nselect = ["PB999"]\n', "unknown code"),
        ('[tool.pullback.lint]\nfail-on = "never"\n', 'must be "error" or "warning"'),
        ("[tool.pullback.lint]\nper-file-ignores = [1]\n", "must be a table"),
        ("[tool.pullback\n", "pyproject.toml"),
    ],
)
def test_a_wrong_setting_is_an_error(folder: Path, text: str, part: str):
    configure(folder, text)
    result = lint("ops.py")
    assert result.exit_code == 2
    assert part in " ".join(result.stderr.split())


def test_a_selection_without_lint_rules_is_an_error():
    result = lint("--select", "PB501,PB604", "ops.py")
    assert result.exit_code == 2
    assert "no lint rule is left to run: PB501, PB604 cannot be read off the source; pullback check finds them" in result.stderr
    assert "all are ignored" in lint("--select", "PB101", "--ignore", "PB101", "ops.py").stderr
    assert lint("--select", "PB501,PB101", "ops.py").exit_code == 1


def test_unsafe_fixes_are_counted_apart(folder: Path):
    (folder / "ops.py").write_text(SOURCE.replace("(ctx, x, k)", "(ctx, x, k, more)").replace("return g.mul_(ctx.k)", "return g * ctx.k, None"))
    assert "with --fix --unsafe-fixes" in lint("ops.py", "--select", "PB109").stdout
    assert "more with --fix --unsafe-fixes" in lint("ops.py").stdout


def test_facts_leave_out_excluded_files(folder: Path):
    (folder / "vendor").mkdir()
    (folder / "vendor" / "theirs.py").write_text(SOURCE.replace("Op", "Theirs"))
    (folder / "pyproject.toml").write_text('[tool.pullback.lint]\nexclude = ["vendor"]\n')
    shown = lint("--facts", ".").stdout
    assert "Op   ops.py:4" in shown
    assert "Theirs" not in shown
