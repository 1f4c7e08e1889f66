"""The `pullback` command. Each public module of this package is one command, imported when it is used."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import pkgutil
import sys
from typing import Any

import click

from .. import __version__, cli
from ..report.clean import clean


class Commands(click.Group):
    """The commands of this package: every module that is not private and not this one holds a command of its own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(module.name for module in pkgutil.iter_modules(cli.__path__) if not module.name.startswith("_") and module.name != "main")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return getattr(importlib.import_module(f".{cmd_name}", __package__), cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, commands = args[0], self.list_commands(ctx)
        if not name.startswith("-") and name not in commands:
            if name.partition("::")[0].endswith(".py") or os.path.isdir(name):
                raise click.UsageError(f"{name!r} is not a command. To check it: pullback check {name}", ctx)
            near = difflib.get_close_matches(name, commands, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" The commands are {', '.join(commands)}."
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **how: Any) -> Any:
        _fill_closed_descriptors()
        return super().main(*args, **how)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except OSError as error:
            if error.filename is None:
                _leave_standard_output()
            click.echo(f"Error: {f'{clean(error.filename)}: ' if error.filename else ''}{error.strerror or error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except Exception as error:
            if os.environ.get("PULLBACK_DEBUG"):
                raise
            click.echo(f"pullback itself failed: {type(error).__name__}: {error}\nPULLBACK_DEBUG=1 shows where; please report it.", err=True)
            ctx.exit(2)


def _fill_closed_descriptors() -> None:
    """Open the null device in the place of a standard stream that is closed, or else the next pipe to a worker lies there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _leave_standard_output() -> None:
    """Let what could not be written to standard output go, which Python would try once more at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pullback")
def main() -> None:
    """Check, author and explain custom derivatives in PyTorch.

    Exit status: 0 nothing found, 1 something found (or nothing could be checked), 2 wrong usage or a failure of pullback itself; 130 and 143
    after Ctrl-C and SIGTERM, with a report on what was done until then.
    """
