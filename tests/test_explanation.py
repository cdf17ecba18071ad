"""What a model says: parts that add up, variances, Shapley values, words and pages."""

from __future__ import annotations

import html
import itertools
import json
import re
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.command_line import failing

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    NystromFeatures,
    RowNormFeatures,
    TableModel,
    cli,
    explain,
    load,
    save,
)
from kernelsieve.explanation import Explanation, Probe, anova, sums
from kernelsieve.explanation.page import page
from kernelsieve.explanation.words import number, value_text
from kernelsieve.kernels import Anova, Laplacian, Matern, Product
from kernelsieve.kernels.warps import Warp
from kernelsieve.sources.marginals import Marginals
from kernelsieve.sources.stream import BlockSource


def rows(n: int = 200, d: int = 4, levels: int = 3, seed: int = 0) -> Any:
    """Columns with a few values each, so that all combinations can be listed."""
    rng = np.random.default_rng(seed)
    return rng.choice(np.linspace(-1.0, 1.3, levels), size=(n, d))


def target(X: Any) -> Any:
    noise = np.random.default_rng(1).normal(size=len(X))
    return X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2]) + 0.1 * noise


MIXED = Product(
    [1.0, 0.5, 0.7, 0.0],
    ["gaussian", "laplacian", "categorical", "matern32"],
    [Warp(), Warp("log", 0.1, 2.0), Warp(), Warp()],
)
# Centred over other rows than the model is fitted to: the parts are those of the latter.
PARTS = Anova.of(
    MIXED,
    rows(50, seed=7),
    subsets=[(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)],
    variances=[0.3, 0.2, 0.1, 0.2, 0.1, 0.1],
)
MODELS = {
    "monomials": KernelRidge(RowNormFeatures(40, basis="monomial", rotate=False, random_state=0)),
    "polynomial": KernelRidge(AdaptiveFeatures(40, kernel="poly", rotate=False, random_state=0)),
    "local functions": KernelRidge(
        AdaptiveFeatures(40, basis="mercer", rotate=False, random_state=0)
    ),
    "Laplacian": KernelRidge(AdaptiveFeatures(40, kernel=Laplacian(0.5), random_state=0)),
    "mixed families": KernelRidge(AdaptiveFeatures(40, kernel=MIXED, random_state=0)),
    "landmarks": KernelRidge(NystromFeatures(30, gamma=0.3, random_state=0)),
    "landmarks, mixed": KernelRidge(NystromFeatures(30, kernel=MIXED, random_state=0)),
    "exact": KernelRidge(NystromFeatures(30, kernel=MIXED, random_state=0), refine=True),
    "learned": KernelRidgeCV(random_state=0),
    "parts, landmarks": KernelRidge(NystromFeatures(30, kernel=PARTS, random_state=0)),
    "parts, exact": KernelRidge(NystromFeatures(30, kernel=PARTS, random_state=0), refine=True),
    "pairs, learned": KernelRidgeCV(max_order=2, random_state=0),
    "triples, learned": KernelRidgeCV(max_order=3, random_state=0),
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    X = rows()
    return {name: model.fit(X, target(X)) for name, model in MODELS.items()}


def columns_of(X: Any) -> list[Any]:
    marginals = Marginals.of_rows(X)
    return [marginals.column(i) for i in range(X.shape[1])]


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_those_of_the_definition_and_add_up(fitted: Any, name: str) -> None:
    model, X = fitted[name], rows()
    found = explain(model)
    for x in X[:3]:
        means = oracles.marginal_means(model.predict, columns_of(X), x)
        assert found.constant == pytest.approx(means[()], abs=1e-8)
        total = found.constant
        for subset, expected in oracles.anova_parts(means).items():
            if subset:
                value = found.part_values([f"x{i}" for i in subset], x[None])[0]
                assert value == pytest.approx(expected, abs=1e-8)
                total += value
        assert total == pytest.approx(model.predict(x[None])[0], abs=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_shapley_values_are_those_of_all_subsets(fitted: Any, name: str) -> None:
    model, X = fitted[name], rows()
    found = explain(model)
    values = found.shapley(X[:3])
    pairs = found.shapley(X[:3], interactions=True)
    for r, x in enumerate(X[:3]):
        means = oracles.marginal_means(model.predict, columns_of(X), x)
        expected = oracles.shapley_by_subsets(means, 4)
        np.testing.assert_allclose(values.values[r], expected, atol=1e-8)
        for i, j in itertools.combinations(range(4), 2):
            index = oracles.shapley_interaction_by_subsets(means, 4, i, j)
            assert pairs.values[r, i, j] == pytest.approx(index / 2, abs=1e-8)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, model.predict(X[:3]))
    np.testing.assert_allclose(pairs.values.sum(axis=2), values.values, atol=1e-10)


def test_eight_columns() -> None:
    X = rows(150, 8, levels=2)
    y = X[:, 0] * X[:, 1] * X[:, 2] + X[:, 3] + np.sin(X[:, 4] * X[:, 5])
    model = KernelRidge(NystromFeatures(80, gamma=0.2, random_state=0), alpha=0.01).fit(X, y)
    found = explain(model)
    means = oracles.marginal_means(model.predict, columns_of(X), X[0])
    values = found.shapley(X[:1]).values[0]
    np.testing.assert_allclose(values, oracles.shapley_by_subsets(means, 8), atol=1e-8)
    # Nothing is left out among few columns: all 255 parts.
    assert sum(part.share for part in found.parts) == pytest.approx(1.0, abs=2e-3)
    assert found.remainder == pytest.approx(1.0 - sum(p.share for p in found.parts), abs=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_variances_are_those_on_all_combinations(fitted: Any, name: str) -> None:
    model, X = fitted[name], rows()
    columns = columns_of(X)
    grid = np.array(list(itertools.product(*(values for values, _ in columns))))
    weights = np.prod(list(itertools.product(*(share for _, share in columns))), axis=1)
    found = explain(model)
    values = model.predict(grid)
    variance = weights @ (values - weights @ values) ** 2
    assert found.variance == pytest.approx(variance, rel=1e-6)
    parts = {part.columns: found.part_values(part.columns, grid) for part in found.parts}
    for part in found.parts:
        assert weights @ parts[part.columns] == pytest.approx(0.0, abs=1e-8)
        assert part.variance == pytest.approx(weights @ parts[part.columns] ** 2, abs=1e-7)
    for a, b in itertools.combinations(parts, 2):  # orthogonal under the product of the marginals
        assert weights @ (parts[a] * parts[b]) == pytest.approx(0.0, abs=1e-8)
    listed = sum(part.share for part in found.parts)
    assert listed + found.remainder == pytest.approx(1.0, abs=1e-6)
    for column, total in found.importance.items():
        those = sum(part.share for part in found.parts if column in part.columns)
        error = found.importance_errors[column]
        assert those == pytest.approx(total, abs=1e-3 + 5.0 * error)


def estimated(found: Explanation) -> Explanation:
    """The same explanation without sums over all pairs of products."""
    known = found._decomposition
    decomposition = anova.Decomposition(known.model, known.inputs, most_covariances=0)
    return Explanation(decomposition, found._read, found._show, title=found.title)


def test_estimates_lie_within_their_errors() -> None:
    X = np.random.default_rng(0).normal(size=(300, 5))
    y = X[:, 0] * X[:, 1] * X[:, 2] + X[:, 3]
    model = KernelRidge(NystromFeatures(100, gamma=0.2, random_state=0), alpha=0.1).fit(X, y)
    exact = explain(model)
    drawn = estimated(exact)
    assert exact.n_sampled == 0
    assert set(exact.importance_errors.values()) == {0.0}
    assert drawn.n_sampled >= 512
    # Five standard errors: once in a million draws, for each of the five columns.
    for column, share in exact.importance.items():
        assert 1e-4 < drawn.importance_errors[column] < 0.05
        assert abs(drawn.importance[column] - share) <= 5.0 * drawn.importance_errors[column]
    shares = {part.columns: part.share for part in exact.parts}
    for part in drawn.parts:
        if part.order > 2 and part.share > 0.01:
            assert part.error > 0.0
            assert abs(part.share - shares[part.columns]) <= 5.0 * part.error
    assert f"estimated on {drawn.n_sampled:,} drawn rows" in " ".join(drawn.text().split())
    assert "All shares are exact." in exact.text()


def test_importances_of_curves_and_pairs_are_sums_of_exact_parts() -> None:
    """Nothing is left to estimate in a model of pairs, however its parts are computed."""
    X = rows(levels=5)
    y = X[:, 0] * X[:, 1] + X[:, 2]
    features = AdaptiveFeatures(60, kernel=MIXED, max_order=2, random_state=0)
    exact = explain(KernelRidge(features).fit(X, y))
    drawn = estimated(exact)
    assert drawn.n_sampled > 0
    for column, share in exact.importance.items():
        assert drawn.importance[column] == pytest.approx(share, abs=1e-9)
        assert drawn.importance_errors[column] < 1e-9
        parts = [part.share for part in drawn.parts if column in part.columns]
        assert sum(parts) == pytest.approx(drawn.importance[column], abs=1e-9)


def test_importances_are_the_total_shares_of_all_combinations(fitted: Any) -> None:
    """By definition: the mean over all other columns of the variance along one."""
    for name in ("landmarks", "exact", "parts, exact"):
        model = fitted[name]
        columns = columns_of(rows())
        expected = oracles.total_shares(model.predict, columns)
        found = explain(model).importance
        np.testing.assert_allclose([found[f"x{i}"] for i in range(4)], expected, atol=1e-8)


def three_classes() -> tuple[Any, Any]:
    X = rows()
    return X, np.where(X[:, 0] * X[:, 1] > 0.1, "a", np.where(X[:, 2] > 0, "b", "c"))


def test_classes_are_explained_by_log_odds() -> None:
    X, y = three_classes()
    features = NystromFeatures(40, gamma=0.3, random_state=0)
    model = KernelRidgeClassifier(features, alpha=0.1).fit(X, y)
    values = explain(model).shapley(X[:5])
    assert values.values.shape == (5, 4, 3)
    logs = np.log(model.predict_proba(X[:5]))
    # Against the geometric mean of the two others.
    margins = logs - 0.5 * (logs.sum(axis=1, keepdims=True) - logs)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, margins, atol=1e-8)
    one = explain(model, output="b").shapley(X[:5])
    np.testing.assert_allclose(one.values, values.values[:, :, 1], atol=1e-10)
    np.testing.assert_allclose(one.probabilities, model.predict_proba(X[:5]))
    with pytest.raises(ValueError, match=r"output='d' is not one of \['a', 'b', 'c'\]"):
        explain(model, output="d")


def test_a_machine_remembers_its_columns(tmp_path: Any) -> None:
    X, y = three_classes()
    model = KernelSVC(NystromFeatures(40, gamma=0.3, random_state=0)).fit(X, y == "a")
    save(model, tmp_path / "model.ks")
    for one in (model, load(tmp_path / "model.ks")):
        values = explain(one).shapley(X[:5])
        chances = one.predict_proba(X[:5])
        odds = np.log(chances[:, 1] / chances[:, 0])
        np.testing.assert_allclose(values.values.sum(axis=1) + values.base, odds, atol=1e-8)
    model.marginals_ = None  # as after a fit to very many columns
    with pytest.raises(ValueError, match=r"does not remember .* pass the training rows"):
        explain(model)


def test_effects_on_probabilities_are_those_of_the_model() -> None:
    """With one column the other columns are nowhere: the probabilities are the model's own."""
    X, y = three_classes()
    features = NystromFeatures(20, gamma=0.3, random_state=0)
    for labels in (y, y == "a"):
        model = KernelRidgeClassifier(features, alpha=0.1).fit(X[:, :1], labels)
        effect = explain(model).partial_dependence("x0")
        expected = model.predict_proba(effect.values[0][:, None])
        np.testing.assert_allclose(effect.probabilities, expected, atol=1e-8)


def test_one_page_shows_all_classes() -> None:
    X, y = three_classes()
    model = KernelRidgeClassifier(NystromFeatures(40, gamma=0.3, random_state=0), alpha=0.1)
    found = explain(model.fit(X, y))
    page = found.to_html(X[:2])
    chances = model.predict_proba(X[:1])[0]
    likeliest = model.classes_[chances.argmax()]
    assert f"Row 1: {likeliest}, probability {100 * chances.max():.1f} %" in page
    curve = plots_of(page)[0]
    assert all(f"{label} " in curve["text"][0] for label in ("a", "b", "c"))


def plots_of(page: str) -> list[Any]:
    """What the plots of a page say."""
    return [json.loads(html.unescape(one)) for one in re.findall(r"data-plot='([^']*)'", page)]


def test_plots_of_a_page_say_the_values_of_the_effects(fitted: Any) -> None:
    found = explain(fitted["landmarks"])
    plots = plots_of(found.to_html(top=20))
    curves = [plot for plot in plots if "text" in plot]
    name = next(part.columns[0] for part in found.parts if part.order == 1)
    effect = found.effect(name)
    assert len(curves[0]["px"]) == len(effect.effect)
    for said, value, height in zip(curves[0]["text"], effect.values[0], effect.effect, strict=True):
        where, _, what = said.partition(": ")
        assert float(where) == pytest.approx(value, rel=1e-4)
        assert float(what.split()[0]) == pytest.approx(height, rel=5e-3, abs=1e-5)
    heat = next(plot for plot in plots if "v" in plot)
    pair = next(part.columns for part in found.parts if part.order == 2)
    heights = found.effect(*pair).effect
    said = np.array([[float(v) for v in row] for row in heat["v"]]).T
    np.testing.assert_allclose(said, heights, rtol=5e-3, atol=1e-5)


def test_a_scaled_column_is_shown_in_its_own_units() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 100.0, 0.01] + [0.0, 500.0, 0.0]
    y = (X[:, 1] - 500.0) / 100.0
    features = NystromFeatures(50, gamma=0.1, random_state=0)
    model = make_pipeline(StandardScaler(), KernelRidge(features, alpha=0.1)).fit(X, y)
    found = explain(model, names=["a", "b", "c"])
    assert found.parts[0].name == "b"
    effect = found.effect("b")
    assert 100 < effect.values[0].min() < 350
    assert 650 < effect.values[0].max() < 800
    values = found.shapley(X[:4])
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, model.predict(X[:4]))
    np.testing.assert_array_equal(values.data, X[:4])


def test_partial_dependence_is_the_mean_over_other_columns(fitted: Any) -> None:
    model, X = fitted["landmarks"], rows()
    found = explain(model)
    one = found.partial_dependence("x1")
    both = found.partial_dependence("x0", "x1")
    for k, value in enumerate(one.values[0]):
        means = oracles.marginal_means(model.predict, columns_of(X), np.full(4, value))
        assert one.effect[k] == pytest.approx(means[1,], abs=1e-8)
        assert both.effect[k, k] == pytest.approx(means[0, 1], abs=1e-8)


def test_bands_are_posterior_deviations() -> None:
    """On one column the band is that of the Gaussian process, without its constant and noise."""
    X = np.random.default_rng(0).uniform(-2, 2, size=(300, 1))
    y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=300)
    model = KernelRidge(NystromFeatures(60, gamma=0.5, random_state=0), alpha=0.1).fit(X, y)
    effect = explain(model).effect("x0")
    assert effect.deviation is not None
    truth = np.sin(effect.values[0]) - np.sin(X[:, 0]).mean()
    inside = np.abs(effect.effect - truth) <= 3.0 * effect.deviation
    assert inside.mean() > 0.9
    _, deviations = model.predict(effect.values[0][:, None], return_std=True)
    assert (effect.deviation < deviations).all()  # which hold the noise, too
    assert 0.02 < np.median(effect.deviation) < 0.15


def test_a_source_is_as_good_as_an_array() -> None:
    X = rows(300)
    y = target(X)
    features = RowNormFeatures(30, kernel="poly", degree=2, rotate=False, random_state=0)
    source = BlockSource([(X[:100], y[:100]), (X[100:], y[100:])])
    from_array, from_source = (
        explain(KernelRidge(features, alpha=0.1).fit(*given)) for given in ((X, y), (source,))
    )
    for a, b in zip(from_array.parts[:4], from_source.parts[:4], strict=True):
        assert a.columns == b.columns
        assert a.share == pytest.approx(b.share, abs=1e-6)
    again = explain(KernelRidge(features, alpha=0.1).fit(source), source)
    assert again.parts[0].share == pytest.approx(from_array.parts[0].share, abs=1e-6)


def test_a_loaded_model_explains_itself(tmp_path: Any) -> None:
    X = rows()
    model = KernelRidge(NystromFeatures(30, random_state=0), alpha=0.1).fit(X, target(X))
    save(model, tmp_path / "plain.ks")
    save(model, tmp_path / "variance.ks", variance=True)
    plain, full = (explain(load(tmp_path / f"{n}.ks")) for n in ("plain", "variance"))
    assert plain.text() == explain(model).text()
    assert plain.effect("x0").deviation is None
    np.testing.assert_allclose(full.effect("x0").deviation, explain(model).effect("x0").deviation)


# --- planted effects -----------------------------------------------------------------------------


def planted(name: str, X: Any) -> Any:
    a, b, c = X[:, 0], X[:, 1], X[:, 2]
    if name == "friedman":
        return 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    if name == "product":
        return 2.0 * (a - 0.5) * (b - 0.5)
    if name == "triple":
        return 8.0 * (a - 0.5) * (b - 0.5) * (c - 0.5)
    return 2.0 * ((a > 0.5) & (b > 0.5)) + np.sin(6.0 * (c - 0.5))


PLANTED = {
    "friedman": {("x0",), ("x1",), ("x2",), ("x3",), ("x4",), ("x0", "x1")},
    "product": {("x0", "x1")},
    "triple": {("x0", "x1", "x2")},
    "threshold": {("x0",), ("x1",), ("x2",), ("x0", "x1")},
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_effects_are_found(name: str) -> None:
    X = np.random.default_rng(0).uniform(size=(800, 6))
    clean = planted(name, X)
    noise = 0.1 * clean.std() * np.random.default_rng(1).normal(size=len(X))
    found = explain(KernelRidgeCV(random_state=0).fit(X, clean + noise))
    right = PLANTED[name]
    assert {part.columns for part in found.parts[: len(right)]} == right
    assert found.parts[len(right)].share < 0.02
    for part in found.parts[: len(right)]:
        if part.order == 1:  # within the noise of the truth
            effect = found.effect(*part.columns)
            i = int(part.columns[0][1])
            rng = np.random.default_rng(2)
            others = rng.uniform(size=(4000, 6))
            truth = []
            for value in effect.values[0][::16]:
                others[:, i] = value
                truth.append(planted(name, others).mean())
            error = effect.effect[::16] - (
                np.array(truth) - planted(name, rng.uniform(size=(20_000, 6))).mean()
            )
            assert np.sqrt(np.mean(error**2)) < 0.1 * clean.std()


# --- mains and pairs only -------------------------------------------------------------------------


def cut_kernel(kernel: Product, X: Any, max_order: int) -> Any:
    """prod_i (1 + rest_i / m_i) cut after an order, by its definition on the rows themselves."""
    d = X.shape[1]
    parts = []
    for i in range(d):
        rates = np.zeros(d)
        rates[i] = kernel.rates_for(d)[i]
        K = Product(rates, kernel.families)(X)
        m = K.mean()
        parts.append((K - np.outer(K.mean(axis=1), K.mean(axis=0)) / m) / m)
    total = np.ones((len(X), len(X)))
    for order in range(1, max_order + 1):
        for subset in itertools.combinations(range(d), order):
            total += np.prod([parts[i] for i in subset], axis=0)
    return total


@pytest.mark.parametrize("family", ["gaussian", "laplacian", "categorical"])
@pytest.mark.parametrize("max_order", [1, 2, 3])
def test_all_products_of_few_functions_are_the_cut_kernel(family: str, max_order: int) -> None:
    X = rows(60, 4)
    kernel = Product([0.8, 0.5, 1.0, 0.3], family)
    features = AdaptiveFeatures(2000, kernel=kernel, max_order=max_order, random_state=0)
    Z = features.fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, cut_kernel(kernel, X, max_order), atol=1e-6)
    assert max(len(set(monomial)) for monomial in features.monomials_) == max_order


def test_few_of_the_products_have_the_cut_kernel_in_the_mean() -> None:
    X = rows(60, 4)
    kernel = Product([0.8, 0.5, 1.0, 0.3], "gaussian")
    grams = []
    for seed in range(40):
        features = AdaptiveFeatures(20, kernel=kernel, max_order=2, random_state=seed)
        Z = features.fit_transform(X)
        assert Z.shape == (60, 20)
        grams.append(Z @ Z.T)
    exact = cut_kernel(kernel, X, 2)
    deviation = np.std(grams, axis=0) / np.sqrt(len(grams))
    assert (np.abs(np.mean(grams, axis=0) - exact) <= 5 * deviation + 1e-3).all()


def test_a_model_of_pairs_has_no_triples_and_survives_a_file(tmp_path: Any) -> None:
    X = np.random.default_rng(0).normal(size=(300, 5))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.3 * X[:, 0] * X[:, 1] * X[:, 3]
    features = AdaptiveFeatures(150, gamma=0.1, max_order=2, random_state=0)
    model = KernelRidge(features, alpha=0.1).fit(X, y)
    found = explain(model)
    assert found.order_shares[2] < 1e-12
    assert found.order_shares[3] < 1e-12
    assert found.parts[0].columns == ("x0", "x1")
    values = found.shapley(X[:3])
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, model.predict(X[:3]))
    save(model, tmp_path / "pairs.ks")
    np.testing.assert_array_equal(load(tmp_path / "pairs.ks").predict(X), model.predict(X))


def test_what_max_order_does_not_go_with() -> None:
    X = rows()
    with pytest.raises(ValueError, match="max_order=2 is for the Gaussian and product kernels"):
        AdaptiveFeatures(10, kernel="poly", max_order=2).fit(X)
    with pytest.raises(ValueError, match="max_order=0 must be >= 1"):
        AdaptiveFeatures(10, max_order=0).fit(X)
    with pytest.raises(ValueError, match="default sampler"):
        AdaptiveFeatures(10, sampler="leverage", max_order=2).fit(X)


# --- models that are no sums of products ---------------------------------------------------------


def test_other_models_are_probed() -> None:
    X = np.random.default_rng(0).normal(size=(400, 3))
    y = np.sin(X[:, 1]) + 0.2 * X[:, 0]
    model = KernelRidge(FourierFeatures(100, gamma=0.2, random_state=0), alpha=0.1).fit(X, y)
    found = explain(model, X, y)
    assert isinstance(found, Probe)
    assert found.loss == "RMSE"
    assert list(found.importance)[:2] == ["x1", "x0"]
    said = found.text().splitlines()
    assert said[0].startswith("This model cannot be taken apart: FourierFeatures of Gaussian")
    values, effects = found.curves["x1"]
    assert np.abs(effects - np.sin(values))[1:-1].max() < 0.1  # sin has mean 0 here
    stand_in = found.stand_in()
    assert isinstance(stand_in, Explanation)
    assert "R2 = " in stand_in.text().splitlines()[0]
    assert {part.name for part in stand_in.parts[:2]} == {"x0", "x1"}
    with pytest.raises(ValueError, match="need rows: pass X"):
        explain(model)


def test_no_stand_in_for_a_model_that_it_does_not_follow() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    noise = rng.normal(size=300)
    model = KernelRidge(FourierFeatures(400, gamma=50.0, random_state=0), alpha=1e-3).fit(X, noise)
    found = explain(model, X, noise)
    assert isinstance(found, Probe)
    with pytest.raises(ValueError, match=r"R2 = .* only, below 0\.9"):
        found.stand_in()


def test_classifiers_are_probed_by_log_loss() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = np.where(X[:, 2] > 0, "yes", "no")
    features = FourierFeatures(60, gamma=0.2, random_state=0)
    found = explain(KernelRidgeClassifier(features, alpha=0.1).fit(X, y), X, y)
    assert isinstance(found, Probe)
    assert found.loss == "log loss"
    assert next(iter(found.importance)) == "x2"


def test_one_class_of_two_has_the_sign_that_speaks_for_it() -> None:
    X = rows()
    y = np.where(X[:, 0] > 0, "yes", "no")
    features = NystromFeatures(30, gamma=0.3, random_state=0)
    model = KernelRidgeClassifier(features, alpha=0.1).fit(X, y)
    chances = model.predict_proba(X[:5])
    for k, label in enumerate(("no", "yes")):
        found = explain(model, output=label)
        values = found.shapley(X[:5])
        odds = np.log(chances[:, k] / chances[:, 1 - k])
        np.testing.assert_allclose(values.values.sum(axis=1) + values.base, odds, atol=1e-8)
        assert found.unit == f"log-odds of {label}"
    with pytest.raises(ValueError, match=r"output='maybe' is not one of \['no', 'yes'\]"):
        explain(model, output="maybe")


def test_one_class_of_two_of_a_kernel_of_parts() -> None:
    X = rows()
    y = X[:, 0] > 0
    features = NystromFeatures(30, kernel=PARTS, random_state=0)
    model = KernelRidgeClassifier(features, alpha=0.1).fit(X, y)
    values = explain(model, output=False).shapley(X[:5])
    score = values.values.sum(axis=1) + values.base
    expected = -2.0 * model.sharpness_ * model.decision_function(X[:5])
    np.testing.assert_allclose(score, expected, atol=1e-8)


def test_classes_are_probed_one_by_one() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    features = FourierFeatures(60, gamma=0.2, random_state=0)
    model = KernelRidgeClassifier(features, alpha=0.1).fit(X, np.where(X[:, 2] > 0, "yes", "no"))
    yes, no = (explain(model, X, output=label).curves["x2"][1] for label in ("yes", "no"))
    assert yes[-1] > yes[0]
    np.testing.assert_allclose(no, -yes, atol=1e-12)
    three = np.where(X[:, 0] > 0.5, "a", np.where(X[:, 2] > 0, "b", "c"))
    model = KernelRidgeClassifier(features, alpha=0.1).fit(X, three)
    found = explain(model, X, output="a")
    assert isinstance(found, Probe)
    spans = {name: np.ptp(effect) for name, (_, effect) in found.curves.items()}
    assert max(spans, key=spans.__getitem__) == "x0"
    assert found.curves["x0"][1][-1] > found.curves["x0"][1][0]
    with pytest.raises(ValueError, match=r"output='d' is not one of \['a', 'b', 'c'\]"):
        explain(model, X, output="d")


def test_one_output_of_several_is_probed() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = KernelRidge(FourierFeatures(60, gamma=0.2, random_state=0), alpha=0.1)
    found = explain(model.fit(X, np.column_stack([X[:, 0], 3.0 * X[:, 1]])), X, output=1)
    assert np.ptp(found.curves["x1"][1]) > 10 * np.ptp(found.curves["x0"][1])
    assert "Pass y for permutation importances." in found.text()
    assert found.importance == {}


def test_reasons_why_a_model_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows()
    y = target(X)
    features = NystromFeatures(20, random_state=0)
    sparse = RowNormFeatures(20, kernel=Product(0.5), random_state=0)
    cases = {
        "Ridge is not a model on product features": (Ridge(), X),
        "is not a product over columns": (
            KernelRidge(NystromFeatures(20, kernel=Matern(1.0, 1.5), random_state=0)),
            X,
        ),
        "the features are those of sparse rows": (
            KernelRidge(sparse),
            sp.csr_array(np.where(X > 0, X, 0.0)),
        ),
        "the pipeline mixes columns (PCA)": (make_pipeline(PCA(4), KernelRidge(features)), X),
    }
    for reason, (model, given) in cases.items():
        found = explain(model.fit(given, y), given, y)
        assert isinstance(found, Probe)
        assert reason in found.reason
        assert "x2" in list(found.importance)[:3]
    monkeypatch.setattr(sums, "MOST_COLUMNS", 3)
    found = explain(KernelRidge(features).fit(X, y), X, y)
    assert found.reason == "4 columns take part, too many to take the model apart (at most 3)"


def test_landmarks_of_a_laplacian_add_up() -> None:
    X = rows()
    features = NystromFeatures(30, kernel=Laplacian(0.5), random_state=0)
    model = KernelRidge(features, alpha=0.1).fit(X, target(X))
    values = explain(model).shapley(X[:5])
    np.testing.assert_allclose(
        values.values.sum(axis=1) + values.base, model.predict(X[:5]), atol=1e-8
    )


def test_parts_that_a_kernel_does_not_have() -> None:
    X = rows()
    kernel = Anova.of(MIXED, X, subsets=[(0,), (0, 1)], variances=[0.5, 0.5])
    features = NystromFeatures(20, kernel=kernel, random_state=0)
    found = explain(KernelRidge(features, alpha=0.1).fit(X, target(X)))
    apart = found.effect("x0", "x2")  # not among the subsets
    assert np.abs(apart.effect).max() < 1e-12
    assert apart.deviation is None
    assert found.effect("x0").deviation.min() > 0
    features = NystromFeatures(20, kernel=MIXED, random_state=0)
    idle = explain(KernelRidge(features, alpha=0.1).fit(X, target(X))).effect("x3")
    assert idle.effect.tolist() == [0.0, 0.0, 0.0]  # its rate is 0


def test_bands_need_a_known_noise() -> None:
    X = rows()
    kernel = Anova.of(MIXED, X, subsets=[(0,), (0, 1)], variances=[0.5, 0.5])
    features = NystromFeatures(20, kernel=kernel, random_state=0)
    weight = np.eye(len(X))[0]  # a single row tells nothing of the noise
    model = KernelRidge(features, alpha=0.1).fit(X, target(X), sample_weight=weight)
    assert explain(model).effect("x0").deviation is None


def two_outputs() -> tuple[KernelRidge, Any]:
    X = rows()
    X[:, 3] = 2.0  # a column that says nothing
    model = KernelRidge(NystromFeatures(30, gamma=0.3, random_state=0), alpha=0.1)
    return model.fit(X, np.column_stack([X[:, 0], X[:, 0] * X[:, 1]])), X


def test_several_outputs_in_words_and_plots() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    model, X = two_outputs()
    found = explain(model)
    assert found.text().startswith("KernelRidge, 2 outputs together: standard deviation")
    legend = found.plot_effect("x0").get_legend()
    assert [line.get_text() for line in legend.get_texts()] == ["0", "1"]
    drawn = found.plot_effect("x0", "x1")
    assert drawn.get_title(loc="left").startswith("x0 × x1, 1")
    flat = found.plot_effect("x0", "x3")
    assert flat.get_ylim() == (1.5, 2.5)  # a cell around the only value
    with pytest.raises(ValueError, match="one output: pass output= to explain"):
        found.plot_waterfall(X[:1])
    assert "Rows are explained for one output at a time." in found.to_html(X[:2])
    one = explain(model, output=1)
    ax = one.plot_waterfall(X[:1], top=2)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[0] == "2 other columns"
    assert f"prediction {number(model.predict(X[:1])[0, 1])}" in ax.get_title(loc="left")


def test_a_page_has_no_empty_section() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    X = rows()
    features = NystromFeatures(30, gamma=0.3, random_state=0)
    alone, together = "Effects of single columns", "What pairs of columns do together"
    for y, shown, hidden in (
        (X[:, 0], alone, together),
        ((X[:, 0] - X[:, 0].mean()) * (X[:, 1] - X[:, 1].mean()), together, alone),
    ):
        text = page(explain(KernelRidge(features, alpha=0.1).fit(X, y)), top=1)
        assert shown in text
        assert hidden not in text


def test_what_is_no_row_and_no_frame_is_refused() -> None:
    found = explain(KernelRidge(NystromFeatures(20, random_state=0)).fit(rows(), target(rows())))
    with pytest.raises(ValueError, match=r"rows of shape \(3, 2\) for a model of 4 columns"):
        found.shapley(rows()[:3, :2])
    with pytest.raises(ValueError, match="what='rows' is neither 'parts' nor 'columns'"):
        found.to_frame("rows")


def test_principal_components_are_not_columns() -> None:
    X = rows()
    model = KernelRidge(RowNormFeatures(20, rotate=True, random_state=0)).fit(X, target(X))
    found = explain(model, X, target(X))
    assert isinstance(found, Probe)
    assert "principal components" in found.reason


# --- words, tables and pages ---------------------------------------------------------------------


def table(n: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    flats = {
        "size": rng.uniform(20, 150, n).round(),
        "town": rng.choice(["Ulm", "Bonn", "Köln"], n, p=[0.5, 0.3, 0.2]),
        "floor": rng.integers(0, 5, n).astype(float),
    }
    price = {"Ulm": 10.0, "Bonn": 15.0, "Köln": 12.0}
    flats["rent"] = flats["size"] * np.array([price[t] for t in flats["town"]])
    return flats


@pytest.fixture(scope="module")
def rent() -> TableModel:
    return TableModel("rent", n_components=100, method="nystrom").fit(table())


def test_a_table_is_explained_in_its_own_columns(rent: TableModel) -> None:
    found = explain(rent)
    assert isinstance(found, Explanation)
    assert found.names == ("size", "town", "floor")
    assert [part.name for part in found.parts[:3]] == ["size", "town", "size × town"]
    town = found.effect("town")
    assert town.values[0].tolist() == ["Bonn", "Köln", "Ulm"]
    np.testing.assert_allclose(
        town.weights[0], np.unique(table()["town"], return_counts=True)[1] / 300
    )
    assert town.effect.argmax() == 0
    assert town.effect.argmin() == 2
    assert 20 <= found.effect("size").values[0].min() < 30
    few = {name: values[:4] for name, values in table().items() if name != "rent"}
    values = found.shapley(few)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, rent.predict(few))
    assert values.data[0, 1] == table()["town"][0]


def test_words_and_pages(rent: TableModel) -> None:
    found = explain(rent)
    text = repr(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "size × town" in text
    assert "not causes" in text
    frame = found.to_frame()
    assert frame["part"].tolist()[:2] == ["size", "town"]
    assert found.to_frame("columns")["column"].tolist() == ["size", "town", "floor"]
    assert "<table>" in found._repr_html_()
    few = {name: values[:2] for name, values in table().items()}
    page = found.to_html(rows=few)
    assert page.count("<svg") >= 3
    assert page.count("<script") == 1
    assert "http" not in page  # nothing is fetched
    assert "Row 2" in page
    assert "town = " in page
    assert page == found.to_html(rows=few)


def test_names_from_strangers_are_escaped() -> None:
    X = rows()
    model = KernelRidge(NystromFeatures(20, random_state=0)).fit(X, target(X))
    names = ["<script>alert(1)</script>", "$a$", "b\x1b[31m", "c"]
    found = explain(model, names=names)
    assert found.to_html().count("<script") == 1  # our own
    assert "<script" not in found._repr_html_()
    assert "\x1b" not in repr(found)


def test_wrong_columns_are_named(fitted: Any) -> None:
    found = explain(fitted["landmarks"])
    with pytest.raises(ValueError, match="'y' is not a column: x0, x1"):
        found.effect("y")
    with pytest.raises(ValueError, match="pass 1 to 2 different names"):
        found.effect("x0", "x0")
    with pytest.raises(ValueError, match="names has 2 entries"):
        explain(fitted["landmarks"], names=["a", "b"])


def test_plots_show_what_is_there(fitted: Any) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    found = explain(fitted["landmarks"])
    assert found.plot_effect("x2").get_xlabel() == "x2"
    assert found.plot_effect("x0", "x1").get_ylabel() == "x1"
    bars = found.plot_shares(3)
    assert [label.get_text() for label in bars.get_yticklabels()][::-1] == [
        part.name for part in found.parts[:3]
    ]
    ax = found.plot_waterfall(rows()[:1])
    prediction = fitted["landmarks"].predict(rows()[:1])[0]
    assert f"prediction {number(prediction)}" in ax.get_title(loc="left")
    assert len(found.plot(4).axes) >= 5


def test_shap_takes_the_values(fitted: Any) -> None:
    pytest.importorskip("shap")
    found = explain(fitted["landmarks"]).shapley(rows()[:3]).to_shap()
    assert found.values.shape == (3, 4)
    assert found.base_values.shape == (3,)


def test_marginals_hold_distinct_values_and_missing_ones() -> None:
    X = np.array([[1.0, np.nan], [1.0, 2.0], [3.0, np.nan], [1.0, 2.0]])
    values, weights = Marginals.of_rows(X).column(0)
    assert values.tolist() == [1.0, 3.0]
    assert weights.tolist() == [0.75, 0.25]
    values, weights = Marginals.of_rows(X).column(1)
    assert values[0] == 2.0
    assert np.isnan(values[1])
    assert weights.tolist() == [0.5, 0.5]
    wide = np.random.default_rng(0).normal(size=(5000, 1))
    values, weights = Marginals.of_rows(wide).column(0)
    assert len(values) == 256
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ values == pytest.approx(wide.mean(), abs=0.01)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_writes_a_page_and_explains_rows(
    rent: TableModel, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from kernelsieve.cli import app

    monkeypatch.chdir(tmp_path)
    save(rent, "rent.ks")
    few = [",".join(["size", "town", "floor"])]
    few += [f"{table()['size'][i]},{table()['town'][i]},{table()['floor'][i]}" for i in range(3)]
    (tmp_path / "new.csv").write_text("\n".join(few), encoding="utf-8")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["explain", "rent.ks", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    said = run("--html", "out.html", "--rows", "new.csv")
    assert "size × town" in said
    assert "  1: " in said
    assert max(map(len, said.splitlines())) <= 80
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 3  # three curves or more
    assert "Row 3" in page
    assert "held-out rows" in page
    found = json.loads(run("--json", "--rows", "new.csv"))
    assert found["parts"][0]["columns"] == ["size"]
    assert len(found["shapley"]["values"]) == 3
    run("--picture", "rent.png")
    assert (tmp_path / "rent.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_says_why_a_model_cannot_be_taken_apart(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from kernelsieve.cli import app

    monkeypatch.chdir(tmp_path)
    save(TableModel("rent", n_components=50, method="fourier").fit(table()), "rent.ks")
    lines = ["size,town,floor,rent"]
    lines += [
        ",".join(str(table()[name][i]) for name in ("size", "town", "floor", "rent"))
        for i in range(200)
    ]
    (tmp_path / "flats.csv").write_text("\n".join(lines), encoding="utf-8")
    done = CliRunner().invoke(app, ["explain", "rent.ks"])
    assert "This model cannot be taken apart: FourierFeatures" in done.stdout
    done = CliRunner().invoke(app, ["explain", "rent.ks", "--data", "flats.csv"])
    assert "Range of accumulated local effects" in done.stdout
    done = CliRunner().invoke(app, ["explain", "rent.ks", "--rows", "flats.csv"])
    assert done.exit_code != 0


@pytest.fixture(scope="module")
def towns() -> TableModel:
    options: Any = {"n_components": 30, "gamma": 0.1, "alpha": 0.1, "baselines": False}
    return TableModel("town", method="nystrom", **options).fit(table(120))


def written_rows(path: Any, count: int) -> None:
    """A table of the first flats."""
    found = table()
    lines = [",".join(str(found[name][i]) for name in found) for i in range(count)]
    path.write_text("\n".join([",".join(found), *lines]), encoding="utf-8")


def test_the_command_explains_one_class(
    towns: TableModel, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from kernelsieve.cli import app

    monkeypatch.chdir(tmp_path)
    save(towns, "town.ks")
    written_rows(tmp_path / "new.csv", 40)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["explain", "town.ks", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "3 classes together" in run()
    chances = towns.predict_proba("new.csv")[0]
    likeliest = f"{towns.classes_[chances.argmax()]} {100.0 * chances.max():.1f} %"
    assert f"\n  1: {likeliest}, log-odds " in run("--rows", "new.csv")
    said = run("--class", "Ulm", "--rows", "new.csv")
    assert "\n 20: " in said
    assert said.endswith("... and 20 more\n")
    found = json.loads(run("--class", "Ulm", "--rows", "new.csv", "--json"))
    expected = explain(towns, output="Ulm").shapley("new.csv")
    np.testing.assert_allclose(found["shapley"]["values"], expected.values, atol=1e-12)


def test_the_command_refuses_classes_that_are_not_there(
    towns: TableModel, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(towns, tmp_path / "town.ks")
    said = failing(["explain", str(tmp_path / "town.ks"), "--class", "Rom"], capsys)
    assert "--class Rom: the classes are Bonn, Köln, Ulm" in said
    options: Any = {"n_components": 9, "gamma": 0.1, "alpha": 0.1, "baselines": False}
    save(TableModel("rent", **options).fit(table(60)), tmp_path / "rent.ks")
    said = failing(["explain", str(tmp_path / "rent.ks"), "--class", "Ulm"], capsys)
    assert "--class Ulm: 'rent' is a number, without classes" in said


@pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")
def test_the_command_names_numbers_as_it_prints_them(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from kernelsieve.cli import app

    monkeypatch.chdir(tmp_path)
    flats = table(80)
    flats["large"] = (flats.pop("rent") > 900).astype(float)
    options: Any = {"n_components": 20, "gamma": 0.1, "alpha": 0.1, "baselines": False}
    model = TableModel("large", method="nystrom", **options).fit(flats)
    save(model, "large.ks")
    written_rows(tmp_path / "new.csv", 3)
    values = {}
    for label in ("0", "1"):
        arguments = ["explain", "large.ks", "--class", label, "--rows", "new.csv", "--json"]
        done = CliRunner().invoke(app, arguments)
        values[label] = np.array(json.loads(done.stdout)["shapley"]["values"])
    np.testing.assert_allclose(values["0"], -values["1"], atol=1e-12)
    assert np.abs(values["1"]).max() > 0.01


def test_the_command_gives_what_it_finds_in_a_probe_to_machines(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from kernelsieve.cli import app

    monkeypatch.chdir(tmp_path)
    options: Any = {"n_components": 30, "gamma": 0.1, "alpha": 0.1, "baselines": False}
    save(TableModel("rent", method="fourier", **options).fit(table(120)), "rent.ks")
    written_rows(tmp_path / "flats.csv", 120)
    done = CliRunner().invoke(app, ["explain", "rent.ks", "--data", "flats.csv", "--json"])
    found = json.loads(done.stdout)
    assert next(iter(found["importance"])) == "size"
    assert "parts" not in found


def test_the_command_without_matplotlib(
    towns: TableModel,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(towns, tmp_path / "town.ks")
    picture = tmp_path / "town.png"
    arguments = ["explain", str(tmp_path / "town.ks"), "--picture", str(picture)]

    def missing(name: str) -> Any:
        def plot(self: Any, top: int) -> Any:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        return plot

    monkeypatch.setattr(Explanation, "plot", missing("matplotlib.figure"))
    assert "plots need matplotlib: pip install 'kernelsieve[plot]'" in failing(arguments, capsys)
    monkeypatch.setattr(Explanation, "plot", missing("numpy"))  # a mistake of ours
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        cli.main(arguments)
    assert not picture.exists()


def test_many_categories_are_shown_by_their_names() -> None:
    rng = np.random.default_rng(0)
    streets = rng.integers(0, 30, 300)
    data = {"street": [f"street {i:02d}" for i in streets], "size": rng.uniform(20, 150, 300)}
    rent = 10.0 * streets + data["size"]
    options: Any = {"n_components": 40, "gamma": 0.3, "alpha": 0.01, "baselines": False}
    model = TableModel("rent", method="nystrom", **options).fit({**data, "rent": rent})
    assert model.encoder_.columns_[0].means
    shares = np.bincount(streets, minlength=30) / 300
    for given in (None, data):  # training rows have means of other folds
        street = explain(model, given).effect("street")
        assert set(street.values[0]) == set(data["street"])
        order = [int(name[-2:]) for name in street.values[0]]
        assert np.corrcoef(street.effect, order)[0, 1] > 0.9
        assert street.weights[0].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(street.weights[0], shares[order], atol=1e-9)


def test_sparse_columns_of_a_table_are_shown_by_their_numbers() -> None:
    X = sp.random(80, 4, density=0.4, random_state=0, format="csr")
    y = np.asarray(X[:, [1]].toarray()).ravel()
    model = TableModel("y", n_components=20, gamma=0.3, alpha=0.1, method="nystrom").fit(X, y)
    found = explain(model)
    assert found.parts[0].columns == ("column 1",)
    effect = found.effect("column 1")
    np.testing.assert_array_equal(effect.values[0], np.unique(y))


def test_missing_values_are_one_more_value() -> None:
    X = rows(150, 3)
    X[::7, 0] = np.nan
    y = np.where(np.isnan(X[:, 0]), 2.0, X[:, 1])
    kernel = Product([0.8, 0.5, 0.0], ["gaussian", "laplacian", "gaussian"])
    for features in (
        NystromFeatures(40, kernel=kernel, random_state=0),
        AdaptiveFeatures(40, kernel=kernel, random_state=0),
    ):
        model = KernelRidge(features, alpha=0.1).fit(X, y)
        found = explain(model)
        values = found.shapley(X[:20])
        np.testing.assert_allclose(
            values.values.sum(axis=1) + values.base, model.predict(X[:20]), atol=1e-8
        )
        effect = found.effect("x0")
        assert np.isnan(effect.values[0][-1])
        assert effect.effect.argmax() == len(effect.effect) - 1
        assert found.plot_effect("x0").get_xlabel() == "x0"
        assert found.plot_effect("x0", "x1").get_xlabel() == "x0"


@pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")
def test_a_learned_table_model_with_a_linear_part() -> None:
    """What TableModel makes by default, with categories and missing values."""
    flats = table()
    flats["size"][::9] = np.nan
    flats["rent"] = np.nan_to_num(flats["size"], nan=60.0) * 10.0 + 100.0 * (flats["town"] == "Ulm")
    model = TableModel("rent").fit(flats)
    found = explain(model)
    few = {name: values[:12] for name, values in flats.items() if name != "rent"}
    values = found.shapley(few)
    np.testing.assert_allclose(
        values.values.sum(axis=1) + values.base, model.predict(few), rtol=1e-8, atol=1e-6
    )
    assert [part.name for part in found.parts[:2]] == ["size", "town"]
    assert np.isnan(values.data[0, 0])
    assert sum(found.order_shares) == pytest.approx(1.0)


def test_a_table_of_pairs_has_a_linear_part_and_categories() -> None:
    rng = np.random.default_rng(0)
    data = {
        "size": rng.normal(size=200),
        "town": rng.choice(["Ulm", "Bonn", "Kiel"], size=200),
        "age": rng.normal(size=200),
    }
    y = 3.0 * data["size"] + (data["town"] == "Ulm") * data["age"] + rng.normal(size=200) / 10
    model = TableModel("y", max_order=2).fit({**data, "y": y})
    assert np.abs(model.model_.coef_).max() > 1.0
    found = explain(model)
    assert all(part.order <= 2 for part in found.parts)
    assert [part.name for part in found.parts[:2]] == ["size", "town × age"]
    few = {name: values[:9] for name, values in data.items()}
    total = sum(found.part_values(part.columns, few) for part in found.parts) + found.constant
    np.testing.assert_allclose(total, model.predict(few), atol=1e-8)
    values = found.shapley(few)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, total, atol=1e-8)
    curve = found.effect("size")
    assert curve.effect @ curve.weights[0] == pytest.approx(0.0, abs=1e-8)
    variance = found.parts[0].variance
    assert curve.effect**2 @ curve.weights[0] == pytest.approx(variance, rel=1e-8)
    with pytest.raises(ValueError, match="max_order=2 is for a learned kernel"):
        TableModel("y", max_order=2, readable=True).fit({**data, "y": y})


def test_a_table_explains_itself_in_the_same_way(rent: TableModel) -> None:
    assert rent.explain().text() == explain(rent).text()
    few = {name: values[:3] for name, values in table().items()}
    np.testing.assert_array_equal(
        rent.explain().shapley(few).values, explain(rent).shapley(few).values
    )


def test_numbers_are_written_as_people_write_them() -> None:
    written = {2.382e4: "23,820", 0.00123: "0.00123", 12.0: "12", -3.14159: "-3.142"}
    for value, text in written.items():
        assert number(value) == text
    assert number(1e-9) == "1e-09"
    assert number(0.5, 3, "+") == "+0.5"
    assert value_text(np.datetime64("2024-03-01T00:00:00")) == "2024-03-01"
    assert value_text(np.datetime64("2024-03-01T12:30:00")) == "2024-03-01 12:30"
    assert value_text(np.float64("nan")) == "missing"


@pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")
def test_times_are_shown_as_times() -> None:
    rng = np.random.default_rng(0)
    days = rng.integers(0, 400, size=200)
    seen = np.datetime64("2023-01-01") + days
    flats = {"seen": [str(day) for day in seen], "size": rng.uniform(20, 150, 200)}
    flats["rent"] = 10.0 * flats["size"] + 2.0 * days
    model = TableModel("rent", n_components=40, method="nystrom", baselines=False).fit(flats)
    found = model.explain()
    values = found.effect("seen").values[0]
    assert values.dtype.kind == "M"
    assert abs(values.min() - seen.min()) <= np.timedelta64(1, "D")
    assert abs(values.max() - seen.max()) <= np.timedelta64(1, "D")
    data = found.shapley({"seen": ["2023-05-06"], "size": [50.0]}).data
    assert value_text(data[0, found.names.index("seen")]) == "2023-05-06"
    curve = next(plot for plot in plots_of(found.to_html()) if "2023-" in plot["text"][0])
    assert re.match(r"2023-01-0\d", curve["text"][0])


def test_columns_that_say_the_same_are_explained_together() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    X[:, 2] = np.exp(X[:, 0])  # the same order of the rows
    y = X[:, 0] + X[:, 2] + 0.3 * X[:, 1]
    model = KernelRidge(NystromFeatures(60, gamma=0.5, random_state=0), alpha=0.01).fit(X, y)
    found = explain(model, names=["time", "size", "month"])
    assert found.names == ("time", "size")
    assert found.same == {"time": ("month",)}
    assert "time and month say the same" in " ".join(found.text().split())
    together = found.effect("month")
    np.testing.assert_array_equal(together.effect, found.effect("time").effect)
    # Both move together: the curve is that of the target along the rows.
    times = together.values[0]
    truth = times + np.exp(times)
    np.testing.assert_allclose(together.effect, truth - truth @ together.weights[0], atol=0.05)
    values = found.shapley(X[:5])
    assert values.data.shape == (5, 2)
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, model.predict(X[:5]))


def test_columns_that_only_look_alike_are_apart() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[:, 1] = X[:, 0] + 0.3 * X[:, 1]  # a correlation of about 0.96
    model = KernelRidge(NystromFeatures(60, gamma=0.5, random_state=0), alpha=0.1).fit(X, X[:, 1])
    assert explain(model).names == ("x0", "x1")


@pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")
def test_levels_that_go_together_are_one_column() -> None:
    flats = table(200)
    flats["code"] = np.array([f"code {town}" for town in flats["town"]])
    options: Any = {"n_components": 60, "method": "nystrom", "gamma": 0.1, "alpha": 0.1}
    found = TableModel("rent", baselines=False, **options).fit(flats).explain()
    assert found.same == {"town": ("code",)}
    assert "code" not in found.importance
