"""The command line: parse, call, print. The work is done elsewhere and imported when needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from kernelsieve import __version__
from kernelsieve.cli import bench, explain, tables  # noqa: F401  (they add their commands)
from kernelsieve.cli._common import UserError, app, complain


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line.

    Exit codes: 0 for success, 2 for a user error (one red line), 130 for Ctrl-C.
    """
    try:
        code = app(args=arguments, prog_name="kernelsieve", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        code = complain(str(error))
    except (typer.Abort, KeyboardInterrupt):
        typer.secho("Stopped.", err=True)
        code = 130
    except BrokenPipeError:  # the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError as error:
        code = complain(
            "out of memory: use fewer rows (fit --sample-rows 10000), fewer --features, or fewer "
            f"columns (--drop){f': {error}' if str(error) else ''}"
        )
    except Exception as error:
        # Typer's own user errors; their class depends on its version.
        if not hasattr(error, "format_message"):
            raise
        code = complain(error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelsieve {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Kernel methods on small sets of explicit features.

    [bold]Examples[/bold]

    kernelsieve bench        compare methods on built-in data, offline
    kernelsieve inspect flats.csv --target rent
    kernelsieve fit flats.csv --target rent -o rent.ks
    kernelsieve predict rent.ks new.csv -o out.csv
    kernelsieve explain rent.ks
    kernelsieve export rent.ks rent.onnx
    kernelsieve datasets     list the known datasets
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
