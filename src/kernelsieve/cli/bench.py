"""Comparisons of methods, and the data for them."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelsieve._files import write_text
from kernelsieve._progress import duration
from kernelsieve.cli._common import app, folder, hush, integers, print_json, user_errors, words

if TYPE_CHECKING:
    from kernelsieve.bench import Comparison, Plan, Store

NO_PICTURE = "not drawn: pip install 'kernelsieve[plot]'"


@app.command()
def bench(
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET",
            help="Names from 'kernelsieve datasets', or CSV files.",
            show_default="diabetes friedman product onehot",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What to predict in a CSV file.")
    ] = None,
    drop: Annotated[
        str, typer.Option(metavar="A,B", help="Columns of a CSV file to leave out.")
    ] = "",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Methods to compare, or 'all'.",
            show_default="fourier,nystrom,oblivious,row-norm,adaptive",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="S,S",
            help="Numbers of features s.",
            show_default="doubled until the error stops improving",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Repetitions.")] = 5,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", help="Threads, the same for all.", show_default="all cores"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="The largest s are left out if it takes longer.",
            show_default="20, for the built-in data 2",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path(
        "bench-results"
    ),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure anew what the folder has already.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the tables only.")] = False,
) -> None:
    """Compare methods: test error, training time and number of features.

    The protocol of the paper: inputs are standardised, one gamma and one
    alpha, chosen by cross-validation on Fourier features, serve every method,
    and s doubles until the error stops improving. Training time counts
    features and regression. Interrupted runs resume.

    [bold]Examples[/bold]

    kernelsieve bench
    kernelsieve bench prices.csv --target price --drop name
    kernelsieve bench friedman --methods exact,fourier --features 100,200
    KERNELSIEVE_DATA=~/data kernelsieve bench wine insurance --out paper
    """
    from kernelsieve.bench import METHODS, PAPER_METHODS, Plan, Store
    from kernelsieve.bench.records import RecordError
    from kernelsieve.bench.runner import BUILT_IN, PlanError, check_data
    from kernelsieve.datasets import DatasetError

    start = perf_counter()
    chosen = PAPER_METHODS if methods is None else tuple(words(methods))
    with user_errors(PlanError, RecordError, DatasetError, FileNotFoundError):
        plan = Plan(
            datasets=tuple(dataset or BUILT_IN),
            methods=tuple(METHODS) if chosen == ("all",) else chosen,
            n_components=None if features is None else tuple(integers(features, "--features")),
            n_seeds=seeds,
            n_threads=threads,
            budget_minutes=budget if budget is not None else 20.0 if dataset else 1.8,
            target=target,
            drop=tuple(words(drop)),
        )
        check_data(plan, progress=not (quiet or json))  # before earlier results are touched
        path = folder(out) / "results.jsonl"
        if fresh:
            path.unlink(missing_ok=True)
        store = Store(path)
        known = len(store.records)
        comparisons = _run(plan, store, quiet or json)
    has_pictures = _write(comparisons, out)
    if json:
        print_json(_plain(comparisons))
        return
    _print_tables(comparisons)
    if not quiet:
        _print_files(out, has_pictures, perf_counter() - start, len(store.records) == known)


@app.command("datasets")
def list_datasets() -> None:
    """List the known datasets and the folders that are searched for them."""
    from rich.console import Console
    from rich.table import Table

    from kernelsieve import datasets

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("inputs", justify="right", no_wrap=True)
    table.add_column("where", no_wrap=True)
    table.add_column("what")
    for entry in map(datasets.describe, datasets.names()):
        present = datasets.find_files(entry) is not None
        where = "built in" if entry.built_in else "file" if present else "no file"
        if not present and entry.source is not None:
            where = "download"
        table.add_row(
            entry.name, f"{entry.n_rows:,}", f"{entry.n_features:,}", where, entry.description,
            style="" if present else "dim",
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(
        f"\nData folder: {datasets.data_folder()} (set KERNELSIEVE_DATA to change it). "
        f"Downloads go to {datasets.cache_folder()}.",
        highlight=False,
        soft_wrap=True,
    )


def _run(plan: Plan, store: Store, silent: bool) -> list[Comparison]:
    """Carry out the plan with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kernelsieve.bench.runner import run, skipped

    if silent:
        hush()
    console = Console(stderr=True, quiet=silent)
    for line in skipped(plan):
        console.print(f"Note: {line}", style="dim", highlight=False)
    columns = (
        TextColumn("{task.description:<44}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console.quiet = silent or not console.is_terminal  # no bar in a log
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def report(step: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=step)

        return run(plan, store, report)


def _write(comparisons: list[Comparison], out: Path) -> bool:
    """table.md, report.html and bench.png; False where matplotlib is missing for pictures."""
    from kernelsieve.bench import plots, report, table

    write_text(out / "table.md", table.markdown(comparisons))
    try:
        plots.save(comparisons, out / "bench.png")
        has_pictures = True
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        has_pictures = False
    page = report.html(comparisons, pictures=has_pictures)
    write_text(out / "report.html", page)
    return has_pictures


def _plain(comparisons: list[Comparison]) -> list[dict[str, Any]]:
    """Set-up and means of every dataset; the single runs are in results.jsonl."""
    from dataclasses import asdict

    return [
        {
            "setup": asdict(c.setup),
            "rows": [{**asdict(r), "chosen": r is c.chosen(r.method)} for r in c.rows],
        }
        for c in comparisons
    ]


def _print_tables(comparisons: list[Comparison]) -> None:
    from rich.console import Console

    from kernelsieve.bench.table import Terminal

    Console().print(Terminal(comparisons))


def _print_files(out: Path, has_pictures: bool, seconds: float, nothing_new: bool) -> None:
    typer.echo(f"Report:  {out / 'report.html'}")
    typer.echo(f"Picture: {out / 'bench.png' if has_pictures else NO_PICTURE}")
    typer.echo(f"Tables:  {out / 'table.md'}")
    typer.echo(f"Records: {out / 'results.jsonl'}")
    typer.echo(f"Took:    {duration(seconds)}")
    if nothing_new:
        typer.echo("Nothing was measured: all of it was there; --fresh measures anew.")
