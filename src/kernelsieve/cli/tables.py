"""Models of people's own files: fit, predict, embed, explain."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelsieve._progress import duration
from kernelsieve.cli._common import (
    UserError,
    app,
    notes,
    print_json,
    require_files,
    steps,
    user_errors,
    words,
)

if TYPE_CHECKING:
    from kernelsieve.tables import TableModel

KERNELS = "gaussian, poly, exponential, inverse_polynomial, linear, laplacian, matern"
QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KERNEL = Annotated[str, typer.Option(metavar="NAME", help=f"{KERNELS}.")]
METHOD = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, adaptive, row-norm, nystrom, fourier, oblivious, tensor-sketch, maclaurin.",
    ),
]
FEATURES = Annotated[int, typer.Option(metavar="S", help="Number of features.")]
ALPHA = Annotated[str, typer.Option(metavar="X", help="The ridge: 'cv' or a number.")]
GAMMA = Annotated[str, typer.Option(metavar="X", help="'cv', 'scale', 'auto' or a number.")]
DEGREE = Annotated[int, typer.Option(metavar="N", help="Of the polynomial kernel.")]
TASK = Annotated[str, typer.Option(metavar="NAME", help="auto, regression or classification.")]
DROP = Annotated[str, typer.Option(metavar="A,B", help="Columns to leave out.")]
READABLE = Annotated[
    bool, typer.Option("--readable", help="Products of columns, not of principal components.")
]
STRICT = Annotated[
    bool, typer.Option("--strict", help="Refuse missing values and columns that cannot be used.")
]
SEED = Annotated[int, typer.Option(metavar="N", help="Of all random choices.")]
THREADS = Annotated[int | None, typer.Option(metavar="N", help="Threads.", show_default="all")]


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV, Parquet, Arrow, LIBSVM, npz.")],
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="What to predict.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model.")] = Path(
        "model.ks"
    ),
    kernel: KERNEL = "gaussian",
    method: METHOD = "auto",
    features: FEATURES = 2000,
    alpha: ALPHA = "cv",
    gamma: GAMMA = "cv",
    degree: DEGREE = 3,
    task: TASK = "auto",
    drop: DROP = "",
    readable: READABLE = False,
    strict: STRICT = False,
    seed: SEED = 0,
    threads: THREADS = None,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Learn a column of a table, and write the model to a file.

    Numbers are scaled, texts become 0/1 columns, missing values are filled
    in. A fifth of the rows is set aside to judge the model, which is then
    fitted to all of them. In LIBSVM files the column is called 'target'.

    [bold]Examples[/bold]

    kernelsieve fit flats.csv --target rent -o rent.ks
    kernelsieve fit people.parquet --target job --drop name,id --readable
    kernelsieve fit text.svm --target target --kernel poly --degree 2
    """
    require_files(data)
    from kernelsieve.persistence import save
    from kernelsieve.tables import TableModel
    from kernelsieve.tables.writers import check_writable

    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        check_writable(out, (".ks",))
        model = TableModel(
            target,
            task=task,
            kernel=kernel,
            method=method,
            n_components=features,
            alpha=_number_or_word(alpha, "--alpha", ("cv",)),
            gamma=_number_or_word(gamma, "--gamma", ("cv", "scale", "auto")),
            degree=degree,
            readable=readable,
            drop=words(drop),
            strict=strict,
            random_state=seed,
            n_jobs=threads,
        ).fit(data, progress=step)
        save(model, out)
    if json:
        print_json({**model.facts_, "notes": found, "model": str(out)})
    elif not quiet:
        _print_fit(model, out)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The rows, with the same columns.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="csv, parquet, arrow, npz.", show_default="screen"
        ),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probabilities of the classes.")
    ] = False,
    std: Annotated[
        bool, typer.Option("--std", help="Add the standard deviations of a regression.")
    ] = False,
    strict: STRICT = False,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Predict the target of every row of a table.

    Columns are matched by name; further ones do not matter. Where the table
    holds the target too, the scores are printed.

    [bold]Examples[/bold]

    kernelsieve predict rent.ks new.csv -o out.csv
    kernelsieve predict jobs.ks new.parquet --proba -o out.parquet
    """
    require_files(model, data)
    from kernelsieve.tables.writers import COLUMN_WRITERS, check_writable, csv_text, write_columns

    start = perf_counter()
    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        if out is not None:
            check_writable(out, tuple(COLUMN_WRITERS))
        step("reading the model")
        fitted = _load(model, strict)
        step("predicting")
        answer = fitted.predict_table(data, proba=proba, std=std)
        if out is not None:
            write_columns(out, answer.columns)
    if json:
        predictions = {name: values.tolist() for name, values in answer.columns.items()}
        content: dict[str, Any] = {"rows": answer.n_rows, "scores": answer.scores, "notes": found}
        print_json({**content, **({"out": str(out)} if out else {"predictions": predictions})})
    elif out is None:
        typer.echo(csv_text(answer.columns), nl=False)
    elif not quiet:
        typer.echo(f"Rows:   {answer.n_rows:,}")
        if answer.scores is not None:
            typer.echo(f"Scores: {_score_text(answer.scores)}")
        typer.echo(f"Wrote:  {out}")
        typer.echo(f"Took:   {duration(perf_counter() - start)}")


@app.command()
def embed(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV, Parquet, Arrow, LIBSVM, npz.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="parquet, npz, svm, csv, arrow.")
    ] = Path("features.parquet"),
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use the features of this model.", show_default="new"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Choose features for this column.")
    ] = None,
    kernel: KERNEL = "gaussian",
    method: METHOD = "adaptive",
    features: FEATURES = 500,
    alpha: ALPHA = "1.0",
    gamma: GAMMA = "scale",
    degree: DEGREE = 3,
    drop: DROP = "",
    readable: READABLE = False,
    strict: STRICT = False,
    seed: SEED = 0,
    threads: THREADS = None,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Write the features of a table: a matrix whose inner products are the kernel.

    Any linear method on them is a kernel method. Sparse features stay sparse
    in npz and LIBSVM files.

    [bold]Examples[/bold]

    kernelsieve embed flats.csv --drop rent --features 300 -o z.parquet
    kernelsieve embed flats.csv --target rent -o z.npz
    kernelsieve embed new.csv --model rent.ks -o z.svm
    """
    require_files(*([data] if model is None else [model, data]))
    from kernelsieve.tables import as_table
    from kernelsieve.tables.embedding import embedding
    from kernelsieve.tables.writers import MATRIX_KINDS, check_writable, write_features

    start = perf_counter()
    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        check_writable(out, MATRIX_KINDS)
        step("reading")
        table = as_table(data)
        step("choosing features")
        if model is not None:
            fitted = _load(model, strict)
            Z, names, y = fitted.transform(table), fitted.get_feature_names_out(), None
        else:
            Z, names, y = embedding(
                table,
                target,
                drop=words(drop),
                strict=strict,
                kernel=kernel,
                method=method,
                n_components=features,
                alpha=_number_or_word(alpha, "--alpha", ()),
                gamma=_number_or_word(gamma, "--gamma", ("scale", "auto")),
                degree=degree,
                readable=readable,
                random_state=seed,
                n_jobs=threads,
            )
        step("writing")
        write_features(out, Z, names, y)
    sparse = hasattr(Z, "nnz")
    if json:
        content = {"rows": Z.shape[0], "features": Z.shape[1], "sparse": sparse, "notes": found}
        print_json({**content, "out": str(out)})
    elif not quiet:
        filled = f", {Z.nnz / (Z.shape[0] * Z.shape[1]):.1%} nonzero" if sparse else ""
        typer.echo(f"Features: {Z.shape[0]:,} x {Z.shape[1]:,}{filled}")
        typer.echo(f"Wrote:    {out}")
        typer.echo(f"Took:     {duration(perf_counter() - start)}")


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.")],
    top: Annotated[int, typer.Option(metavar="N", help="Columns and monomials to show.")] = 10,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="png, svg, pdf.", show_default="the model's name.png"),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Text only.")] = False,
    json: JSON = False,
) -> None:
    """Show what a model is made of, in the words of the columns.

    The columns that matter, the products of them that matter, and how well
    the features stand for the kernel.

    [bold]Examples[/bold]

    kernelsieve explain rent.ks
    kernelsieve explain rent.ks --top 20 --picture rent.svg
    """
    require_files(model)
    from kernelsieve.tables.facts import as_text
    from kernelsieve.tables.writers import check_writable

    path = model.with_suffix(".png") if picture is None else picture
    with _errors():
        if top < 1:
            raise UserError(f"--top {top}: it must be at least 1")
        check_writable(path, (".png", ".svg", ".pdf"))
        fitted = _load(model, strict=False)
        drawn = None if no_picture or (json and picture is None) else _draw(fitted, path, top)
    if json:
        print_json(fitted.facts_)
        return
    typer.echo(as_text(fitted.facts_, top))
    if drawn is not None:
        typer.echo(f"\nPicture: {drawn}")


def _draw(model: TableModel, path: Path, top: int) -> str:
    from kernelsieve._files import replacing

    try:
        from kernelsieve.plots import plot_table_model

        figure = plot_table_model(model.facts_, top)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return "not drawn: pip install 'kernelsieve[plot]'"
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower())
    return str(path)


def _load(path: Path, strict: bool) -> TableModel:
    from kernelsieve.persistence import load
    from kernelsieve.tables import TableModel

    model = load(path)
    if not isinstance(model, TableModel) or not hasattr(model, "facts_"):
        raise UserError(
            f"{path} holds a {type(model).__name__}, and not what 'kernelsieve fit' writes: use "
            "kernelsieve.load in Python"
        )
    model.encoder_.strict = strict
    return model


def _errors() -> Any:
    """What files, tables and parameters raise when they are wrong."""
    from kernelsieve.persistence import ModelFileError
    from kernelsieve.tables import TableError

    return user_errors(TableError, ModelFileError, OSError, ValueError)


def _number_or_word(text: str, option: str, allowed: tuple[str, ...]) -> Any:
    if text in allowed:
        return text
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        known = ", ".join(f"'{word}'" for word in allowed)
        raise UserError(f"{option} {text}: give a positive number{', or ' if known else ''}{known}")
    return number


def _print_fit(model: TableModel, out: Path) -> None:
    from kernelsieve.tables.facts import column_lines, printable, summary_lines

    facts = model.facts_
    for line in [*summary_lines(facts), "", *column_lines(facts, 5), ""]:
        typer.echo(printable(line))
    typer.echo(f"Took:    {duration(facts['seconds'])}")
    typer.echo(f"Model:   {out}")
    typer.echo(f"Next:    kernelsieve explain {out}")
    typer.echo(f"         kernelsieve predict {out} new.csv -o out.csv")


def _score_text(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
