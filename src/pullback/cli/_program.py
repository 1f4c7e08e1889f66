"""The program that a command runs: a script, a module or a console command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ..report.clean import clean

if TYPE_CHECKING:
    from ..recorder.launch import Program


def named_program(command: str, words: tuple[str, ...], run_module: str | None) -> Program:
    """Return the program that the words behind a command name.

    Args:
        command: The command of pullback, for messages.
        words: The program and its arguments; the arguments alone where `run_module` names a module.
        run_module: The module of ``-m``.

    Raises:
        click.UsageError: if they name none.
    """
    from ..recorder import launch

    try:
        if run_module is not None:
            return launch.module(run_module, words)
        if not words:
            raise click.UsageError("name a program to run: a script, -m MODULE, or -- COMMAND")
        name, *args = words
        if os.path.basename(name).startswith("python") and not os.path.isfile(name):
            raise click.UsageError(f"leave out {name!r}: pullback {command} {' '.join(args) or 'SCRIPT'}")
        return launch.script(name, args) if name.endswith(".py") or os.path.isfile(name) else launch.command(name, args)
    except launch.LaunchError as error:
        raise click.UsageError(clean(error)) from error
