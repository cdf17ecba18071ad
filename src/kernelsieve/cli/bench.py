"""Comparisons of methods, and the data for them."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelsieve._files import write_text
from kernelsieve._progress import duration, shown
from kernelsieve.cli._common import (
    UserError,
    app,
    check_outputs,
    folder,
    hush,
    integers,
    print_json,
    user_errors,
    words,
)

if TYPE_CHECKING:
    from kernelsieve.bench import Comparison, Plan, Run, Store
    from kernelsieve.bench.isolated import Limits
    from kernelsieve.bench.scoreboard import ScoreboardPlan

FILES = ("results.jsonl", "table.md", "report.html", "bench.png")
SCOREBOARD_FILES = ("scoreboard.jsonl", "scoreboard.md", "scoreboard.html")
NO_PICTURE = "not drawn: pip install 'kernelsieve[plot]'"


@app.command()
def bench(
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET",
            help="Names from 'kernelsieve datasets', or files; for --suite tables also folders.",
            show_default="diabetes friedman onehot breast_cancer",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="'paper': the data and methods of the paper. 'tables': a scoreboard of tables.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="What to predict in a file; for several tables TABLE=COLUMN,TABLE=COLUMN.",
        ),
    ] = None,
    drop: Annotated[str, typer.Option(metavar="A,B", help="Columns of a file to leave out.")] = "",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Methods to compare, or 'all'.",
            show_default="linear,boosting,exact,fourier,nystrom,row-norm,adaptive,default",
        ),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Other packages, too, where they are installed.")
    ] = False,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="S,S", help="Numbers of features s.", show_default="125,250,500,1000,..."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Repetitions, or splits of tables.")] = 2,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Threads, the same for all.",
            show_default="all cores, for the built-in data 1",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Sizes and datasets that would take longer are left out.",
            show_default="20, for the built-in data 1",
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of a fit in its own process.")
    ] = 180.0,
    memory: Annotated[
        float, typer.Option(metavar="GIB", help="Memory limit of a fit in its own process.")
    ] = 8.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path(
        "bench-results"
    ),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what the folder already has.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the tables only.")] = False,
) -> None:
    """Compare methods: test error, training time and number of features.

    All methods see the same rows. Kernel methods share one gamma and one
    alpha, chosen on the training rows; the number of features s is chosen on
    validation rows. Training time counts features and regression. Interrupted
    runs resume.

    [bold]Examples[/bold]

    kernelsieve bench
    kernelsieve bench prices.csv --target price --drop name --peers
    kernelsieve bench friedman --methods exact,fourier --features 100,200
    kernelsieve bench --suite paper
    kernelsieve bench --suite tables FOLDER wine --target a=price,b=y --peers
    """
    from kernelsieve.bench import METHODS, PAPER_METHODS, PEERS, Plan, Store
    from kernelsieve.bench.isolated import Limits
    from kernelsieve.bench.methods import DEFAULT_METHODS
    from kernelsieve.bench.records import RecordError
    from kernelsieve.bench.runner import check_data
    from kernelsieve.bench.schedule import BUILT_IN, PAPER_SUITE, PlanError
    from kernelsieve.datasets import DatasetError
    from kernelsieve.tables.table import TableError

    start = perf_counter()
    if suite not in (None, "paper", "tables"):
        raise UserError(f"--suite {suite}: the suites are 'paper' and 'tables'")
    usual = PAPER_METHODS if suite == "paper" else DEFAULT_METHODS
    chosen = usual if methods is None else tuple(words(methods))
    chosen = tuple(METHODS) if chosen == ("all",) else chosen
    chosen += tuple(name for name in PEERS if peers and name not in chosen)
    limits = Limits(limit, int(memory * 2**30))
    with user_errors(PlanError, RecordError, DatasetError, TableError, FileNotFoundError):
        names = SCOREBOARD_FILES if suite == "tables" else FILES
        path = folder(out) / names[0]
        check_outputs((out / name for name in names), map(Path, dataset or ()))
        if suite == "tables":
            board = _scoreboard_plan(dataset, target, drop, chosen, seeds, threads, limits)
            _scoreboard(board, path, fresh, json, quiet)
            return
        plan = Plan(
            datasets=tuple(dataset or (PAPER_SUITE if suite == "paper" else BUILT_IN)),
            methods=chosen,
            n_components=None if features is None else tuple(integers(features, "--features")),
            n_seeds=seeds,
            n_threads=1 if threads is None and not (dataset or suite) else threads,
            budget_minutes=budget if budget is not None else 20.0 if dataset or suite else 1.0,
            target=target,
            drop=tuple(words(drop)),
            limits=limits,
        )
        check_data(plan, progress=not (quiet or json))  # before earlier results are touched
        if fresh:
            path.unlink(missing_ok=True)
        store = Store(path)
        known = len(store.records)
        found = _run(plan, store, quiet or json)
    has_pictures = _write(found, out)
    if json:
        print_json(_plain(found.comparisons))
        return
    _print_tables(found.comparisons)
    for line in () if quiet else found.left_out:
        typer.echo(line)
    if not quiet:
        _print_files(out, has_pictures)
        _print_times(found, perf_counter() - start, len(store.records) == known)


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
        if not present and entry.origin is not None:
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


def _run(plan: Plan, store: Store, silent: bool) -> Run:
    """Carry out the plan and show how far it is."""
    from kernelsieve.bench.runner import run

    if silent:
        hush()
    with shown(silent) as progress:
        return run(plan, store, lambda step, done, total: progress.at(step, done / max(1, total)))


def _write(found: Run, out: Path) -> bool:
    """table.md, report.html and bench.png; False where matplotlib is missing for pictures."""
    from kernelsieve.bench import plots, report, table

    write_text(out / "table.md", table.markdown(found.comparisons))
    png = None
    try:
        plots.save(found.comparisons, out / "bench.png")
        png = (out / "bench.png").read_bytes()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
    page = report.html(
        found.comparisons, left_out=found.left_out, png=png, pictures=png is not None
    )
    write_text(out / "report.html", page)
    return png is not None


def _scoreboard_plan(
    places: list[str] | None,
    target: str | None,
    drop: str,
    methods: tuple[str, ...],
    splits: int,
    threads: int | None,
    limits: Limits,
) -> ScoreboardPlan:
    from kernelsieve.bench.scoreboard import ScoreboardPlan, find_tables

    if not places:
        raise UserError("--suite tables needs a folder with tables, or names of datasets")
    pairs = [word.rpartition("=") for word in words(target or "")]
    tables, notes = find_tables(
        places, {name or "*": column for name, _, column in pairs}, words(drop)
    )
    for note in notes:
        typer.secho(f"Note: {note}", dim=True, err=True)
    return ScoreboardPlan(tuple(tables), methods, n_splits=splits, n_threads=threads, limits=limits)


def _scoreboard(plan: ScoreboardPlan, path: Path, fresh: bool, json: bool, quiet: bool) -> None:
    """Run the scoreboard, write its files and print it."""
    from rich.console import Console

    from kernelsieve.bench import Store, scoreboard_report
    from kernelsieve.bench.scoreboard import run_scoreboard

    if fresh:
        path.unlink(missing_ok=True)
    with shown(quiet or json) as progress:
        board = run_scoreboard(
            plan, Store(path), lambda step, done, total: progress.at(step, done / max(1, total))
        )
    out = path.parent
    write_text(out / "scoreboard.md", scoreboard_report.markdown(board))
    write_text(out / "scoreboard.html", scoreboard_report.html(board))
    if json:
        print_json(scoreboard_report.plain(board))
        return
    Console().print(scoreboard_report.terminal(board))
    if not quiet:
        typer.echo(f"Report:  {out / 'scoreboard.html'}")
        typer.echo(f"Tables:  {out / 'scoreboard.md'}")
        typer.echo(f"Records: {path}")


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


def _print_files(out: Path, has_pictures: bool) -> None:
    typer.echo(f"Report:  {out / 'report.html'}")
    typer.echo(f"Picture: {out / 'bench.png' if has_pictures else NO_PICTURE}")
    typer.echo(f"Tables:  {out / 'table.md'}")
    typer.echo(f"Records: {out / 'results.jsonl'}")


def _print_times(found: Run, seconds: float, nothing_new: bool) -> None:
    if nothing_new:
        typer.echo("Nothing was measured: all results were there. --fresh measures again.")
        return
    counted = seconds - found.compile_seconds
    share = f"{found.fit_seconds / counted:.0%} of it in fits and predictions"
    typer.echo(f"Took:    {duration(counted)}, {share}")
    typer.echo(f"         and {duration(found.compile_seconds)} to warm up; compiling is done once")
