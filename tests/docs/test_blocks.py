"""Every `python` block of the README and of the written docs runs, page by page, in order."""

import importlib.util
import re
import sys
from pathlib import Path

import click
import pytest

from pullback.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(p.relative_to(ROOT).parts))]
COSTLY = {"docs/how-to/generated-kernels.md"}  # inductor builds C++
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def as_program(text: str) -> str:
    """Return the page's python blocks, each at its own line number, so that a failure points into the page."""
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start(1))
        lines += [""] * (start - len(lines))
        lines += block[1].splitlines()
    return "\n".join(lines) + "\n"


PRINTED = re.compile(r"^```python\n(?:(?!```)[^\n]*\n)*```\n\n```text\n((?:(?!```)[^\n]*\n)*)```$", re.MULTILINE)
VARIES = re.compile(r"\S+\.py:\d+|-?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")


def plain(text: str) -> str:
    """Return a text with places and figures made equal, on one line: where lines break follows from the length of paths."""
    return re.sub(r"\s+", " ", VARIES.sub("#", text)).strip()


def is_printed(expected: str, printed: str) -> bool:
    """Whether a text block stands in what was printed; a line with only ``…`` stands for anything."""
    rest = plain(printed)
    for part in map(plain, re.split(r"^…$", expected, flags=re.MULTILINE)):
        _, found, rest = rest.partition(part) if part else ("", "…", rest)
        if not found:
            return False
    return True


def has_code(page: Path) -> bool:
    return BLOCK.search(page.read_text(encoding="utf-8")) is not None


def page_param(page: Path):
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if name in COSTLY else [])


@pytest.mark.parametrize("page", [page_param(p) for p in PAGES if has_code(p)])
def test_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "kernels"))
    name = "page_" + re.sub(r"\W", "_", page.stem.lower())
    program = tmp_path / f"{name}.py"
    program.write_text(as_program(page.read_text(encoding="utf-8")), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    printed = capsys.readouterr().out
    for block in PRINTED.finditer(page.read_text(encoding="utf-8")):
        assert is_printed(block[1], printed), printed


def test_what_is_printed_is_compared_but_for_figures_and_places():
    printed = "a.py:3  x [2, 3]   norm 1.5\nmore\nlast line\n"
    assert is_printed("b.py:12  x [4, 4]  norm 2\n…\nlast line\n", printed)
    assert not is_printed("b.py:12  y [4, 4]  norm 2\n", printed)
    assert not is_printed("last line\n…\nmore\n", printed)


COMMANDS = [
    pytest.param(command, id=f"{page.stem}-{command[:40]}")
    for page in PAGES
    for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for command in block.splitlines()
    if command.startswith("pullback ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_options_and_files_that_exist(command):
    words = command.partition("#")[0].split()
    listed = main.get_command(click.Context(main), words[1])
    assert listed is not None
    options = {name for parameter in listed.params for name in parameter.opts}
    assert {word.partition("=")[0] for word in words[2:] if word.startswith("--")} <= options
    for path, _, name in (word.partition("::") for word in words[2:] if word.startswith("examples/")):
        assert (ROOT / path).exists()
        assert not name or re.search(rf"^(class|def) {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_blocks_keep_their_line_numbers():
    page = "# Title\n\n```python\na = 1\n```\n\ntext\n\n```python\nb = 2\n```\n"
    assert as_program(page).splitlines() == ["", "", "", "a = 1", "", "", "", "", "", "b = 2"]


def test_other_languages_are_left_alone():
    assert as_program("```text\nnot python\n```\n").strip() == ""


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_every_fence_has_a_language(page):
    opening = re.findall(r"^```(.*)\n(?:.*\n)*?```$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert "" not in opening
