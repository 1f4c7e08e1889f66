"""Every `python` block of the README and of the written docs runs, page by page, in order."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

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


def has_code(page: Path) -> bool:
    return BLOCK.search(page.read_text(encoding="utf-8")) is not None


def page_param(page: Path):
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if name in COSTLY else [])


@pytest.mark.parametrize("page", [page_param(p) for p in PAGES if has_code(p)])
def test_page_runs(page, tmp_path, monkeypatch):
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


def test_blocks_keep_their_line_numbers():
    page = "# Title\n\n```python\na = 1\n```\n\ntext\n\n```python\nb = 2\n```\n"
    assert as_program(page).splitlines() == ["", "", "", "a = 1", "", "", "", "", "", "b = 2"]


def test_other_languages_are_left_alone():
    assert as_program("```text\nnot python\n```\n").strip() == ""


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_every_fence_has_a_language(page):
    opening = re.findall(r"^```(.*)\n(?:.*\n)*?```$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert "" not in opening
