"""The `pullback` command itself: lazy, with a version, and its own failures told as its own."""

import os
import shlex
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import pullback
from pullback.cli import main as main_module
from pullback.cli.main import main
from pullback.report.codes import registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["check", "--help"], ["explain"], ["explain", "PB501"], ["check", "no_such_file.py"]])
def test_torch_is_not_imported_without_need(args):
    code = f"""
import sys
from pullback.cli.main import main
try:
    main({args!r})
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_version_and_help():
    assert CliRunner().invoke(main, ["--version"]).stdout == f"pullback, version {pullback.__version__}\n"
    page = CliRunner().invoke(main, ["--help"]).stdout
    assert "check " in page
    assert "explain " in page
    assert "\n  main" not in page


def test_running_the_package_is_the_same_command():
    run = subprocess.run([sys.executable, "-m", "pullback", "--version"], capture_output=True, text=True, check=True)
    assert pullback.__version__ in run.stdout


def test_every_command_has_help_on_every_option():
    with click.Context(main) as context:
        for name in main.list_commands(context):
            command = main.get_command(context, name)
            assert command is not None
            assert command.help
            assert all(option.help for option in command.params if isinstance(option, click.Option) and option.name != "help"), name


@pytest.fixture
def broken(monkeypatch):
    @click.command()
    def broken() -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(sys.modules, "pullback.cli.broken", types.SimpleNamespace(broken=broken))
    monkeypatch.setattr(main_module.Commands, "list_commands", lambda self, ctx: ["broken"])


def test_a_failure_of_ours_exits_2_without_a_traceback(broken, monkeypatch):
    result = CliRunner().invoke(main, ["broken"])
    assert result.exit_code == 2
    assert "pullback itself failed: ZeroDivisionError: oops" in result.stderr
    assert "Traceback" not in result.output
    monkeypatch.setenv("PULLBACK_DEBUG", "1")
    assert isinstance(CliRunner().invoke(main, ["broken"]).exception, ZeroDivisionError)


def test_explain_lists_every_code_by_family():
    page = CliRunner().invoke(main, ["explain"]).stdout
    assert all(f"  {entry.code}  " in page and entry.name in page for entry in registry().values())
    assert "PB5xx  gradient values" in page


@pytest.mark.parametrize("word", ["PB501", "pb501", "wrong-gradient"])
def test_explain_a_code(word):
    page = CliRunner().invoke(main, ["explain", word]).stdout
    assert page.startswith("PB501 wrong-gradient (error)\n")
    assert "How it is measured\n" in page
    assert max(map(len, page.splitlines())) <= 110


def test_explain_a_family_and_an_unknown_code():
    assert CliRunner().invoke(main, ["explain", "PB0"]).stdout.count("Why it matters") == 8
    result = CliRunner().invoke(main, ["explain", "wrong-gradiant"])
    assert result.exit_code == 2
    assert "unknown code or name 'wrong-gradiant'. Did you mean wrong-gradient" in result.stderr


@pytest.mark.parametrize("name", [entry.code for entry in registry().values()])
def test_every_code_has_a_page(name):
    page = CliRunner().invoke(main, ["explain", name]).stdout
    assert "Why it matters\n" in page
    assert len(page.splitlines()) > 5


def in_a_shell(command, folder):
    command = f"{shlex.quote(sys.executable)} -m pullback {command}"
    return subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_said_in_one_line(tmp_path):
    done = in_a_shell("explain PB501 > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "Error: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors in a shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_break_nothing(tmp_path, closed):
    (tmp_path / "clean.py").write_text("")
    done = in_a_shell(f"lint clean.py {closed}", tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
