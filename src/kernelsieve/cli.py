"""The command line: parse, call, print. The work is done elsewhere, and imported when needed."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kernelsieve import __version__

if TYPE_CHECKING:
    from kernelsieve.bench import Plan, Result, Summary

NO_PICTURE = "not drawn: pip install 'kernelsieve[plot]'"

app = typer.Typer(
    name="kernelsieve",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class UserError(Exception):
    """Something that the user can put right: shown as one line, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; errors of use end with one red line and exit code 2."""
    try:
        code = app(args=arguments, prog_name="kernelsieve", standalone_mode=False)
    except UserError as error:
        code = _complain(str(error))
    except typer.Abort:
        code = 130
    except Exception as error:
        # Typer's own errors of use; which class they have depends on its version.
        if not hasattr(error, "format_message"):
            raise
        code = _complain(error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    line = " ".join(message.split())
    typer.secho(f"Error: {line}", fg="red", err=True)
    return 2


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
    kernelsieve bench wine   the same on a file of yours
    kernelsieve datasets     which datasets there are, and where
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def bench(
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET",
            help="Names from 'kernelsieve datasets'.",
            show_default="diabetes friedman product",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Methods to compare.", show_default="all")
    ] = None,
    features: Annotated[
        str, typer.Option(metavar="S,S", help="Numbers of features s.")
    ] = "250,500,1000",
    seeds: Annotated[int, typer.Option(metavar="N", help="Repetitions.")] = 3,
    threads: Annotated[int, typer.Option(metavar="N", help="Threads, the same for all.")] = 1,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for results.jsonl, table.md, bench.png.")
    ] = Path("bench-results"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the table only.")] = False,
) -> None:
    """Compare methods: test error, training time and number of features.

    Inputs are standardised. One gamma and one alpha, chosen by
    cross-validation on Fourier features, serve every method.
    Training time counts features and regression.

    [bold]Examples[/bold]

    kernelsieve bench
    kernelsieve bench friedman --methods exact,fourier --features 100,200
    KERNELSIEVE_DATA=~/data kernelsieve bench wine --seeds 5 --out wine-results
    """
    from kernelsieve.bench import METHODS, Plan, summarise
    from kernelsieve.bench.runner import BUILT_IN, check_files

    start = perf_counter()
    with _user_errors():
        plan = Plan(
            datasets=tuple(dataset or BUILT_IN),
            methods=tuple(_words(methods)) if methods is not None else tuple(METHODS),
            n_components=tuple(_integers(features, "--features")),
            n_seeds=seeds,
            n_threads=threads,
        )
        check_files(plan)  # before the results of an earlier run are overwritten
        results = _run(plan, _folder(out), quiet or json)
    summaries = summarise(results, plan.methods)
    picture = _write(summaries, out)
    if json:
        typer.echo("[\n" + ",\n".join(result.to_json() for result in results) + "\n]")
    else:
        _print_tables(summaries)
        if not quiet:
            _print_files(out, picture, perf_counter() - start)


@app.command("datasets")
def list_datasets() -> None:
    """List the datasets, and where their files are looked for."""
    from rich.console import Console
    from rich.table import Table

    from kernelsieve import datasets

    folder = datasets.data_folder()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("inputs", justify="right", no_wrap=True)
    table.add_column("where", no_wrap=True)
    table.add_column("what")
    for entry in map(datasets.describe, datasets.names()):
        present = all((folder / file).is_file() for file in entry.files)
        where = "built in" if entry.built_in else ("file" if present else "no file")
        style = "" if present else "dim"
        table.add_row(
            entry.name, f"{entry.n_rows:,}", f"{entry.n_features:,}", where, entry.description,
            style=style,
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(
        f"\nFiles are looked for in {folder} (KERNELSIEVE_DATA names another folder).",
        highlight=False,
        soft_wrap=True,
    )


def _run(plan: Plan, out: Path, silent: bool) -> list[Result]:
    """Carry out the plan with a progress bar; results are on disk as soon as they are there."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kernelsieve.bench.runner import count_steps, run, skipped

    console = Console(stderr=True, quiet=silent)
    for line in skipped(plan):
        console.print(f"Note: {line}", style="dim", highlight=False)
    columns = (
        TextColumn("{task.description:<36}"),
        BarColumn(bar_width=18),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console.quiet = silent or not console.is_terminal  # no bar in a log
    results = []
    with (
        Progress(*columns, console=console, transient=True) as progress,
        (out / "results.jsonl").open("w", encoding="utf-8") as file,
    ):
        task, done = progress.add_task("", total=count_steps(plan)), itertools.count()

        def report(step: str) -> None:
            progress.update(task, completed=next(done), description=step)

        for result in run(plan, report):
            results.append(result)
            print(result.to_json(), file=file, flush=True)
    return results


def _write(summaries: list[Summary], out: Path) -> Path | None:
    """table.md and the picture; returns the picture's path, None without matplotlib."""
    from kernelsieve.bench import plots, table

    (out / "table.md").write_text(table.markdown(summaries), encoding="utf-8")
    try:
        plots.save(summaries, out / "bench.png")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return None
    return out / "bench.png"


def _print_tables(summaries: list[Summary]) -> None:
    from rich.console import Console

    from kernelsieve.bench.table import Report

    Console().print(Report(summaries))


def _print_files(out: Path, picture: Path | None, seconds: float) -> None:
    from kernelsieve.bench.table import duration

    typer.echo(f"Picture: {picture or NO_PICTURE}")
    typer.echo(f"Tables:  {out / 'table.md'}")
    typer.echo(f"Records: {out / 'results.jsonl'}")
    typer.echo(f"Took:    {duration(seconds)}")


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn what a wrong argument or a missing file raises into a UserError."""
    from kernelsieve.bench.runner import PlanError
    from kernelsieve.datasets import DatasetError

    try:
        yield
    except (PlanError, DatasetError, FileNotFoundError) as error:
        raise UserError(str(error)) from error


def _folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot make this folder ({error.strerror})") from error
    return out


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _integers(text: str, option: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise UserError(
            f"{option} {text}: give whole numbers with commas between, for example 250,500"
        ) from None
