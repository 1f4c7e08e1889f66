"""Every `console` block is what the command prints, but for the numbers; a line with only `…` stands for any lines."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console\n\$ (.+)\n((?:.*\n)*?)```$", re.MULTILINE)
TOKEN = re.compile(r"(?P<kept>PB\d+|\S+\.py\S*)|\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
EXAMPLES = [
    pytest.param(block[1], block[2], id=f"{page.relative_to(ROOT)}-{block[1]}")
    for page in PAGES
    if not {"_build", "generated"} & set(page.parts)
    for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
]


def pattern_of(printed: str) -> str:
    """Return a pattern for the printed lines; figures of measurements may differ, those in codes and places may not."""
    return "".join(r"(?:.*\n)*?" if line.strip() == "…" else pattern_of_line(line) + r" *\n" for line in printed.splitlines())


def pattern_of_line(line: str) -> str:
    parts, end = [], 0
    for token in TOKEN.finditer(line):
        parts += [re.escape(line[end : token.start()]), re.escape(token["kept"]) if token["kept"] else r"[-+.,e\d]+"]
        end = token.end()
    return "".join(parts) + re.escape(line[end:])


@pytest.mark.parametrize(("command", "printed"), EXAMPLES)
def test_command_prints_what_the_page_says(command, printed):
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    program, *arguments = command.split()
    assert program == "pullback"
    run = subprocess.run(
        [sys.executable, "-m", "pullback", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert run.returncode in (0, 1), run.stderr
    assert re.fullmatch(pattern_of(printed), run.stdout), run.stdout


def test_numbers_may_differ_and_words_may_not():
    pattern = pattern_of("PB604 wrong by 1.5e-3 (tolerance 2)\n…\n  at a.py:12\n")
    assert re.fullmatch(pattern, "PB604 wrong by 7e+1 (tolerance 31)\nmore\n  at a.py:12\n")
    assert not re.fullmatch(pattern, "PB605 wrong by 7e+1 (tolerance 31)\n  at a.py:12\n")
    assert not re.fullmatch(pattern, "PB604 right by 7e+1 (tolerance 31)\n  at a.py:12\n")
    assert not re.fullmatch(pattern, "PB604 wrong by 7e+1 (tolerance 31)\n  at a.py:13\n")


def test_the_readme_shows_a_command():
    assert BLOCK.search(PAGES[0].read_text(encoding="utf-8"))
