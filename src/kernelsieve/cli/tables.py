"""The commands for models of tables: inspect, fit, predict, embed, explain."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelsieve._progress import duration
from kernelsieve.cli._common import (
    UserError,
    app,
    check_outputs,
    notes,
    plan_lines,
    print_json,
    require_files,
    steps,
    user_errors,
    words,
)

if TYPE_CHECKING:
    from kernelsieve.tables.model import TableModel

SHOWN_COLUMNS = 5
INSPECTED_ROWS = 100_000  # of a large file
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
FIT_FEATURES = Annotated[
    int | None, typer.Option(metavar="S", help="Number of features.", show_default="automatic")
]
FIT_KERNEL = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"{KERNELS}.", show_default="learned")
]
ALPHA = Annotated[
    str, typer.Option(metavar="X", help="Ridge: 'cv' (cross-validation) or a number.")
]
GAMMA = Annotated[
    str, typer.Option(metavar="X", help="Kernel width: 'cv', 'scale', 'auto' or a number.")
]
DEGREE = Annotated[int, typer.Option(metavar="N", help="Degree of the polynomial kernel.")]
TASK = Annotated[str, typer.Option(metavar="NAME", help="auto, regression or classification.")]
DROP = Annotated[str, typer.Option(metavar="A,B", help="Columns to ignore.")]
KEEP = Annotated[
    str, typer.Option(metavar="A,B", help="Columns to use even if they look like identifiers.")
]
READABLE = Annotated[
    bool,
    typer.Option("--readable", help="Use features that are products of columns, for explanations."),
]
STRICT = Annotated[
    bool, typer.Option("--strict", help="Turn notes (missing values, ignored columns) into errors.")
]
SEED = Annotated[int, typer.Option(metavar="N", help="Random seed.")]
SEP = Annotated[
    str | None,
    typer.Option(metavar="C", help="Column separator of text files.", show_default="detect"),
]
DECIMAL = Annotated[
    str | None, typer.Option(metavar="C", help="Decimal sign: '.' or ','.", show_default="detect")
]
ENCODING = Annotated[
    str | None, typer.Option(metavar="NAME", help="For example cp1252.", show_default="UTF-8")
]
DATE_FORMAT = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="For example %d.%m.%Y.", show_default="detect"),
]
THREADS = Annotated[
    int | None, typer.Option(metavar="N", help="Number of threads.", show_default="all cores")
]


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV, Excel, Parquet, Arrow, LIBSVM, npz.")
    ],
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column to predict.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Model file.")] = Path(
        "model.ks"
    ),
    kernel: FIT_KERNEL = None,
    method: METHOD = "auto",
    features: FIT_FEATURES = None,
    alpha: ALPHA = "cv",
    gamma: GAMMA = "cv",
    degree: DEGREE = 3,
    task: TASK = "auto",
    class_weight: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="'balanced': give all classes equal weight.", show_default="no"
        ),
    ] = None,
    drop: DROP = "",
    keep: KEEP = "",
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Keep rows of one group (a customer) together when judging.",
            show_default="no",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Judge by later rows: a date or number.", show_default="no"
        ),
    ] = None,
    readable: READABLE = False,
    max_order: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Learn parts of at most N columns: 2 for main effects and pairs.",
            show_default="no limit",
        ),
    ] = None,
    target_transform: Annotated[
        str,
        typer.Option(metavar="NAME", help="Transform the target: auto, log, sqrt or none."),
    ] = "auto",
    std: Annotated[
        bool, typer.Option("--std", help="Allow 'predict --std' later: a larger file.")
    ] = False,
    sample_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Learn from a random sample of N rows.", show_default="auto"
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Approximate time limit of the fit, in seconds.",
            show_default="no limit",
        ),
    ] = None,
    no_baselines: Annotated[
        bool, typer.Option("--no-baselines", help="Do not compare with other models.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Also print the kernel, its features and accuracy.")
    ] = False,
    strict: STRICT = False,
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    date_format: DATE_FORMAT = None,
    seed: SEED = 0,
    threads: THREADS = None,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Fit a model that predicts a column of a table, and save it to a file.

    Numbers are standardised, texts become 0/1 columns, and missing values are
    filled in. The kernel is learned unless you choose one. Held-out rows, which
    have no part in any choice, compare the model with a constant, a linear
    model and gradient boosting. The label of a LIBSVM file is called 'target'.

    [bold]Examples[/bold]

    kernelsieve fit flats.csv --target rent -o rent.ks
    kernelsieve fit people.parquet --target job --drop name,id --readable
    kernelsieve fit text.svm --target target --kernel poly --degree 2
    """
    require_files(data)
    from kernelsieve.persistence import save
    from kernelsieve.tables.model import TableModel
    from kernelsieve.tables.writers import check_writable

    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        check_writable(out, (".ks",))
        check_outputs([out], [data])
        model = TableModel(
            target,
            task=task,
            kernel=kernel,
            method=method,
            n_components=features,
            alpha=_number_or_word(alpha, "--alpha", ("cv",)),
            gamma=_number_or_word(gamma, "--gamma", ("cv", "scale", "auto")),
            degree=degree,
            class_weight=class_weight,
            readable=readable,
            max_order=max_order,
            target_transform=None if target_transform == "none" else target_transform,
            drop=words(drop),
            keep=words(keep),
            strict=strict,
            sample_rows=sample_rows,
            time_limit=time_limit,
            baselines=not no_baselines,
            random_state=seed,
            n_jobs=threads,
        )
        text = text_options(sep, decimal, encoding, date_format)
        model.fit_file(data, progress=step, groups=groups, order=order, **text)
        save(model, out, variance=std)
    if json:
        print_json({**model.facts_, "notes": found, "model": str(out)})
    elif not quiet:
        _print_fit(model, out, details)


@app.command()
def inspect(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV, Excel, Parquet, Arrow, LIBSVM, npz.")
    ],
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column to predict.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page.", show_default="no")
    ] = None,
    task: TASK = "auto",
    drop: DROP = "",
    keep: KEEP = "",
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    date_format: DATE_FORMAT = None,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Show what 'fit' would do with every column of a table.

    One line for each column: its kind, how many values are missing, how many
    are distinct, and what becomes of it.

    [bold]Examples[/bold]

    kernelsieve inspect flats.csv --target rent
    kernelsieve inspect flats.csv --target rent --html flats.html
    """
    require_files(data)
    from dataclasses import asdict

    from kernelsieve._files import write_text
    from kernelsieve.tables.inspection import as_html, as_lines, inspected
    from kernelsieve.tables.readers import read_table
    from kernelsieve.tables.sampling import sampled, too_large
    from kernelsieve.tables.table import notice
    from kernelsieve.tables.writers import check_writable

    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        if html is not None:
            check_writable(html, (".html",))
            check_outputs([html], [data])
        text = text_options(sep, decimal, encoding, date_format)
        if too_large(data):
            table, n_rows = sampled(data, INSPECTED_ROWS, 0, step, text)
            notice(f"{data} is large: inspected {table.n_rows:,} random rows of {n_rows:,}")
        else:
            table = read_table(data, **text)
            n_rows = table.n_rows
        columns = inspected(table, target, task=task, drop=words(drop), keep=words(keep))
        if html is not None:
            write_text(html, as_html(str(data), n_rows, columns))
    if json:
        rows = [asdict(column) for column in columns]
        print_json({"rows": n_rows, "columns": rows, "notes": found})
    elif not quiet:
        for line in as_lines(columns):
            typer.echo(line)
        typer.echo(f"{n_rows:,} rows" + (f", page: {html}" if html is not None else ""))


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File written by fit.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Table with the same columns.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="csv, parquet, arrow, npz.", show_default="print"
        ),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add class probabilities.")] = False,
    std: Annotated[
        bool, typer.Option("--std", help="Add standard deviations (regression only).")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(metavar="P", help="Add prediction intervals with coverage P, e.g. 0.9."),
    ] = None,
    keep_columns: Annotated[
        str, typer.Option(metavar="A,B", help="Columns to copy to the output, or 'all'.")
    ] = "",
    strict: STRICT = False,
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    date_format: DATE_FORMAT = None,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Predict the target for every row of a table.

    Columns are matched by name; others are ignored. If the table contains the
    target, the scores are printed. Intervals come from the errors on the rows
    that 'fit' held out.

    [bold]Examples[/bold]

    kernelsieve predict rent.ks new.csv -o out.csv
    kernelsieve predict rent.ks new.csv --keep-columns id --interval 0.9
    kernelsieve predict jobs.ks new.parquet --proba -o out.parquet
    """
    require_files(model, data)
    from kernelsieve.tables.batches import predict_batches
    from kernelsieve.tables.readers import read_batches, read_table
    from kernelsieve.tables.sampling import too_large
    from kernelsieve.tables.writers import (
        COLUMN_WRITERS,
        check_writable,
        csv_parts,
        write_columns,
    )

    start = perf_counter()
    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        if out is not None:
            check_writable(out, tuple(COLUMN_WRITERS))
            check_outputs([out], [model, data])
        step("reading the model")
        fitted = _load(model, strict)
        step("predicting")
        text = text_options(sep, decimal, encoding, date_format)
        kept = None if keep_columns == "all" else words(keep_columns)
        # In a text, the columns stay as they are: zeros in front, long numbers, dates.
        given = kept if not json and (out is None or out.suffix.lower() == ".csv") else []
        text |= {"readings": fitted.readings_, "given": given}
        wanted: dict[str, Any] = {"proba": proba, "std": std, "interval": interval, "keep": kept}
        if too_large(data):
            answer = predict_batches(fitted, read_batches(data, **text), **wanted, progress=step)
        else:
            answer = fitted.predict_table(read_table(data, **text), **wanted)
        if out is not None:
            write_columns(out, answer.columns)
    if json:
        predictions = {name: values.tolist() for name, values in answer.columns.items()}
        content: dict[str, Any] = {"rows": answer.n_rows, "scores": answer.scores, "notes": found}
        print_json({**content, **({"out": str(out)} if out else {"predictions": predictions})})
    elif out is None:
        for part in csv_parts(answer.columns):
            typer.echo(part, nl=False)
    elif not quiet:
        typer.echo(f"Rows:   {answer.n_rows:,}")
        if answer.scores is not None:
            typer.echo(f"Scores: {_score_text(answer.scores)}")
        typer.echo(f"Wrote:  {out}")
        typer.echo(f"Took:   {duration(perf_counter() - start)}")


@app.command()
def embed(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV, Excel, Parquet, Arrow, LIBSVM, npz.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="parquet, npz, svm, csv, arrow.")
    ] = Path("features.parquet"),
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Use the features of a fitted model.", show_default="new"
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Choose features that predict this column.")
    ] = None,
    kernel: KERNEL = "gaussian",
    method: METHOD = "adaptive",
    features: FEATURES = 500,
    alpha: ALPHA = "1.0",
    gamma: GAMMA = "scale",
    degree: DEGREE = 3,
    drop: DROP = "",
    keep: KEEP = "",
    readable: READABLE = False,
    strict: STRICT = False,
    sep: SEP = None,
    decimal: DECIMAL = None,
    encoding: ENCODING = None,
    date_format: DATE_FORMAT = None,
    seed: SEED = 0,
    threads: THREADS = None,
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Write the features of a table: rows whose inner products are the kernel.

    A linear method on these features is a kernel method. Sparse features stay
    sparse in npz and LIBSVM files.

    [bold]Examples[/bold]

    kernelsieve embed flats.csv --drop rent --features 300 -o z.parquet
    kernelsieve embed flats.csv --target rent -o z.npz
    kernelsieve embed new.csv --model rent.ks -o z.svm
    """
    require_files(*([data] if model is None else [model, data]))
    from kernelsieve.tables.embedding import embedding
    from kernelsieve.tables.readers import read_table
    from kernelsieve.tables.writers import MATRIX_KINDS, check_writable, write_features

    start = perf_counter()
    silent = quiet or json
    with _errors(), notes(silent) as found, steps(silent) as step:
        check_writable(out, MATRIX_KINDS)
        check_outputs([out], [data, model])
        step("reading")
        fitted = None if model is None else _load(model, strict)
        known = None if fitted is None else fitted.readings_
        text = text_options(sep, decimal, encoding, date_format)
        table = read_table(data, **text, readings=known)
        step("choosing features")
        if fitted is not None:
            Z, names, y = fitted.transform(table), fitted.get_feature_names_out(), None
        else:
            Z, names, y = embedding(
                table,
                target,
                drop=words(drop),
                keep=words(keep),
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
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.ks).")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The ONNX file to write.")],
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="Numbers in and out: float64 or float32.")
    ] = "float64",
    json: JSON = False,
    quiet: QUIET = False,
) -> None:
    """Write a model as an ONNX file, which runs without Python.

    A model of 'kernelsieve fit' has one input for each column it uses: numbers
    with NaN where they are missing, texts with "" there, and times as seconds
    since 1970. Needs onnx: pip install 'kernelsieve\\[onnx]'.

    [bold]Examples[/bold]

    kernelsieve export rent.ks rent.onnx
    kernelsieve export rent.ks rent.onnx --dtype float32
    """
    require_files(model)
    check_outputs([out], [model])
    from kernelsieve.export import export_onnx
    from kernelsieve.persistence import load

    with _errors(), notes(quiet or json) as found:
        try:
            export_onnx(load(model), out, dtype=dtype)
        except ImportError as error:
            raise UserError(str(error)) from error
    if json:
        print_json({"out": str(out), "bytes": out.stat().st_size, "notes": found})
    elif not quiet:
        typer.echo(f"Wrote:  {out} ({out.stat().st_size / 1e6:.2f} MB)")


def _load(path: Path, strict: bool) -> TableModel:
    from kernelsieve.persistence import load
    from kernelsieve.tables.model import TableModel

    model = load(path)
    if not isinstance(model, TableModel) or not hasattr(model, "facts_"):
        raise UserError(
            f"{path} contains a {type(model).__name__}, not a model of 'kernelsieve fit': load it "
            "in Python with kernelsieve.load"
        )
    model.encoder_.strict = strict
    return model


def text_options(
    sep: str | None, decimal: str | None, encoding: str | None, date_format: str | None
) -> dict[str, Any]:
    """How a text file is written, as far as the user says."""
    return {"sep": sep, "decimal": decimal, "encoding": encoding, "date_format": date_format}


def _errors() -> Any:
    """Convert the exceptions of files, tables and parameters to user errors."""
    from kernelsieve.persistence import ModelFileError
    from kernelsieve.tables.table import TableError

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


def _print_fit(model: TableModel, out: Path, details: bool) -> None:
    from kernelsieve.tables.facts import (
        column_lines,
        confusion_lines,
        detail_lines,
        printable,
        summary_lines,
    )
    from kernelsieve.tables.verdict import verdict_lines

    facts = model.facts_
    parts = [
        summary_lines(facts),
        plan_lines(model),
        verdict_lines(facts),
        confusion_lines(facts),
        column_lines(facts, SHOWN_COLUMNS),
        detail_lines(facts) if details else [],
    ]
    for part in parts:
        for line in part:
            typer.echo(printable(line))
        if part:
            typer.echo()
    typer.echo(f"Saved {out} after {duration(facts['seconds'])}. Next:")
    typer.echo(f"  kernelsieve explain {out}")
    typer.echo(f"  kernelsieve predict {out} new.csv -o out.csv")


def _score_text(scores: dict[str, float]) -> str:
    from kernelsieve.tables.figures import figure

    return ", ".join(f"{name} {figure(value)}" for name, value in scores.items())
