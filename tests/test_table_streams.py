"""Tables that are read in batches, because they need not fit in memory."""

from __future__ import annotations

import gzip
import lzma
import re
import warnings
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from support.tables import flats, written
from typer.testing import CliRunner

import kernelsieve
from kernelsieve import AdaptiveFeatures, KernelRidge, KernelRidgeCV, TableModel, cli
from kernelsieve.kernels import Product
from kernelsieve.learning.plan import Plan, Solver
from kernelsieve.sources import svmlight
from kernelsieve.tables import large, readers, sampling, text_files
from kernelsieve.tables.batches import predict_batches
from kernelsieve.tables.facts import monomial_facts
from kernelsieve.tables.readers import read_batches, read_table
from kernelsieve.tables.sampling import joined, sampled
from kernelsieve.tables.sizes import refuse_beyond_memory
from kernelsieve.tables.table import TableError, TableNotice, as_table

QUICK = {"n_components": 40, "gamma": 0.05, "alpha": 0.01}


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LARGEST_CELL", 4096)
    monkeypatch.setattr(readers, "PARQUET_ROWS", 100)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.arrow"])
def test_batches_are_the_table(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name, flats(700))
    batches = list(read_batches(path))
    assert len(batches) > 3 or name == "a.arrow"
    whole, together = read_table(path), reduce(joined, batches)
    assert list(together.columns) == list(whole.columns)
    for column, values in whole.columns.items():
        np.testing.assert_array_equal(together.columns[column], values)


def test_later_batches_are_read_like_the_first(tmp_path: Path) -> None:
    lines = [f"{i},5;0{i % 9 + 1}/28/2021" for i in range(600)] + ["1.234;03/04/2021"]
    (tmp_path / "a.csv").write_text("\n".join(["a;d", *lines]))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        table = reduce(joined, read_batches(tmp_path / "a.csv"))
    assert "'0,5' is read as the number 0.5" in str(found[0].message)
    assert [each.category for each in found] == [
        TableNotice
    ] * 2  # once each for numbers and dates, not once for every batch
    assert table.columns["a"][-1] == 1234.0
    assert table.columns["d"][-1] == "2021-03-04"


def test_errors_in_later_batches_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 3000 + "1,2,3\n")
    with pytest.raises(TableError, match="line 3002: 3 values for the 2 columns"):
        list(read_batches(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_bytes(b"a,b\n" + b"1,2\n" * 3000 + b"\xff\xfe,2\n")
    with pytest.raises(TableError, match="is not valid UTF-8"):
        list(read_batches(tmp_path / "a.csv"))
    with pytest.raises(TableError, match="does not exist"):
        list(read_batches(tmp_path / "no.csv"))


def test_every_row_is_as_likely_in_the_sample(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n" + "".join(f"{i}.000\n" for i in range(2000)))
    counts = np.zeros(2000)
    for seed in range(60):
        table, total = sampled(tmp_path / "a.csv", 500, seed, lambda step: None, {})
        assert (total, table.n_rows) == (2000, 500)
        counts[table.columns["a"].astype(int)] += 1
    # Each of the 20 groups of 100 rows is expected 1,500 times, with a deviation below 34.
    assert np.abs(counts.reshape(20, 100).sum(axis=1) - 1500).max() < 4 * 34


def test_a_streamed_ridge_is_that_of_all_rows(tmp_path: Path) -> None:
    table = flats(900)
    path = written(tmp_path / "a.csv", table)
    steps: list[str] = []
    model = TableModel("rent", sample_rows=200, **QUICK)
    model.fit_file(path, progress=steps.append)
    assert model.facts_["rows"] == 900
    assert "fitting: 100% of 900 rows" in steps
    X = model.encoder_.transform(table)
    oracle = KernelRidge(model.model_.features_, alpha=0.01).partial_fit(X, table["rent"])
    np.testing.assert_allclose(model.predict(table), oracle.predict(X), rtol=1e-6)
    few = KernelRidge(model.model_.features_, alpha=0.01)  # on the rows of the sample's size alone
    few.partial_fit(X[:200], table["rent"][:200])
    unseen = flats(300, seed=5)
    assert model.score(unseen) > few.score(model.encoder_.transform(unseen), unseen["rent"])
    kernelsieve.save(model, tmp_path / "m.ks")
    again = kernelsieve.load(tmp_path / "m.ks").predict(table)
    np.testing.assert_array_equal(again, model.predict(table))


def test_a_learned_kernel_streams_too(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", flats(400))
    model = TableModel("rent", sample_rows=150).fit(path)
    assert isinstance(model.model_.model_, KernelRidge)
    assert model.score(flats(200, seed=3)) > 0.95
    kernelsieve.save(model, tmp_path / "m.ks")
    np.testing.assert_array_equal(
        kernelsieve.load(tmp_path / "m.ks").predict(path), model.predict(path)
    )


def test_classes_are_learned_from_the_sample_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "a.csv", flats(400))
    arguments = ["fit", "a.csv", "--target", "town", "--sample-rows", "100", "--features", "20",
                 "--gamma", "0.1", "--alpha", "0.1", "--no-baselines"]  # fmt: skip
    outcome = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0
    assert "learned from a sample of 100 of 400 rows" in outcome.stderr


def test_a_sample_of_a_table_in_memory(tmp_path: Path) -> None:
    table = flats(900)
    model = TableModel("rent", sample_rows=300, random_state=0, **QUICK).fit(table)
    assert model.facts_["rows"] == 900
    whole = TableModel("rent", random_state=0, **QUICK).fit(table)
    np.testing.assert_allclose(
        model.facts_["scores"]["RMSE"], whole.facts_["scores"]["RMSE"], rtol=0.5
    )
    named = model.encoder_.get_feature_names_out()
    assert list(named) == list(whole.encoder_.get_feature_names_out())


def test_products_beside_a_linear_part_are_listed() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = 5.0 * X[:, 0] + X[:, 1] * X[:, 2]
    plan = Plan(Product(0.1), 1.0, Solver("landmarks", 20), linear=True)
    learned = KernelRidgeCV(plan=plan, random_state=0).fit(X, y)
    features = AdaptiveFeatures(40, kernel="poly", degree=2, rotate=False, random_state=0)
    ridge = KernelRidge(features, alpha=1e-3).fit(X, learned.learned_target(X, y))
    learned = learned.with_ridge(ridge)
    names = np.array(["a", "b", "c"], dtype=object)
    assert monomial_facts(learned, X, names, 0)["names"][0] == "b c"


@pytest.mark.parametrize("limit", [0.0, -1.0])
def test_a_time_limit_must_be_positive(limit: float) -> None:
    with pytest.raises(ValueError, match="time_limit"):
        TableModel("rent", time_limit=limit).fit(flats(60))


def test_fit_takes_a_time_limit(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", flats(200))
    words = ["fit", str(path), "--target", "rent", "--time-limit", "5", "--no-baselines"]
    found = CliRunner().invoke(cli.app, [*words, "-o", str(tmp_path / "m.ks")])
    assert found.exit_code == 0, found.output
    assert kernelsieve.load(tmp_path / "m.ks").time_limit == 5.0


def test_fit_takes_an_order(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", flats(200))
    words = ["fit", str(path), "--target", "rent", "--max-order", "2", "--no-baselines"]
    found = CliRunner().invoke(cli.app, [*words, "-o", str(tmp_path / "m.ks")])
    assert found.exit_code == 0, found.output
    parts = kernelsieve.explain(kernelsieve.load(tmp_path / "m.ks")).parts
    assert {part.order for part in parts} <= {1, 2}


def noted(fit: Callable[[], Any]) -> list[str]:
    """What a call notes."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit()
    return [str(each.message) for each in found]


def test_a_large_file_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.csv", flats(300))
    assert not sampling.too_large(path)
    monkeypatch.setattr(sampling, "LARGE_FILE", 100)
    assert sampling.too_large(path)
    steps: list[str] = []
    model = TableModel("rent", **QUICK).fit_file(path, progress=steps.append)
    assert "reading: 300 rows" in steps
    whole = TableModel("rent", **QUICK).fit(flats(300))  # the sample is the whole file
    np.testing.assert_allclose(model.predict(flats(20)), whole.predict(flats(20)), rtol=1e-9)


def test_a_compressed_file_is_judged_by_what_it_expands_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was judged by its own size, and 6 GB of text were read whole."""
    monkeypatch.setattr(sampling, "LARGE_FILE", 20_000)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x,rent\n" + b"1,2.5\n3,5\n2,4\n1,3\n" * 2_000))
    assert path.stat().st_size < 20_000
    assert sampling.too_large(path)
    steps: list[str] = []
    model = TableModel("rent", sample_rows=100, task="regression", **QUICK)
    noted(lambda: model.fit_file(path, progress=steps.append))
    assert "reading: 8,000 rows" in steps
    svm = tmp_path / "a.svm.gz"
    svm.write_bytes(gzip.compress(b"1 1:0.5 3:2\n-1 2:1\n" * 4_000))
    assert sampling.too_large(svm)
    assert not sampling.too_large(tmp_path / "no.csv.gz")


def test_a_table_beyond_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    refuse_beyond_memory(path, 100, available=600)
    with pytest.raises(TableError, match=r"a\.csv does not fit in memory: .*sample_rows="):
        refuse_beyond_memory(path, 101, available=600)


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz", "a.libsvm.xz"])
def test_sparse_files_are_read_in_batches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svmlight, "PARSED_ENTRIES", 100)
    X = sp.random(300, 20, density=0.2, random_state=0, format="csr")
    dump_svmlight_file(X, np.asarray(X.sum(axis=1)).ravel(), str(tmp_path / "plain.svm"))
    content = (tmp_path / "plain.svm").read_bytes()
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack(content))
    batches = list(read_batches(tmp_path / name))
    assert len(batches) > 3
    together = reduce(joined, batches)
    np.testing.assert_allclose(together.matrix.toarray(), X.toarray(), rtol=1e-12)
    model = TableModel("target", sample_rows=150, **QUICK).fit_file(tmp_path / name)
    assert model.facts_["rows"] == 300


def test_predictions_in_batches_are_those_of_the_table(tmp_path: Path) -> None:
    table = flats(500)
    path = written(tmp_path / "a.csv", table)
    for target, wanted in (("rent", {"interval": 0.9}), ("town", {"proba": True}), ("town", {})):
        model = TableModel(target, **QUICK).fit(flats(200, seed=1))
        whole = model.predict_table(path, keep=["built"], **wanted)
        batches = read_batches(path, readings=model.readings_)
        parts = predict_batches(model, batches, keep=["built"], **wanted)
        assert parts.n_rows == 500
        assert list(parts.columns) == list(whole.columns)
        for name, values in whole.columns.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(parts.columns[name], values, rtol=1e-9)
            else:
                assert parts.columns[name].tolist() == values.tolist()
        assert parts.scores == pytest.approx(
            model.predict_table(path, proba=target == "town").scores
        )


def test_large_files_are_inspected_and_predicted_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "a.csv", flats(500))
    model = TableModel("rent", **QUICK).fit(path)
    kernelsieve.save(model, "m.ks")
    monkeypatch.setattr(sampling, "LARGE_FILE", 100)
    outcome = CliRunner().invoke(cli.app, ["predict", "m.ks", "a.csv", "-o", "out.csv"])
    assert outcome.exit_code == 0, outcome.output
    assert "R2" in outcome.output
    np.testing.assert_allclose(read_table("out.csv").columns["rent"], model.predict(path))
    monkeypatch.setattr(cli.tables, "INSPECTED_ROWS", 200)
    outcome = CliRunner().invoke(cli.app, ["inspect", "a.csv", "--target", "rent"])
    assert "inspected 200 random rows of 500" in outcome.stderr
    assert "500 rows" in outcome.stdout


def test_a_file_of_no_rows_has_no_sample(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"a": np.empty(0), "rent": np.empty(0)})
    with pytest.raises(TableError, match=r"a\.parquet has no rows"):
        TableModel("rent", sample_rows=50, **QUICK).fit_file(path)


def test_numbers_and_texts_of_a_column_are_joined_as_texts() -> None:
    numbers, texts = as_table({"a": [1.0, 2.5, np.nan]}), as_table({"a": ["x", None]})
    assert joined(numbers, texts).columns["a"].tolist() == ["1", "2.5", None, "x", None]
    assert joined(texts, numbers).columns["a"].tolist() == ["x", None, "1", "2.5", None]


def test_a_batch_without_targets_is_passed_over(tmp_path: Path) -> None:
    table = flats(600)
    table["rent"][150:450] = np.nan  # more than a batch
    path = written(tmp_path / "a.parquet", table)
    model = TableModel("rent", sample_rows=100, **QUICK)
    noted(lambda: model.fit_file(path))
    assert model.facts_["rows"] == 600
    assert model.score(flats(200, seed=5)) > 0.9


def test_a_target_that_is_not_always_a_number_is_refused(tmp_path: Path) -> None:
    table = flats(600)
    table["rent"][599] = np.inf  # not in the sample
    path = written(tmp_path / "a.parquet", table)
    with pytest.raises(TableError, match="the target 'rent' is not always a number"):
        TableModel("rent", sample_rows=50, random_state=0, **QUICK).fit_file(path)


def test_rows_beyond_those_for_each_feature_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "ROWS_PER_FEATURE", 10)
    path = written(tmp_path / "a.csv", flats(900))
    model = TableModel("rent", sample_rows=100, **QUICK)
    (note,) = noted(lambda: model.fit_file(path))
    taken = re.fullmatch(r"fitted to (\d+) of 900 rows: 10 for each feature", note)
    assert taken is not None
    assert 340 < int(taken[1]) < 460  # 400, but for chance


def test_a_time_limit_ends_a_pass_over_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "SOLVED_ROWS", 100)
    model = TableModel("rent", **QUICK).fit(flats(100))
    more = large.LargeFit(model.model_, model.encoder_, "rent", model.alpha_, 900, 0, 0.0, 1)
    found: list[Any] = []
    batches = as_table(flats(900)).batches(300)
    (note,) = noted(lambda: found.extend(more.fit(batches, lambda step: None)))
    assert note == "time_limit ended the fit after 300 of 900 rows"
    ridge, done = found
    assert done == 300
    new = flats(200, seed=5)
    assert np.corrcoef(ridge.predict(model.encoder_.transform(new)), new["rent"])[0, 1] > 0.95
