"""Files that cannot be read as Python of today are reported, never a crash; and torch is never imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.linter.discover import files
from pullback.linter.engine import lint
from pullback.linter.repair import repair

BODY = """
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g.mul_(ctx.k), None
"""
FOUND = "PB101"


def codes(path: Path) -> list[str]:
    return [f.code for f in lint([path]).findings]


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"class F(Function):\n    def forward(ctx, x:\n", "could not be read"),
        (b"class F(Function):\n    def forward(ctx, x):\n        print 'hello'\n", "Python 2"),
        (b"# -*- coding: klingon -*-\nclass F(Function):\n    def forward(ctx): pass\n", "encoding"),
        (b"class F(Function):\n    def forward(ctx): pass\n\x00", "null"),
        (b"\xff\xfeclass F(Function):\n    def forward(ctx): pass\n", "could not be read"),
        (b"class F(Function):\n    def forward(ctx): return " + b"(" * 500 + b")" * 500, "could not be read"),
    ],
    ids=["syntax", "python2", "encoding", "null", "utf16", "nesting"],
)
def test_unreadable_file_is_a_finding(tmp_path: Path, data: bytes, part: str):
    path = tmp_path / "bad.py"
    path.write_bytes(data)
    good = tmp_path / "good.py"
    good.write_text("import torch\n" + BODY)
    report = lint([path, good])
    assert [f.code for f in report.findings] == ["PB001", FOUND]
    assert part in report.findings[0].message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-8"])
def test_encodings_are_read(tmp_path: Path, encoding: str):
    path = tmp_path / "ops.py"
    declared = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    path.write_bytes(f"{declared}# é\nimport torch\n{BODY}".encode(encoding))
    assert codes(path) == [FOUND]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fixes_keep_byte_order_mark_line_ends_and_comments(tmp_path: Path, encoding: str, newline: str):
    path = tmp_path / "ops.py"
    text = f"# é ü\nimport torch\n{BODY}".replace("ctx.k), None", "ctx.k), None  # naïve")
    path.write_bytes(text.replace("\n", newline).encode(encoding))
    from pullback.linter.engine import Settings

    after = repair(path, Settings(), unsafe=False).after
    expected = text.replace("        return g.mul_", "        g = g.clone()\n        return g.mul_")
    assert after == expected.replace("\n", newline).encode(encoding)


def test_a_file_in_another_encoding_is_not_edited(tmp_path: Path):
    path = tmp_path / "ops.py"
    path.write_bytes(f"# -*- coding: latin-1 -*-\n# é\nimport torch\n{BODY}".encode("latin-1"))
    assert all(not f.edits for f in lint([path]).findings)


def test_symlink_loops_end(tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "ops.py").write_text("import torch\n" + BODY)
    os.symlink(tmp_path, package / "again")
    os.symlink(package / "b.py", package / "a.py")
    os.symlink(package / "a.py", package / "b.py")
    report = lint(files([tmp_path]))
    assert sorted(f.code for f in report.findings) == ["PB001", "PB001", FOUND]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_pipes_in_a_folder_are_left_alone(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "ops.py").touch()
    assert [path.name for path in files([tmp_path])] == ["ops.py"]


def test_folders_are_walked_once_without_what_is_no_source(tmp_path: Path):
    for name in ("a.py", ".venv/b.py", "__pycache__/c.py", "sub/d.py", "sub/e.txt", "build/f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [p.relative_to(tmp_path).as_posix() for p in files([tmp_path, tmp_path / "a.py", tmp_path / "sub"], exclude=["build"])]
    assert found == ["a.py", "sub/d.py"]


def test_text_without_a_function_is_not_parsed(tmp_path: Path):
    path = tmp_path / "script.py"
    path.write_text("this is not python: def forward(\n")
    assert lint([path]).findings == ()


def test_a_rule_that_breaks_is_a_finding_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from pullback.linter.rules.pb104_saved_tensor_written import SavedTensorWritten

    def broken(self: object, facts: object) -> object:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(SavedTensorWritten, "find", broken)
    path = tmp_path / "ops.py"
    path.write_text("import torch\n" + BODY)
    report = lint([path])
    assert sorted(f.code for f in report.findings) == ["PB008", FOUND]
    assert [c.code for c in report.checks if c.status == "error"] == ["PB104"]


def test_lint_runs_where_torch_cannot_be_imported(tmp_path: Path):
    (tmp_path / "ops.py").write_text("import torch\nraise SystemExit('imported')\n" + BODY)
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from pullback.cli.main import main\n"
        "try:\n    main(['lint', 'ops.py', '--output-format', 'json'])\n"
        "finally:\n    assert sys.modules['torch'] is None\n"
        "    assert not any(name.startswith('pullback.capture') or name.startswith('pullback.battery') for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert f'"{FOUND}"' in done.stdout
