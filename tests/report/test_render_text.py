"""The printed report: the template, hostile strings, widths."""

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from pullback.report import CheckRun, Evidence, Finding, Location, Report
from pullback.report.render import concise, json
from pullback.report.render.text import number, render, renderable, to_text

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "models" / "fused.py"
    path.parent.mkdir()
    path.write_text("\n" * 47 + "        kernel(grad_output.data_ptr(), rows)\n")
    return str(path)


def strided(path):
    return Finding(
        "PB604",
        "strided-grad-output",
        "error",
        "fail",
        "models.fused.FusedLinearGELU",
        "FusedLinearGELU.backward is wrong when grad_output is not contiguous",
        Location(path, 48),
        (
            Evidence("grad_output transposed [8, 64] strides (1, 8): grad_x", "1.25", "-1.25", 1.3, 2.1e-9, "rounding of float64"),
            Evidence("contiguous: right"),
        ),
        "the backward ignores strides (the same values, contiguous, give the right gradient)",
        True,
        "grad_output = grad_output.contiguous() at the top of backward",
        repro="pullback check models/fused.py::FusedLinearGELU --select PB604 --case 3 --seed 0",
    )


def whole(path):
    note = Finding(
        "PB902", "saved-more-than-needed", "note", "waste", "models.fused.Split", "Split keeps `x` for its shape", fix="ctx.shape = x.shape\nreturn x"
    )
    gelu, split = "models.fused.FusedLinearGELU", "models.fused.Split"
    runs = (
        CheckRun("PB604", gelu, "fail"),
        CheckRun("PB501", gelu, "pass"),
        CheckRun("PB703", gelu, "unsupported", "there is no setup_context"),
        *(CheckRun(f"PB70{i}", name, "skipped", "torch.func is not offered") for i in (4, 5, 6) for name in (gelu, split)),
        CheckRun("PB501", split, "pass"),
        CheckRun("PB902", split, "waste"),
    )
    environment = {"skipped_tiers": ["thorough (--thorough)", "gpu (--device cuda)"], "seconds": 1.25}
    return Report((note, strided(path)), runs, (gelu, split), environment)


GOLDEN = """\
PB604 strided-grad-output: FusedLinearGELU.backward is wrong when grad_output is not contiguous
  models/fused.py:48   kernel(grad_output.data_ptr(), rows)
  evidence   grad_output transposed [8, 64] strides (1, 8): grad_x
             got       1.25
             expected  -1.25
             differs by 1.3e+0 (tolerance 2.1e-9: rounding of float64)
             contiguous: right
  cause      the backward ignores strides (certain: the same values, contiguous, give the right
             gradient)
  fix        grad_output = grad_output.contiguous() at the top of backward
  repro      pullback check models/fused.py::FusedLinearGELU --select PB604 --case 3 --seed 0
  more       pullback explain PB604

PB902 saved-more-than-needed (note): Split keeps `x` for its shape
  fix        ctx.shape = x.shape
             return x
  more       pullback explain PB902

checked          passed  found    unsupported  skipped
FusedLinearGELU       1  1 error            1        3
Split                 2  1 note             –        3
  unsupported  PB703 (FusedLinearGELU): there is no setup_context
  skipped      PB704–PB706: torch.func is not offered

1 error, 1 note · 2 of 2 checked · 1.2 s · not run: thorough (--thorough), gpu (--device cuda)"""


def test_golden(source):
    assert render(whole(source)) == GOLDEN


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_except_commands(source, width):
    for line in to_text(whole(source), width=width).splitlines():
        assert cell_len(line) <= width or line.startswith("  repro "), line


def test_colour_changes_nothing_but_colour(source):
    report = whole(source)
    coloured = to_text(report, color=True)
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == to_text(report)


def test_rich_prints_the_same_as_str(source):
    report = whole(source)
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(renderable(report), soft_wrap=True)
    assert console.file.getvalue().rstrip() == str(report)


HOSTILE = [
    "[bold red]x[/bold red]",
    "[/]",
    "[link=http://example.org]x[/link]",
    ":warning:",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\rb\x08c",
    "\u202eevil\u2066",
    "\u200bzero\ufeff",
    "tab\tbell\x07nul\x00",
    "\ud800lone",
    "\x9b31m",
    "line\u2028separator",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("color", [False, True])
def test_hostile_strings_are_printed_as_escapes(text, color):
    finding = Finding(
        text,
        text,
        "error",
        "fail",
        text,
        text,
        Location(text, 1),
        (Evidence(text, text, text, 1.0, 0.5, text),),
        text,
        True,
        text,
        repro=text,
        upstream=text,
    )
    finding = replace(finding, attachments={"output": text})
    runs = (CheckRun(text, text, "skipped", text), CheckRun("PB501", text, "pass"))
    report = Report((finding,), runs, (text,), {"samples": {text: [text]}, "searched": [text], "skipped_tiers": [text]})
    for printed in (to_text(report, color=color), concise.render(report)):
        assert all(c == "\n" or c.isprintable() for c in (ANSI.sub("", printed) if color else printed))
        printed.encode("utf-8")
    if text.isprintable():
        assert text in to_text(report, width=160)


def test_json_keeps_everything(source):
    report = whole(source)
    assert Report.from_json(json.render(report)) == report


def test_concise_is_one_line_a_finding(source):
    lines = concise.render(whole(source)).splitlines()
    assert lines[0] == "models.fused.Split: PB902 note saved-more-than-needed: Split keeps `x` for its shape"
    assert lines[1].startswith(f"{source}:48:1: PB604 error strided-grad-output: FusedLinearGELU.backward is wrong")
    assert len(lines) == 3


def test_a_newline_in_a_message_stays_one_concise_line():
    finding = Finding("PB501", "wrong-gradient", "error", "fail", "m.F", "two\nlines")
    assert concise.render(Report((finding,))).count("\n") == 1


def test_nothing_checked_says_so():
    assert render(Report()) == "nothing was checked"
    skipped = Report(checks=(CheckRun("PB004", "m.F", "skipped", "no inputs found"),), subjects=("m.F",))
    assert "nothing could be checked" in render(skipped)


def test_an_unproved_cause_is_called_likely():
    finding = Finding("PB501", "wrong-gradient", "error", "fail", "m.F", "wrong", cause="a factor of two is missing")
    assert "a factor of two is missing (likely)" in render(Report((finding,)))
    assert "a factor of two is missing (certain)" in render(Report((replace(finding, certain=True),)))


def test_long_output_is_cut_to_its_end():
    finding = Finding("PB002", "crashed", "error", "fail", "m.F", "dies", attachments={"output": "\n".join(f"line {i}" for i in range(100))})
    printed = render(Report((finding,)))
    assert "line 99" in printed
    assert "line 5\n" not in printed
    assert "… 90 lines above" in printed


def test_subjects_of_the_same_name_are_told_apart():
    runs = tuple(CheckRun("PB501", name, "pass") for name in ("a.x.F", "b.x.F", "b.y.G"))
    printed = render(Report(checks=runs, subjects=("a.x.F", "b.x.F", "b.y.G")))
    assert "a.x.F" in printed
    assert "b.x.F" in printed
    assert "\nG " in printed


def test_the_same_note_on_many_subjects_is_told_once():
    notes = [
        Finding("PB703", "func-unsupported", "note", "unsupported", f"m.F{i}", f"F{i} refuses torch.func", fix="write setup_context")
        for i in range(4)
    ]
    other = replace(notes[0], code="PB902", name="saved-more-than-needed")
    error = replace(notes[0], severity="error")
    printed = render(Report((*notes, other, error, replace(error, subject="m.F1"))))
    assert printed.count("PB703 func-unsupported (note)") == 1
    assert "  also       F1, F2, F3\n" in printed
    assert printed.count("PB902 ") == 1
    assert printed.count("PB703 func-unsupported: ") == 2
    same = [replace(notes[0], fix=None, message=f"message {i}") for i in range(2)]
    assert render(Report(tuple(same))).count("PB703 func-unsupported (note)") == 2


def test_reasons_that_concern_every_subject_share_a_line():
    runs = [CheckRun("PB501", name, "pass") for name in ("m.F", "m.G")]
    runs += [
        CheckRun(code, name, "skipped", reason) for code, reason in (("PB508", "no surrogate"), ("PB511", "no reference")) for name in ("m.F", "m.G")
    ]
    runs += [CheckRun("PB605", "m.G", "skipped", "random")]
    printed = render(Report(checks=tuple(runs), subjects=("m.F", "m.G")))
    assert "  skipped      PB508: no surrogate; PB511: no reference\n               PB605 (G): random\n" in printed


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.3, "1.3e+0"), (2.1e-9, "2.1e-9"), (0.0, "0"), (1.0, "1"), (float("nan"), "nan"), (float("inf"), "inf"), (12345.0, "1.2e+4")],
)
def test_numbers(value, text):
    assert number(value) == text
