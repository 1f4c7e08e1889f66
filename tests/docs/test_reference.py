"""The generated reference holds every public name and every code, with every section of its docstring."""

import importlib.util
from pathlib import Path

import pytest

import pullback
from pullback.linter.engine import all_rules
from pullback.report.codes import registry

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_documented(generate):
    page = generate.api_page()
    assert [name for name in pullback.__all__ if name != "__version__" and f":: pullback.{name}\n" not in page] == []


def test_every_code_has_its_section_on_its_family_page(generate):
    pages = generate.pages()
    for code in registry().values():
        page = pages[f"{code.code[:3].lower()}.md"]
        assert f"\n## {code.code} {code.name}\n" in page
        assert f"[{code.code}](#{code.code.lower()})" in page
        assert code.doc.partition("\n\n")[0] in page


def test_every_command_is_documented(generate):
    page = generate.commands_page()
    assert "## pullback check\n" in page
    assert "--fail-on" in page


def test_sections_of_a_docstring_are_split_and_dedented(generate):
    doc = "Finds it.\n\nMore.\n\nWhy it matters:\n    Because.\n\n    Twice.\n\nInstead:\n    x = 1\n"
    assert generate.split_sections(doc) == [("", "Finds it.\n\nMore."), ("Why it matters", "Because.\n\nTwice."), ("Instead", "x = 1")]


@pytest.mark.parametrize(
    ("body", "markdown"),
    [
        ("return dy.clone()", "```python\nreturn dy.clone()\n```"),
        ("Write the copy.", "Write the copy."),
        ("Nothing", "Nothing"),
        ("Write a copy::\n\n    dy = dy.clone()\n    return dy", "Write a copy:\n\n```python\ndy = dy.clone()\nreturn dy\n```"),
    ],
)
def test_code_is_fenced_and_prose_is_not(generate, body, markdown):
    assert generate.as_markdown(body) == markdown


def test_writing_empties_the_folder_first(generate, tmp_path):
    (tmp_path / "gone.md").write_text("stale")
    generate.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(generate.pages())


def test_every_lint_rule_shows_its_code(generate):
    pages = generate.pages()
    for code, rule in all_rules().items():
        section = pages[f"pb{code[2]}.md"].partition(f"## {code} ")[2].partition("\n## ")[0]
        for shown in filter(None, (rule.bad, rule.good, rule.fixed)):
            assert f"```python\n{shown.strip()}\n```" in section, code
        assert ("off by default" in section.partition("**")[0]) is not rule.default, code
        assert ("`--fix" in section) is bool(rule.fixed), code
