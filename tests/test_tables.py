"""Tables of people's own: what is read, how it is encoded, what the model on it says."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from support.tables import N_ROWS, flats, written

import kernelsieve
from kernelsieve import FourierFeatures, KernelRidge, RowNormFeatures, TableModel
from kernelsieve.features.registry import METHODS
from kernelsieve.sources.base import ArraySource
from kernelsieve.tables import encoder as encoders
from kernelsieve.tables.categories import MOST_LEVELS
from kernelsieve.tables.columns import CLIP, Time
from kernelsieve.tables.embedding import embedding
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.facts import confusion
from kernelsieve.tables.identifiers import FEW_LEVELS
from kernelsieve.tables.inspection import as_lines, inspected
from kernelsieve.tables.monomials import ranked_monomials
from kernelsieve.tables.readers import read_table
from kernelsieve.tables.table import Table, TableError, TableNotice, as_table
from kernelsieve.tables.writers import csv_text, write_columns, write_features


def small(target: str = "rent", **options: Any) -> TableModel:
    return TableModel(target, **({"n_components": 60, "gamma": 0.05, "alpha": 0.01} | options))


@pytest.fixture(scope="module")
def fitted() -> TableModel:
    return small().fit(flats())


# --- files ----------------------------------------------------------------------------------------


NAMES = ["a.csv", "a.tsv", "a.csv.gz", "A.CSV", "a.txt", "a.parquet", "a.arrow", "a.feather"]


@pytest.mark.parametrize("name", NAMES)
def test_all_formats_hold_the_same_table(tmp_path: Path, name: str) -> None:
    columns = flats(30)
    path = tmp_path / name
    table = read_table(written(path, columns))
    assert list(table.columns) == list(columns)
    np.testing.assert_allclose(table.columns["size"], columns["size"])
    assert table.columns["town"].tolist() == columns["town"].tolist()
    assert table.columns["built"].tolist() == columns["built"]


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, pa.table, dict], ids=["pandas", "polars", "arrow", "dict"]
)
def test_frames_give_the_predictions_of_files(
    fitted: TableModel, frame: Any, tmp_path: Path
) -> None:
    columns = {k: v for k, v in flats(25, seed=1).items() if k != "rent"}
    from_file = fitted.predict(written(tmp_path / "new.csv", columns))
    np.testing.assert_array_equal(fitted.predict(frame(columns)), from_file)


def test_libsvm_and_npz_matrices(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = sp.random(80, 12, density=0.4, random_state=0, format="csr")
    y = np.asarray(X.sum(axis=1)).ravel() + 0.01 * rng.standard_normal(80)
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    model = small("target").fit(tmp_path / "a.svm")
    assert model.encoder_.sparse_
    assert model.facts_["scores"]["R2"] > 0.5
    sp.save_npz(tmp_path / "new.npz", X)
    np.testing.assert_allclose(
        model.predict(tmp_path / "new.npz"), model.predict(tmp_path / "a.svm"), rtol=1e-9
    )
    np.savez(tmp_path / "dense.npz", X=X.toarray(), y=y)
    assert small("y").fit(tmp_path / "dense.npz").facts_["inputs"] == 12


def test_a_libsvm_file_may_end_with_a_smaller_column(tmp_path: Path) -> None:
    X = sp.random(60, 10, density=0.5, random_state=0, format="csr")
    dump_svmlight_file(X, np.arange(60.0), str(tmp_path / "a.svm"), zero_based=False)
    model = small("target").fit(tmp_path / "a.svm")
    (tmp_path / "b.svm").write_text("0 1:0.5 3:1.0\n")
    assert model.predict(tmp_path / "b.svm").shape == (1,)
    (tmp_path / "c.svm").write_text("0 1:0.5 11:1.0\n")
    with pytest.raises(TableError, match="11 sparse columns, and the training table had 10"):
        model.predict(tmp_path / "c.svm")


WRONG_FILES = {
    "unknown": ("a.xls", b"", "cannot read .xls"),
    "no suffix": ("a", b"", "cannot read a file without a suffix"),
    "empty": ("a.csv", b"", "no header line"),
    "ragged": ("a.csv", b"a,b\n1,2\n3\n", "line 3: 1 value for the 2 columns"),
    "binary": ("a.csv", b"\x89PNG\xff\x00" * 20, "is not valid UTF-8: pass encoding="),
    "cut gzip": ("a.csv.gz", gzip.compress(b"a,b\n" * 500)[:25], "is not a text table"),
    "no gzip": ("a.csv.gz", b"a,b\n1,2\n", "is not a text table"),
    "no parquet": ("a.parquet", b"PAR1....", "is not a .parquet file"),
    "no arrow": ("a.arrow", b"ARROW1..", "is not a .arrow file"),
    "no npz": ("a.npz", b"PK\x03\x04...", "is not a .npz file"),
    "no svm": ("a.svm", b"this is text\n", "is not a LIBSVM file"),
    "svm overflow": ("a.svm", b"1 99999999999999999999:1\n", "is not a LIBSVM file"),
}


@pytest.mark.parametrize(("name", "content", "reason"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_wrong_files_are_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=reason) as caught:
        read_table(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_pickles_in_npz_files_are_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(TableError, match=r"is not a \.npz file of plain arrays"):
        read_table(tmp_path / "a.npz")


def test_folders_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path / "d.csv")
    for name in ("none.csv", "none.parquet", "none.npz", "none.svm"):
        with pytest.raises(TableError, match="does not exist"):
            read_table(tmp_path / name)


# --- encoding -------------------------------------------------------------------------------------


def test_numbers_are_standardised_and_cut() -> None:
    values = np.append(np.random.default_rng(0).normal(3.0, 2.0, 500), 1e6)
    X = TableEncoder().fit({"a": values}).transform({"a": values})
    expected = np.clip((values - values.mean()) / values.std(), -CLIP, CLIP)
    np.testing.assert_allclose(X[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_scales_do_not_matter(scale: float) -> None:
    values = np.random.default_rng(0).normal(size=50)
    table = {"a": scale * values, "b": values}
    X = TableEncoder().fit(table).transform(table)
    np.testing.assert_allclose(X[:, 0], X[:, 1], rtol=1e-9, atol=1e-9)


def test_texts_become_columns_in_the_order_of_the_alphabet() -> None:
    table = {"town": ["Ulm", "Bonn", None, "Ulm"]}
    encoder = TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == ["town=Bonn", "town=Ulm", "town=(missing)"]
    expected = [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    np.testing.assert_array_equal(encoder.transform(table), expected)


def test_unseen_texts_are_zeros_with_a_notice() -> None:
    encoder = TableEncoder().fit({"town": ["Ulm", "Bonn"]})
    with pytest.warns(TableNotice, match="1 row with categories not seen in training.*'Kiel'"):
        X = encoder.transform({"town": ["Kiel", "Ulm"]})
    np.testing.assert_array_equal(X, [[0, 0], [0, 1]])


def test_missing_numbers_are_filled_with_the_median() -> None:
    table = {"a": [1.0, 2.0, 9.0, None]}
    encoder = TableEncoder().fit(table)
    with pytest.warns(TableNotice, match="'a': 1 missing value replaced by the median, 2"):
        X = encoder.transform(table)
    assert X[3, 0] == X[1, 0]


def test_many_texts_share_a_column_and_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    common = [f"t{i}" for i in range(MOST_LEVELS + 50)]
    texts = common * 3 + rng.choice(common[:10], 500).tolist()
    with pytest.warns(TableNotice, match="the 50 rarest of 1,050 categories share one"):
        encoder = TableEncoder().fit({"a": texts})
    X = encoder.transform({"a": texts})
    assert sp.issparse(X)
    assert X.shape == (len(texts), MOST_LEVELS + 1)
    assert encoder.get_feature_names_out()[-1] == "a=(other)"
    np.testing.assert_array_equal(np.asarray(X.sum(axis=1)).ravel(), 1.0)


def test_names_constants_and_empty_columns_are_left_out() -> None:
    n = 2 * FEW_LEVELS
    table = {
        "name": [f"person {i}" for i in range(n)],
        "one": [1.0] * n,
        "same": ["x"] * n,
        "void": [None] * n,
        "a": np.sqrt(np.arange(n)),
    }
    with pytest.warns(TableNotice) as found:
        encoder = TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == ["a"]
    said = " ".join(str(warning.message) for warning in found)
    for reason in ("looks like an identifier", "is always 1;", "is always x;", "is empty"):
        assert reason in said


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ([1.0, None, 2.0], "1 missing value"),
        (["x", "x", "x"], "is always x"),
        ([5.0, 5.0, 5.0], "is always 5"),
    ],
)
def test_strict_refuses_what_others_get_a_notice_of(column: list[Any], reason: str) -> None:
    table = {"a": column, "b": [1.0, 2.0, 3.0]}
    with pytest.raises(TableError, match=f"{reason}.*strict mode"):
        TableEncoder(strict=True).fit(table).transform(table)


def test_strict_refuses_unseen_texts_and_missing_ones() -> None:
    encoder = TableEncoder(strict=True).fit({"a": ["x", "y"]})
    for texts in (["z", "x"], [None, "x"]):
        with pytest.raises(TableError, match="strict mode"):
            encoder.transform({"a": texts})


def test_times_with_and_without_zones_are_the_same_moments(tmp_path: Path) -> None:
    moments = [datetime(2024, 3, 1, 12, tzinfo=UTC) + timedelta(hours=h) for h in range(30)]
    east = timezone(timedelta(hours=9))
    tables = [
        {"t": [m.isoformat() for m in moments]},
        {"t": [m.astimezone(east).isoformat() for m in moments]},
        {"t": [m.replace(tzinfo=None).isoformat(" ") for m in moments]},
        pd.DataFrame({"t": pd.to_datetime(moments).tz_convert("Asia/Tokyo")}),
        pd.DataFrame({"t": pd.to_datetime([m.replace(tzinfo=None) for m in moments])}),
        pl.DataFrame({"t": moments}),
        pa.table({"t": pa.array(moments, pa.timestamp("ms", "Europe/Berlin"))}),
    ]
    encoder = TableEncoder().fit(tables[0])
    assert isinstance(encoder.columns_[0], Time)
    expected = encoder.transform(tables[0])
    for table in tables[1:]:
        np.testing.assert_allclose(encoder.transform(table), expected, rtol=1e-12)


def test_dates_and_truth_values() -> None:
    dates = [datetime(2020, 1, 1).date() + timedelta(days=i) for i in range(10)]
    table = pd.DataFrame({"day": dates, "good": [True, False] * 5})
    encoder = TableEncoder().fit(table)
    X = encoder.transform(table)
    assert np.all(np.diff(X[:, 0]) > 0)
    np.testing.assert_array_equal(X[:, 1], [1.0, -1.0] * 5)


WRONG_COLUMNS = {
    "text for numbers": ({"a": [1.0, 2.0], "b": ["x", "y"]}, {"a": ["1", "two"], "b": ["x", "y"]},
                         "'a' is 'two' in row 2, and in training it held numbers"),
    "lacking": ({"a": [1.0, 2.0], "b": [3.0, 4.0]}, {"b": [1.0]},
                "lacks 1 column of the training table: a"),
    "numbers for times": ({"a": ["2024-01-01", "2024-01-02"]}, {"a": [1.0]}, "held times"),
    "text for times": ({"a": ["2024-01-01", "2024-01-02"]}, {"a": ["soon"]}, "is 'soon' in row 1"),
    "infinite": ({"a": [1.0, 2.0]}, {"a": [np.inf]}, "'a' is inf in row 1"),
    "no rows": ({"a": [1.0, 2.0]}, {"a": []}, "has no rows"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "reason"), WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_later_tables_must_fit_the_first(
    first: dict[str, Any], second: dict[str, Any], reason: str
) -> None:
    encoder = TableEncoder().fit(first)
    with pytest.raises(TableError, match=reason):
        encoder.transform(second)


def test_numbers_may_come_as_texts() -> None:
    encoder = TableEncoder().fit({"a": [1.0, 2.0, 4.0]})
    texts = {"a": np.array(["4", "1.0", None], dtype=object)}
    with pytest.warns(TableNotice, match="1 missing value"):
        X = encoder.transform(texts)
    np.testing.assert_array_equal(X, encoder.transform({"a": [4.0, 1.0, 2.0]}))


def test_order_and_further_columns_do_not_matter(fitted: TableModel) -> None:
    new = {k: v for k, v in flats(20, seed=2).items() if k != "rent"}
    turned = {"extra": ["?"] * 20, **dict(reversed(new.items()))}
    np.testing.assert_array_equal(fitted.predict(new), fitted.predict(turned))


@pytest.mark.parametrize("values", [[1j, 2j], [[1, 2], [3, 4]], [{"a": 1}, {"b": 2}], [(1,), (2,)]])
def test_columns_of_other_things_are_refused(values: list[Any]) -> None:
    with pytest.raises(TableError, match="'a'"):
        as_table({"a": np.array(values, dtype=object) if isinstance(values[0], dict) else values})


def test_numbers_in_objects_are_numbers() -> None:
    table = as_table({"a": np.array([1, 2.5, None, True], dtype=object), "b": ["1", "2", "3", "4"]})
    np.testing.assert_array_equal(table.columns["a"], [1.0, 2.5, np.nan, 1.0])
    assert table.columns["b"].tolist() == ["1", "2", "3", "4"]  # a frame says that these are texts


# --- models ---------------------------------------------------------------------------------------


def test_scores_are_those_of_rows_set_aside(fitted: TableModel) -> None:
    facts = fitted.facts_
    assert facts["rows"] == N_ROWS
    assert facts["test rows"] == round(0.2 * N_ROWS)
    assert facts["scores"]["R2"] > 0.95
    new = flats(1000, seed=5)
    error = np.sqrt(np.mean((fitted.predict(new) - new["rent"]) ** 2))
    spread = np.std(new["rent"])
    assert 0.2 < (error / spread) / (facts["scores"]["RMSE"] / spread) < 5.0
    assert fitted.predict_table(new).scores["RMSE"] == pytest.approx(error)
    assert fitted.predict_table({k: v for k, v in new.items() if k != "rent"}).scores is None


@pytest.mark.parametrize("target", ["rent", "town"])
def test_a_table_is_encoded_once_for_all_that_is_asked(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, new = small(target).fit(flats()), flats(30, seed=1)
    encoded = []
    transform = TableEncoder.transform
    monkeypatch.setattr(
        TableEncoder, "transform", lambda self, table: encoded.append(1) or transform(self, table)
    )
    answer = model.predict_table(new, std=target == "rent", proba=target == "town")
    assert encoded == [1]
    assert answer.scores is not None
    np.testing.assert_array_equal(answer.columns[target], model.predict(new))
    if target == "rent":
        np.testing.assert_array_equal(answer.columns["rent std"], model.predict_std(new)[1])
    else:
        np.testing.assert_array_equal(answer.columns["town=Kiel"], model.predict_proba(new)[:, 1])


def test_the_columns_that_matter_come_first(fitted: TableModel) -> None:
    order = [name for name, _ in fitted.facts_["columns"]]
    assert set(order[:2]) == {"size", "town"}
    assert {"built", "built weekday", "built day of year"} == set(order[2:])


def test_readable_monomials_find_the_product() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 400))
    model = TableModel("y", kernel="poly", degree=2, readable=True, n_components=30).fit(
        {"a": a, "b": b, "c": c, "y": a * b}
    )
    assert model.facts_["monomials"]["names"][0] == "a b"
    assert "a b" in model.summary()


def test_a_target_without_noise_is_fitted() -> None:
    """What says how well features approximate a kernel cannot be told at a tiny alpha."""
    a, b = np.random.default_rng(0).normal(size=(2, 100))
    model = TableModel("y", kernel="poly", readable=True).fit({"a": a, "b": b, "y": a * b})
    assert model.facts_["scores"]["R2"] > 0.99
    assert len(model.summary()) > 0


@pytest.mark.filterwarnings("ignore:the target 'dear' is")
@pytest.mark.parametrize("labels", [["no", "yes"], [0.0, 1.0], [3.0, 7.0]])
def test_two_values_are_classes(labels: list[Any]) -> None:
    table = flats()
    table["dear"] = np.where(table["rent"] > 800, labels[1], labels[0])
    model = small("dear").fit({k: v for k, v in table.items() if k != "rent"})
    assert model.task_ == "classification"
    assert model.facts_["scores"]["accuracy"] > 0.9
    assert model.facts_["scores"]["AUC"] > 0.95
    assert set(model.predict(table).tolist()) <= set(labels)
    chances = model.predict_proba(table)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_many_classes_and_the_task_can_be_said() -> None:
    table = flats()
    model = small("town").fit(table)
    assert model.task_ == "classification"
    assert model.classes_.tolist() == ["Bonn", "Kiel", "Ulm"]
    assert model.facts_["scores"]["log loss"] > 0
    table["rooms"] = np.random.default_rng(0).integers(1, 5, N_ROWS)
    with pytest.warns(TableNotice, match="4 distinct whole numbers"):
        assert small("rooms").fit(table).task_ == "regression"
    assert small("rooms", task="classification").fit(table).classes_.tolist() == [1, 2, 3, 4]


def test_rows_without_target_are_left_out() -> None:
    table = flats()
    table["rent"][:7] = np.nan
    with pytest.warns(TableNotice, match=r"7 rows without a target \('rent'\) ignored"):
        model = small().fit(table)
    assert model.facts_["rows"] == N_ROWS - 7
    with pytest.raises(TableError, match="missing in 7 rows, first in row 1"):
        small(strict=True).fit(table)


WRONG_TARGETS = {
    "none": (None, {}, r"name the column to predict \(target=\), one of size, town"),
    "absent": ("prize", {}, "has no column 'prize': it has size, town, built, rent"),
    "text for regression": ("town", {"task": "regression"}, "'town' holds texts .'Bonn'."),
    "no classes": ("rent", {"task": "classification"}, "and classes are texts or whole numbers"),
    "dropped": ("rent", {"drop": ["rent"]}, "'rent' is the target, so it cannot be dropped"),
}


@pytest.mark.parametrize(("target", "options", "reason"), WRONG_TARGETS.values(), ids=WRONG_TARGETS)
def test_wrong_targets(target: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(TableError, match=reason):
        TableModel(target, **options).fit(flats())


def test_few_rows_constant_and_infinite_targets() -> None:
    with pytest.raises(
        TableError, match="has only 12 rows with a target; at least 20 are required"
    ):
        small().fit(flats(12))
    table = flats()
    with pytest.raises(TableError, match=r"is 5\.0 in every row"):
        small().fit(table | {"rent": np.full(N_ROWS, 5.0)})
    with pytest.raises(TableError, match=r"the target .rent. reaches 1e[+]300"):
        small().fit(table | {"rent": 1e300 * np.linspace(0, 1, N_ROWS)})
    with pytest.raises(TableError, match="the target 'rent' is inf in row"):
        small().fit(table | {"rent": np.where(np.arange(N_ROWS) == 3, np.inf, 1.0)})


def test_classes_have_a_limit() -> None:
    table = flats() | {"number": np.arange(float(N_ROWS))}
    with pytest.raises(TableError, match="has 240 distinct values, and at most 100 classes"):
        small("number", task="classification").fit(table)


def test_two_values_that_are_no_labels_are_numbers() -> None:
    table = flats()
    assert small("half").fit(table | {"half": np.where(table["size"] > 80, 0.5, 1.5)}).task_ == (
        "regression"
    )


def test_gamma_by_name_and_alpha_by_cross_validation() -> None:
    model = small(gamma="auto", alpha="cv").fit(flats())
    assert model.gamma_ == "auto"
    assert model.facts_["scores"]["R2"] > 0.9


@pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")
def test_without_a_column_to_learn_from() -> None:
    with pytest.raises(TableError, match="no column to learn from"):
        small().fit({"a": np.ones(30), "rent": np.arange(30.0)})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"alpha": "best"}, "alpha='best'"),
        ({"alpha": -1.0}, "alphas?=-1"),
        ({"gamma": -1.0}, "gamma=-1"),
        ({"n_components": 0}, "n_components=0"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"task": "magic"}, "task='magic'"),
        ({"kernel": "magic"}, "kernel='magic'"),
        ({"readable": True, "method": "nystrom"}, "method='nystrom' has no readable features"),
    ],
)
def test_wrong_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        small(**options).fit(flats())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits(method: str) -> None:
    own = {"tensor-sketch": "poly", "binning": "laplacian", "network": "ntk"}
    kernel = own.get(method, "gaussian")
    model = small(method=method, kernel=kernel).fit(flats())
    # A few grids are coarse, and the first layer has no bias.
    assert model.facts_["scores"]["R2"] > (0.3 if method in ("binning", "network") else 0.5)
    assert model.transform(flats(7)).shape == (7, len(model.get_feature_names_out()))


@pytest.mark.parametrize("kernel", ["poly", "exponential", "linear", "laplacian", "matern"])
def test_every_kernel_is_tuned(kernel: str) -> None:
    model = TableModel("rent", kernel=kernel, n_components=40).fit(flats(120))
    assert model.facts_["scores"]["R2"] > 0.5


def test_the_same_seed_gives_the_same_model(fitted: TableModel) -> None:
    again = small().fit(flats())
    np.testing.assert_array_equal(again.predict(flats(9)), fitted.predict(flats(9)))
    assert {**again.facts_, "seconds": 0} == {**fitted.facts_, "seconds": 0}


def test_standard_deviations_and_probabilities_have_their_task(fitted: TableModel) -> None:
    mean, deviation = fitted.predict_std(flats(9))
    assert mean.shape == deviation.shape == (9,)
    assert np.all(deviation > 0)
    with pytest.raises(TableError, match="learned by regression, so there are no probabilities"):
        fitted.predict_proba(flats(9))
    with pytest.raises(AttributeError, match="there are no classes"):
        _ = fitted.classes_


@pytest.mark.parametrize("target", ["rent", "town"])
def test_files_of_models_are_exact(target: str, tmp_path: Path) -> None:
    model = small(target).fit(flats())
    kernelsieve.save(model, tmp_path / "m.ks")
    again = kernelsieve.load(tmp_path / "m.ks")
    new = flats(50, seed=3)
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert again.facts_ == {k: v for k, v in model.facts_.items() if k != "seconds"}
    assert again.summary() == model.summary()
    kernelsieve.save(again, tmp_path / "n.ks")
    assert (tmp_path / "m.ks").read_bytes() == (tmp_path / "n.ks").read_bytes()


def test_explanations_fit_a_terminal(fitted: TableModel) -> None:
    assert max(map(len, fitted.summary().splitlines())) <= 80


def test_what_steers_a_terminal_is_shown_and_not_sent() -> None:
    table = {"a\x1b[31m": np.arange(40.0), "b": np.arange(40.0) ** 2}
    said = small("b").fit(table).summary()
    assert "\x1b" not in said
    assert "a\\x1b[31m" in said


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.feather", "a.npz"])
def test_written_columns_come_back(tmp_path: Path, name: str) -> None:
    columns = {"y": np.array([1.5, -2.0, 1e-9]), "town": np.array(["Ulm", "a,b", 'q"'], object)}
    write_columns(tmp_path / name, columns)
    if name == "a.npz":
        with np.load(tmp_path / name) as found:
            assert found["town"].tolist() == columns["town"].tolist()
        return
    table = read_table(tmp_path / name)
    np.testing.assert_array_equal(table.columns["y"], columns["y"])
    assert table.columns["town"].tolist() == columns["town"].tolist()
    assert csv_text(columns).count("\n") == 4


@pytest.mark.parametrize("name", ["z.npz", "z.svm", "z.parquet", "z.csv"])
@pytest.mark.parametrize("sparse", [False, True])
def test_written_features_come_back(tmp_path: Path, name: str, sparse: bool) -> None:
    Z = sp.random(20, 6, density=0.5, random_state=0, format="csr")
    names = np.array([f"f{i}" for i in range(6)], dtype=object)
    write_features(tmp_path / name, Z if sparse else Z.toarray(), names, np.arange(20.0))
    table = read_table(tmp_path / name)
    if table.matrix is not None:
        np.testing.assert_allclose(table.matrix.toarray(), Z.toarray(), rtol=1e-12)
    else:
        columns = [v for k, v in table.columns.items() if k not in ("y", "target", "names")]
        np.testing.assert_allclose(np.column_stack(columns[:6]), Z.toarray(), rtol=1e-12)


def test_wrong_places_to_write_are_refused(tmp_path: Path) -> None:
    column = {"a": np.ones(2)}
    for path, reason in (
        (tmp_path / "a.xls", "cannot write .xls"),
        (tmp_path / "no" / "a.csv", "does not exist"),
        (tmp_path, "cannot write a file without a suffix"),
    ):
        with pytest.raises(TableError, match=reason):
            write_columns(path, column)


def test_embedding_approximates_the_kernel() -> None:
    table = {k: v for k, v in flats().items() if k != "rent"}
    Z, names, y = embedding(table, n_components=300, gamma=0.05, random_state=0)
    assert y is None
    assert len(names) == Z.shape[1]
    X = TableEncoder().fit(table).transform(table)
    exact = np.exp(-0.05 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    assert np.linalg.norm(Z @ Z.T - exact) < 0.1 * np.linalg.norm(exact)


def test_embedding_for_classes_numbers_them() -> None:
    Z, _, y = embedding(flats(), "town", n_components=20, random_state=0)
    assert Z.shape[0] == N_ROWS
    assert sorted(set(y.tolist())) == [0, 1, 2]


def test_npz_takes_columns_of_any_name(tmp_path: Path) -> None:
    """Also those that numpy's own writer has as parameters."""
    columns = {"file": np.arange(3.0), "allow_pickle": np.array(["a", None, "c"], dtype=object)}
    write_columns(tmp_path / "out.npz", columns)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        assert found.files == ["file", "allow_pickle"]
        np.testing.assert_array_equal(found["file"], columns["file"])
        assert found["allow_pickle"].tolist() == ["a", "None", "c"]


def test_other_kinds_of_tables() -> None:
    X = sp.random(40, 5, density=0.5, random_state=0, format="coo")
    assert as_table(X).matrix.shape == (40, 5)
    assert list(as_table(np.ones((3, 2))).columns) == ["x0", "x1"]
    with pytest.raises(TableError, match=r"X must have two dimensions, not the shape \(3,\)"):
        as_table(np.ones(3))
    with pytest.raises(TableError, match="20,001 dense columns, and the limit is 20,000"):
        as_table(np.zeros((1, 20_001)))
    with pytest.raises(TableError, match=r"different lengths \[1, 2\]"):
        as_table({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(TableError, match="two columns 'a'"):
        as_table(pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]))


def test_values_of_many_kinds() -> None:
    columns = {
        "bytes": np.array([b"x", b"y"], dtype=object),
        "na": pd.array([1, None], dtype="Int64"),
        "nat": np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"),
        "dictionary": ["u", "v"],
    }
    table = as_table(columns)
    assert table.columns["bytes"].tolist() == ["x", "y"]
    np.testing.assert_array_equal(table.columns["na"], [1.0, np.nan])
    assert table.columns["nat"].tolist() == ["2024-01-01T00:00:00", None]
    arrow = pa.table({"d": pa.array(["u", "v", "u"]).dictionary_encode()})
    assert as_table(arrow).columns["d"].tolist() == ["u", "v", "u"]


def test_arrays_in_npz_files_must_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", Y=np.ones(3))
    with pytest.raises(TableError, match="has no array X: it has Y"):
        read_table(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.ones((3, 2)), names=np.array(["p", "q"]))
    assert list(read_table(tmp_path / "b.npz").columns) == ["p", "q"]


def test_gzipped_libsvm_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress(b"1 1:2\n0 2:1\n"))
    assert read_table(tmp_path / "a.svm.gz").matrix.shape == (2, 2)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n\n3,4\n,\n")
    assert read_table(tmp_path / "a.csv").n_rows == 3
    (tmp_path / "b.csv").write_text("a,b\n1,2\n,,,\n")
    assert read_table(tmp_path / "b.csv").n_rows == 1


def test_encoders_refuse_what_cannot_be_learned() -> None:
    with pytest.raises(TableError, match="has no rows"):
        TableEncoder().fit({"a": []})
    wide = sp.csr_array((np.ones(1), (np.zeros(1, int), [10_000_000])), shape=(1, 10_000_001))
    with pytest.raises(TableError, match="10,000,001 sparse columns, and the limit"):
        TableEncoder().fit(wide)


# --- edges ---------------------------------------------------------------------------------------


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(TableError, match=r"a\.csv is a folder: name a file in it"):
        write_columns(tmp_path / "a.csv", {"a": np.ones(2)})


def test_missing_values_of_pandas_in_objects() -> None:
    table = as_table({"a": np.array(["x", pd.NA, pd.NaT, None, "y"], dtype=object)})
    assert table.columns["a"].tolist() == ["x", None, None, None, "y"]


def test_texts_that_are_nearly_all_distinct_are_counted() -> None:
    n = 2 * FEW_LEVELS
    texts = [f"person {min(i, n - 5)}" for i in range(n)]
    with pytest.warns(TableNotice, match=f"{n - 4} distinct values in {n} rows"):
        encoder = TableEncoder().fit({"name": texts, "a": np.sqrt(np.arange(n))})
    assert list(encoder.ignored_) == ["name"]


def test_strict_refuses_missing_texts_though_they_have_a_column() -> None:
    encoder = TableEncoder().fit({"a": ["x", None, "y"]})
    encoder.strict = True
    with pytest.raises(TableError, match=r"column 'a': 1 missing value .*strict mode"):
        encoder.transform({"a": ["x", None]})


def test_a_column_of_times_may_be_empty_later() -> None:
    encoder = TableEncoder().fit({"t": ["2024-01-01", "2024-02-01", "2024-03-01"]})
    empty = Table("here", {"t": np.array([None, None], dtype=object)})
    with pytest.warns(TableNotice, match="2 missing values"):
        X = encoder.transform(empty)
    np.testing.assert_array_equal(X, encoder.transform({"t": ["2024-02-01"] * 2}))  # the median


def test_a_class_of_one_row_cannot_be_judged() -> None:
    table = {"a": np.arange(24.0) ** 2, "y": ["no"] * 23 + ["yes"]}

    def fit_often() -> None:  # the row may be among those that judge
        for seed in range(20):
            small("y", random_state=seed).fit(table)

    with pytest.raises(TableError, match="class 'yes' has too few rows to learn from: merge it"):
        fit_often()


def test_a_score_needs_values_of_the_target(fitted: TableModel) -> None:
    table = {**flats(5), "rent": [None] * 5}
    with pytest.raises(TableError, match="the target 'rent' has no values to compare"):
        fitted.score(table)


def test_many_classes_have_no_confusion_matrix() -> None:
    classes = np.array([f"c{i:02d}" for i in range(11)])
    assert confusion(classes, classes, classes) == {"labels": [], "counts": []}
    few = confusion(classes[:2], classes[[0, 0]], classes[:2])
    assert few == {"labels": ["c00", "c01"], "counts": [[1, 0], [1, 0]]}


def test_sparse_columns_are_compared_with_a_linear_model() -> None:
    X = sp.random(80, 12, density=0.4, random_state=0, format="csr")
    model = small("y", baselines=True).fit(X, np.asarray(X.sum(axis=1)).ravel())
    names = {found["name"] for found in model.facts_["verdict"]["models"]}
    assert names == {"constant", "linear", "this model"}  # trees take no sparse columns


def test_sparse_and_dense_columns_together() -> None:
    """Many categories beside a sparse matrix become means, as they do in a dense table."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, 30, 200)
    matrix = sp.csr_array(sp.random(200, 5, density=0.1, random_state=0))
    table = Table("here", {"place": np.array([f"p{i:02d}" for i in places], dtype=object)}, matrix)
    y = places[:, None].astype(np.float64)
    encoder = TableEncoder().fit(table, y)
    X = encoder.transform(table)
    assert sp.issparse(X)
    assert X.shape == (200, 6)
    assert np.corrcoef(X[:, [0]].toarray().ravel(), places)[0, 1] > 0.99
    np.testing.assert_array_equal(X[:, 1:].toarray(), matrix.toarray())


def test_importances_of_sparse_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many classes: categories are 0/1 columns, however many there are."""
    monkeypatch.setattr(encoders, "WIDE", 100)
    rng = np.random.default_rng(0)
    places, noise = rng.integers(0, 80, (2, 1200))
    table = {"place": [f"p{i}" for i in places], "noise": [f"n{i}" for i in noise]}
    classes = np.where(rng.random(1200) < 0.1, 0, places % 23)
    model = small("y", method="nystrom").fit({**table, "y": [f"c{i}" for i in classes]})
    assert model.encoder_.sparse_
    found = dict(model.facts_["columns"])
    assert found["place"] > 0.1
    assert found["place"] > 3.0 * abs(found["noise"])


def test_facts_of_other_types_are_refused(fitted: TableModel) -> None:
    state = fitted.get_state()
    facts = state["fitted"]["facts_"]
    for changes, message in (
        ({"rows": "240"}, "rows has the wrong type or length"),
        ({"scores": {"RMSE": 1.0}}, "scores has the wrong type or length"),
        ({"verdict": {**facts["verdict"], "sentence": 3}}, "verdict has the wrong type"),
    ):
        fields = {**state["fitted"], "facts_": {**facts, **changes}}
        with pytest.raises(ValueError, match=message):
            TableModel.from_state({**state, "fitted": fields})


def test_sparse_columns_have_a_line_in_an_inspection() -> None:
    found = inspected(sp.random(40, 1234, density=0.1, random_state=0, format="csr"))
    assert [(c.name, c.kind, c.used_as) for c in found] == [
        ("1,234 columns", "sparse", "unchanged")
    ]


def test_long_names_lose_their_middle() -> None:
    names = [f"measurement_of_the_temperature_{i}" for i in range(2)]
    rng = np.random.default_rng(0)
    lines = as_lines(inspected({name: rng.normal(size=30) for name in names}))
    assert lines[1].startswith("measuremen…erature_0  number")
    assert lines[2].startswith("measuremen…erature_1  number")


def test_arrow_files_of_nested_columns_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    for cells, reason in (
        ([[1, 2], [3]], "column 'a' holds list values; only numbers, texts and times"),
        ([[1, 2], [3, 4]], r"column 'a' must have one dimension, not the shape \(2, 2\)"),
    ):
        feather.write_feather(pa.table({"a": cells}), path)
        with pytest.raises(TableError, match=reason) as found:
            read_table(path)
        assert "is not a .arrow file" not in str(found.value)
        with pytest.raises(TableError, match=reason):
            as_table({"a": cells})


# --- monomials -----------------------------------------------------------------------------------


def test_only_products_have_names() -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    model = KernelRidge(FourierFeatures(20, random_state=0)).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="no features with names: use AdaptiveFeatures or RowNorm"):
        ranked_monomials(model, X)


def test_monomials_of_a_source_and_of_rows_divided_by_their_lengths() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    features = RowNormFeatures(30, kernel="ntk", rotate=False, random_state=0)
    model = KernelRidge(features, alpha=1e-3).fit(X, X[:, 1])
    found = ranked_monomials(model, X)
    assert found.note.endswith("columns of rows divided by their lengths")
    streamed = ranked_monomials(model, ArraySource(X))
    assert streamed.names.tolist() == found.names.tolist()
    np.testing.assert_allclose(streamed.importances, found.importances, rtol=1e-12)
