"""Write the reference from the sources: one page for each family of codes, one for the Python API, one for the commands."""

import ast
import functools
import inspect
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click

import pullback
from pullback.cli.main import main
from pullback.linter.engine import all_rules
from pullback.linter.rule import Rule
from pullback.report.codes import FAMILIES, Code, registry


def write(folder: Path) -> None:
    """Write every generated page into `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    made = {"api.md": api_page(), "commands.md": commands_page()}
    for family, title in FAMILIES.items():
        codes = [code for code in registry().values() if code.code.startswith(family)]
        if codes:
            made[f"{family.lower()}.md"] = family_page(family, title, codes)
    return made


def api_page() -> str:
    """Return the page of everything that `pullback` and its public modules offer."""
    parts = ["# Python API", "`import pullback as pb` imports no torch; each name is loaded when it is first used."]
    parts += [entry(f"pullback.{name}", getattr(pullback, name)) for name in pullback.__all__ if name != "__version__"]
    for module in public_modules():
        parts += [f"## {module.__name__}", summary(module)]
        parts += [entry(f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__]
    return "\n\n".join(parts) + "\n"


def public_modules() -> Iterator[ModuleType]:
    for name in pullback._MODULES:
        yield getattr(pullback, name)


def entry(path: str, value: object) -> str:
    """Return the directive that documents one public name."""
    if isinstance(value, type):
        return directive("autoclass", path, ":members:", *([":show-inheritance:"] if issubclass(value, BaseException) else []))
    return directive("autofunction", path)


def directive(kind: str, argument: str, *options: str) -> str:
    body = "\n".join(f"   {option}" for option in options)
    return f"```{{eval-rst}}\n.. {kind}:: {argument}\n{body}\n```"


def summary(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0]


def commands_page() -> str:
    """Return the page of the commands: what their `--help` prints."""
    top = click.Context(main, info_name="pullback", max_content_width=100)
    parts = ["# Commands", help_block(top)]
    for name in main.list_commands(top):
        command = main.get_command(top, name)
        assert command is not None
        parts += [f"## pullback {name}", help_block(click.Context(command, info_name=name, parent=top, max_content_width=100))]
    return "\n\n".join(parts) + "\n"


def help_block(context: click.Context) -> str:
    return f"```text\n{context.command.get_help(context)}\n```"


def family_page(family: str, title: str, codes: list[Code]) -> str:
    """Return the page of one family of codes, with a table at its head."""
    rows = [f"| [{code.code}](#{anchor(code)}) | {code.name} | {code.severity} |" for code in codes]
    table = "\n".join(["| code | name | severity |", "| --- | --- | --- |", *rows])
    return "\n\n".join([f"# {family}xx: {title}", table, *(code_section(code) for code in codes)]) + "\n"


def code_section(code: Code) -> str:
    first, *sections = split_sections(code.doc)
    rule = lint_rules().get(code.code)
    head = code.severity if rule is None or rule.default else f"{code.severity}, off by default"
    parts = [f"({anchor(code)})=\n## {code.code} {code.name}", f"*{head}.* {first[1]}"]
    parts += [f"**{name}**\n\n{as_markdown(body)}" for name, body in sections]
    return "\n\n".join([*parts, *(rule_examples(rule) if rule is not None else ())])


@functools.cache
def lint_rules() -> dict[str, Rule]:
    return all_rules()


def rule_examples(rule: Rule) -> Iterator[str]:
    """Yield the code that a lint rule is tested with: what it finds something in, what not, and what its fix makes of the first."""
    command = "`--fix`" if rule.safe else "`--fix --unsafe-fixes`"
    yield f"**Found in**\n\n{fenced(rule.bad.strip())}"
    if rule.fixed == rule.good:
        yield f"**Not found in**, and what {command} makes of it\n\n{fenced(rule.good.strip())}"
        return
    yield f"**Not found in**\n\n{fenced(rule.good.strip())}"
    if rule.fixed:
        yield f"**After** {command}\n\n{fenced(rule.fixed.strip())}"


def anchor(code: Code) -> str:
    return code.code.lower()


def split_sections(doc: str) -> list[tuple[str, str]]:
    """Return the parts of a Google style docstring: the text before the first section, named "", then each section."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in doc.splitlines():
        if line.endswith(":") and line[:1].isupper() and not line.startswith(" "):
            parts.append((line[:-1], []))
        else:
            parts[-1][1].append(line)
    return [(name, textwrap.dedent("\n".join(lines)).strip()) for name, lines in parts]


def as_markdown(body: str) -> str:
    """Return a section's body, its code fenced: the whole of it where it is Python, else each indented block."""
    if is_python(body):
        return fenced(body)
    blocks = body.replace("::\n", ":\n").split("\n\n")
    return "\n\n".join(fenced(textwrap.dedent(block)) if block.startswith("    ") else block for block in blocks)


def is_python(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return not all(isinstance(node, ast.Expr) and isinstance(node.value, (ast.Name, ast.Constant)) for node in tree.body)


def fenced(text: str) -> str:
    return f"```python\n{text}\n```"
