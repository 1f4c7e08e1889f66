from collections.abc import Callable
from pathlib import Path

import pytest

from pullback.linter.engine import Settings, default_codes, lint_file
from pullback.linter.rule import PREAMBLE
from pullback.report.finding import Finding

Lint = Callable[..., list[Finding]]


@pytest.fixture
def run(tmp_path: Path) -> Lint:
    """Lint a text: ``run(text, "PB101")``, with the default rules where no code is given."""

    def run(text: str, *codes: str, name: str = "ops.py", preamble: bool = True) -> list[Finding]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(((PREAMBLE if preamble else "") + text).rstrip() + "\n", encoding="utf-8")
        return lint_file(path, Settings(frozenset(codes) or default_codes())).findings

    return run
