"""`pullback run`: run a program with its autograd errors explained."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ._program import named_program
from .record import ProgramCommand

if TYPE_CHECKING:
    from ..recorder.launch import Program


@click.command(cls=ProgramCommand, context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, metavar="SCRIPT [ARGUMENT]...")
@click.option("-m", "run_module", metavar="MODULE", help="Run a module, as python -m does.")
@click.pass_context
def run(ctx: click.Context, program: tuple[str, ...], run_module: str | None) -> None:
    """Run SCRIPT unchanged; where it ends with a mistake about autograd, its last message names the Function, file and line concerned and what to do.

    The program's output, arguments, exit status and traceback are its own. What it writes in place, which backwards it runs and where it leaves the
    graph is noted meanwhile.

    \b
    pullback run train.py --epochs 1           a script with its arguments
    pullback run -m package.train --epochs 1   a module
    pullback run -- pytest -q                  a console command
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("explaining errors needs PyTorch, which is not installed: pip install 'pullback[torch]'")
    from ..recorder.launch import run_program

    ctx.exit(run_program(_explained(named_program("run", program, run_module))))


def _explained(program: Program) -> Program:
    from ..views.errors import explain_errors

    def explained() -> Any:
        with explain_errors():
            return program.run()

    return replace(program, run=explained)
