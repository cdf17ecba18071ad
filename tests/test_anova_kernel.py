"""Kernels of main effects and interactions: their values, how they are learned, models on them."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from support.learning import chosen

from kernelsieve import KernelRidge, KernelRidgeClassifier, KernelRidgeCV, NystromFeatures, explain
from kernelsieve._native.subsets import add_subsets
from kernelsieve.kernels import Anova, Product, Warp, learn
from kernelsieve.kernels.anova_tiles import CentredTiles, LookedUpTiles
from kernelsieve.kernels.likelihood.components import VarianceComponents
from kernelsieve.kernels.likelihood.learner import Learner
from kernelsieve.kernels.likelihood.parts import MOST_SUBSETS, learn_parts, subsets_to_try
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.kernels.subsets import SubsetTree
from kernelsieve.learning import parts_choice
from kernelsieve.learning.errors import LeftOut, SetApart
from kernelsieve.sources.base import ArraySource
from kernelsieve.sources.marginals import Marginals
from kernelsieve.sources.stream import BlockSource

FAMILIES = ["gaussian", "laplacian", "matern32", "matern52", "categorical"]
RATES = [0.7, 0.5, 0.3, 1.1, 0.8]
SUBSETS = {(0,): 0.5, (1,): 0.25, (4,): 0.2, (0, 1): 0.125, (1, 4): 0.3, (0, 2, 3): 0.6}


def rows(n: int = 90, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 4] = rng.integers(3, size=n)
    return X


def warps() -> list[Warp]:
    return [Warp(), Warp("log", 0.1, 2.0), Warp(), Warp.fit(rows()[:, 3], "rank"), Warp()]


def mixed(X: Any, **options: Any) -> Anova:
    base = Product(RATES, FAMILIES, warps(), **options)
    return Anova.of(base, X, subsets=SUBSETS, variances=list(SUBSETS.values()))


def truth(X: Any, Y: Any, seen: Any) -> Any:
    """Values of ``mixed`` one by one, with the columns warped and scaled first."""

    def scaled(i: int, values: Any) -> Any:
        return values if i == 4 else RATES[i] * warps()[i](np.asarray(values))

    def factor(i: int) -> Any:
        return lambda u, v: oracles.column_kernel(FAMILIES[i], u, v, RATES[i])

    marginals = Marginals.of_rows(seen)
    columns = []
    for i in range(5):
        values, weights = marginals.column(i)
        columns.append((scaled(i, values).tolist(), weights.tolist()))
    left, right = (np.column_stack([scaled(i, Z[:, i]) for i in range(5)]) for Z in (X, Y))
    factors = [factor(i) for i in range(5)]
    return np.array(
        [[oracles.anova_kernel(x, y, factors, columns, SUBSETS) for y in right] for x in left]
    )


# --- values --------------------------------------------------------------------------------------


def test_values_are_those_of_the_definition() -> None:
    seen = rows(12)
    X, Y = rows(700, 1), rows(600, 2)
    kernel = mixed(seen)
    some, others = [0, 333, 699], [0, 511, 599]
    expected = truth(X[some], Y[others], seen)
    gram = kernel(X, Y)
    np.testing.assert_allclose(gram[np.ix_(some, others)], expected, rtol=1e-10, atol=1e-12)
    single = kernel(X.astype(np.float32), Y.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, gram, atol=2e-5)
    square = kernel(X)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_allclose(square, kernel(X, X.copy()), atol=1e-13)
    np.testing.assert_allclose(np.diag(square), kernel.diag(X), rtol=1e-12)
    np.testing.assert_array_equal(kernel(X, Y, n_jobs=1), kernel(X, Y, n_jobs=3))
    assert np.linalg.eigvalsh(square).min() > -1e-10  # positive semi-definite
    v = np.random.default_rng(0).normal(size=(len(X), 2))
    for dtype in (np.float64, np.float32):
        matrix = KernelMatrix(kernel, X, dtype=dtype)
        np.testing.assert_allclose(matrix @ v, square @ v, atol=1e-3)
        np.testing.assert_allclose(
            matrix.columns(np.array([3, 5])) @ v[:2], square[:, [3, 5]] @ v[:2], atol=1e-4
        )


def test_centred_over_the_training_values() -> None:
    X = rows()
    for i in range(5):
        kernel = Anova.of(Product(RATES, FAMILIES), X, subsets=[(i,)], variances=[1.0])
        gram = kernel(X)
        np.testing.assert_allclose(gram.mean(axis=0), 0.0, atol=1e-12)
        assert kernel.diag(X).mean() == pytest.approx(1.0)
    constant = X.copy()
    constant[:, 0] = 3.0
    flat = Anova.of(Product(RATES, FAMILIES), constant, subsets=[(0,), (1,)])
    assert np.isfinite(flat(X)).all()


@pytest.mark.parametrize("missing", [False, True])
def test_columns_of_few_values_are_looked_up_with_the_same_values(
    monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    rng = np.random.default_rng(0)
    X, Y = (np.round(3.0 * rng.normal(size=(n, 5))) / 3.0 for n in (70, 40))
    X[:, 2], Y[:, 2] = rng.normal(size=70), rng.normal(size=40)  # many values
    if missing:
        X[::5, 0] = Y[::3, 0] = np.nan
    kernel = Anova.of(Product(RATES, FAMILIES), X, max_order=2)
    some = np.array([5, 3, 3])
    tiles = kernel.tiles(X, Y, np.float64)
    kinds = [type(column) for column in tiles.columns]
    assert kinds.count(LookedUpTiles) == 4
    assert kinds[2] is CentredTiles
    taken = np.empty((70, 3))
    tiles.take(some)(slice(0, 70), slice(0, 3), taken)
    np.testing.assert_array_equal(taken, kernel(X, Y)[:, some])
    looked_up = kernel(X, Y), kernel(X)
    monkeypatch.setattr("kernelsieve.kernels.anova_tiles.FEW_VALUES", 0)
    for found, expected in zip(looked_up, (kernel(X, Y), kernel(X)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_wide_kernels_keep_their_digits_in_float32() -> None:
    """What is left after centring is tiny, and is computed in float64."""
    X = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    kernel = Anova.of(Product([1e-3, 1e-3], "gaussian"), X)
    wide = kernel(X.astype(np.float64))
    np.testing.assert_allclose(kernel(X), wide, atol=1e-5)
    line = X[:, 0].astype(np.float64)
    one = replace(kernel, subsets=[(0,)], variances=[1.0])(X)
    linear = np.outer(line - line.mean(), line - line.mean()) / line.var()
    np.testing.assert_allclose(one, linear, atol=1e-3)


def test_missing_values_are_compared_as_in_a_product() -> None:
    X = rows()
    X[::7, 1] = np.nan
    base = Product(RATES, FAMILIES)
    kernel = Anova.of(base, X, subsets=[(1,)], variances=[1.0])
    k = base.with_references(X).of_column(1, 5)
    plain = k(X[:, [1]])
    values, weights = Marginals.of_rows(X).column(1)
    means = k(X[:, [1]], values[:, None]) @ weights
    total = float(weights @ k(values[:, None]) @ weights)
    expected = plain - np.outer(means, means) / total
    ratio = kernel(X) / expected
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-8)
    whole = Anova.of(base, rows())
    with pytest.raises(ValueError, match=r"missing values in column 0"):
        whole(X)


def test_words_and_errors() -> None:
    X = rows()
    kernel = mixed(X)
    assert repr(kernel) == (
        "Anova({x0, x2, x3}: 30.4 %, {x0}: 25.3 %, {x1, x4}: 15.2 %, {x1}: 12.7 %, {x4}: 10.1 %, "
        "{x0, x1}: 6.3 % of 5 columns)"
    )
    assert kernel.max_order == 3
    assert kernel.relevances().sum() == pytest.approx(1.0)
    assert kernel.with_variances([1, 0, 0, 0, 2, 0]).subsets == ((0,), (1, 4))
    base = Product([1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"dense rows: pass X.toarray\(\)"):
        kernel(sp.csr_array(X))
    with pytest.raises(ValueError, match="but X has 3 columns"):
        kernel(X[:, :3])
    for subsets, message in [
        ([(0, 1)], "rate above 0"),
        ([(0, 3)], "rate above 0"),
        ([(2, 0)], "ascending order"),
        ([()], "1 to 8 columns"),
        ([(0,), (0,)], "1 different ones"),
        ([], "at least one"),
    ]:
        with pytest.raises(ValueError, match=message):
            Anova.of(base, X[:, :3], subsets=subsets)
    with pytest.raises(ValueError, match="finite and >= 0"):
        Anova.of(base, X[:, :3], subsets=[(0,)], variances=[-1.0])
    with pytest.raises(TypeError, match="must be a Product"):
        Anova("gaussian", [(0,)], [1.0], kernel.marginals)  # type: ignore[arg-type]


def test_copies_and_states_are_the_same_kernel() -> None:
    X = rows()
    kernel = mixed(X)
    model = clone(NystromFeatures(10, kernel=kernel, random_state=0)).fit(X)
    for other in (
        copy.deepcopy(kernel),
        pickle.loads(pickle.dumps(kernel)),
        Anova.from_state(kernel.get_state()),
        model.kernel_,
    ):
        np.testing.assert_array_equal(other(X), kernel(X))
    state = kernel.get_state()
    for change in (
        {"subsets": ((0,), (9,))},
        {"subsets": ((0,), (-1,))},
        {"variances": (1.0, -1.0)},
        {"variances": (1.0, float("nan"))},
        {"base": Product([1.0, 1.0])},
    ):
        with pytest.raises(ValueError, match=r"."):
            Anova.from_state(state | change)


def test_trees_walk_through_prefixes() -> None:
    subsets = sorted([(0,), (0, 1, 2), (0, 2), (3, 5)])
    tree = SubsetTree.of(subsets)
    assert tree.nodes == [(0,), (0, 1), (0, 1, 2), (0, 2), (3,), (3, 5)]
    assert [tree.nodes[place] for place in tree.places] == subsets
    factors = np.random.default_rng(0).normal(size=(len(tree.used), 3, 300))
    weights = np.arange(1.0, 7.0)
    out = np.ones((3, 300))
    add_subsets(factors, tree.depths, tree.columns, weights, out)
    places = {int(column): place for place, column in enumerate(tree.used)}
    expected = 1.0 + sum(
        w * np.prod([factors[places[i]] for i in node], axis=0)
        for w, node in zip(weights, tree.nodes, strict=True)
    )
    np.testing.assert_allclose(out, expected, rtol=1e-12)


# --- learning ------------------------------------------------------------------------------------


def planted(n: int = 400, d: int = 5, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    y = np.sin(3.0 * X[:, 0]) + 2.0 * X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=n)
    return X, y


@pytest.mark.parametrize("outputs", [1, 2])
def test_steps_are_those_of_dense_matrices_and_the_evidence_never_falls(outputs: int) -> None:
    X, y = planted(150, 3)
    target = np.stack([y, y**2 - (y**2).mean()][:outputs], axis=1)
    target -= target.mean(axis=0)
    noise = 1.0 / np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    kernel = Anova.of(Product(1.0, "laplacian"), X)
    search = VarianceComponents(kernel, X, target, noise, 1)
    found = search.search(30, worth=0.0)
    assert len(found.evidence) > 10
    assert (np.diff(found.evidence) >= 0).all()
    # One state by dense matrices.
    at = np.log(np.append(np.linspace(0.1, 0.6, 6), 0.3))
    state = search._at(at)
    parts = [replace(kernel, subsets=[s], variances=[1.0])(X) for s in kernel.subsets]
    parts.append(np.diag(noise))
    covariance = sum(v * C for v, C in zip(np.exp(at), parts, strict=True))
    inverse = np.linalg.inv(covariance)
    constant = inverse.sum()
    inverse -= np.outer(inverse.sum(axis=1), inverse.sum(axis=1)) / constant  # an intercept is free
    dual = inverse @ target
    steps = [np.vdot(dual, C @ dual) / np.vdot(inverse, C) / outputs for C in parts]
    np.testing.assert_allclose(np.exp(state.step), steps, rtol=1e-8)
    determinants = np.linalg.slogdet(covariance)[1] + np.log(constant)
    evidence = outputs * determinants + np.vdot(dual, target)
    assert state.evidence == pytest.approx(-0.5 * evidence / target.size)
    # The monotone step alone never falls either.
    again = search._at(state.at + 0.5 * state.step)
    assert again.evidence >= state.evidence


def test_steps_together_keep_proportions_and_never_lower_the_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = planted(150, 4)
    target = (y - y.mean())[:, None] / y.std()
    kernel = Anova.of(Product(1.0, "laplacian"), X)
    search = VarianceComponents(kernel, X, target, np.ones(len(X)), 1)
    found = search.search(20, worth=0.0, together=True)
    mains, pairs = found.variances[:4], found.variances[4:]
    np.testing.assert_allclose(mains, mains[0])
    np.testing.assert_allclose(pairs, pairs[0])
    assert (np.diff(found.evidence) >= 0).all()
    assert mains[0] / pairs[0] != pytest.approx(10.0, rel=0.05)  # where it began
    # At the end no common factor of a size is better.
    at = np.log(np.append(found.variances, found.noise))
    for size in (slice(0, 4), slice(4, 10)):
        for change in (-0.2, 0.2):
            moved = at.copy()
            moved[size] += change
            assert search._at(moved).evidence < found.evidence[-1]
    # Factors that are kept from step to step are those that are computed anew.
    monkeypatch.setattr("kernelsieve.kernels.likelihood.components.KEPT_BYTES", 0)
    anew = VarianceComponents(kernel, X, target, np.ones(len(X)), 1)
    np.testing.assert_array_equal(anew.search(5).variances, search.search(5).variances)
    assert search.kept
    assert not anew.kept


@pytest.mark.parametrize("seed", [0, 1])
def test_a_threshold_in_two_columns_is_found_and_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(500, 5))
    y = 2.0 * ((X[:, 0] > 0) & (X[:, 1] > 0)) + np.sin(3.0 * X[:, 2]) + 0.1 * rng.normal(size=500)
    model = KernelRidgeCV(max_order=2, random_state=seed, n_jobs=1).fit(X, y)
    shares = {part.columns: part.share for part in explain(model).parts}
    planted = {("x0",), ("x1",), ("x0", "x1"), ("x2",)}
    assert min(shares[part] for part in planted) > 0.15
    assert max(share for part, share in shares.items() if part not in planted) < 0.02


def test_planted_subsets_are_found_for_any_number_of_threads() -> None:
    X, y = planted(300)
    found = learn(X, y, max_order=2, random_state=0, n_jobs=1)
    assert isinstance(found.kernel, Anova)
    order = np.argsort(found.kernel.variances)[::-1]
    assert {found.kernel.subsets[n] for n in order[:2]} == {(0,), (1, 2)}
    assert sum(found.kernel.variances) == pytest.approx(1.0)
    assert found.relevances[3:].sum() < 0.05
    assert found.alpha > 0
    again = learn(X, y, max_order=2, random_state=0, n_jobs=2)
    assert again.kernel.variances == found.kernel.variances
    assert again.alpha == found.alpha
    with pytest.raises(ValueError, match="max_order"):
        learn(X, y, max_order=0)


def test_weights_count_rows() -> None:
    X, y = planted(300)
    wrong = y.copy()
    wrong[::3] = 100.0
    weights = np.ones(len(y))
    weights[::3] = 0.0
    options: dict[str, Any] = {"max_order": 2, "random_state": 0, "families": ["gaussian"]}
    found = learn(X, wrong, sample_weight=weights, **options).kernel
    order = np.argsort(found.variances)[::-1]
    assert {found.subsets[n] for n in order[:2]} == {(0,), (1, 2)}


def test_subsets_are_those_of_the_strongest_columns() -> None:
    rates = np.linspace(0.1, 1.0, 40)
    subsets = subsets_to_try(Product(rates, "laplacian"), 40, 3)
    by_order = {k: [s for s in subsets if len(s) == k] for k in (1, 2, 3)}
    assert len(by_order[1]) == 40
    for k in (2, 3):
        assert MOST_SUBSETS / 2 < len(by_order[k]) <= MOST_SUBSETS
        strongest = {i for s in by_order[k] for i in s}
        assert min(strongest) == 40 - len(strongest)
    triple = np.random.default_rng(0).uniform(-1, 1, size=(500, 4))
    source = ArraySource(triple, triple[:, 0] * triple[:, 1] * triple[:, 2])
    learner = Learner.on(source, 500, seed=0)
    fit = learner.screen(["gaussian"])[0]
    kernel = learn_parts(learner, fit, 1.0, 3).kernel
    assert kernel.subsets[int(np.argmax(kernel.variances))] == (0, 1, 2)


@pytest.mark.parametrize("outputs", [1, 2])
def test_judges_solve_for_the_intercept(outputs: int) -> None:
    """As the ridge does, whose parts have mean 0 and cannot be a constant."""
    X, y = planted(120, 3)
    target = np.stack([y + 5.0, y**2][:outputs], axis=1)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, len(X))
    kernel = Anova.of(Product(1.0, "laplacian"), X)
    outside = np.arange(len(X)) % 4 == 0
    block = ArraySource(X, target, weights).take(np.arange(len(X)))

    def residuals(known: Any, apart: Any) -> Any:
        features = NystromFeatures(len(known), kernel=kernel)
        model = KernelRidge(features, alpha=0.3, refine=True)
        model.fit(X[known], target[known], weights[known])
        return target[apart] - model.predict(X[apart]).reshape(len(apart), -1)

    for judge in (SetApart(block, outside, True), LeftOut(block, outside, True)):
        judge.free_intercept = True
        found = judge.ridges(kernel)(np.array([0.3]))[0]
        numbers = np.arange(len(X))
        if isinstance(judge, SetApart):
            expected = residuals(numbers[~outside], numbers[outside])
        else:
            expected = np.concatenate(
                [residuals(np.delete(numbers, i), np.array([i])) for i in numbers[outside][:4]]
            )
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-6)


# --- models --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs() -> tuple[KernelRidgeCV, Any, Any]:
    X, y = planted(1200)
    return KernelRidgeCV(max_order=2, random_state=0).fit(X[:1000], y[:1000]), X, y


def test_a_model_of_pairs_is_accurate_and_readable(pairs: Any) -> None:
    model, X, y = pairs
    error = np.sqrt(np.mean((model.predict(X[1000:]) - y[1000:]) ** 2))
    assert error < 0.25  # the noise is 0.2
    assert model.best_rmse_ == pytest.approx(error, rel=0.3)
    found = explain(model)
    assert [part.name for part in found.parts[:2]] in (["x1 × x2", "x0"], ["x0", "x1 × x2"])
    assert all(part.order <= 2 for part in found.parts)
    assert max(part.share for part in found.parts[2:]) < 0.02
    assert abs(found.order_shares[2]) == 0.0
    curve = found.effect("x0")
    assert curve.deviation is not None
    expected = np.sin(3.0 * curve.values[0])
    assert np.abs(curve.effect - (expected - expected.mean())).max() < 0.2
    parts = sum(found.part_values(part.columns, X[:20]) for part in found.parts)
    np.testing.assert_allclose(parts + found.constant, model.predict(X[:20]), atol=1e-8)
    values = found.shapley(X[:20])
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base, model.predict(X[:20]))
    assert "x1 × x2" in found.text()


def test_the_same_bits_with_any_threads() -> None:
    X, y = planted(150, 4)
    one, two = (
        KernelRidgeCV(max_order=2, random_state=0, n_jobs=n).fit(X, y).predict(X) for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_one_row_at_a_time(pairs: Any) -> None:
    model, X, _ = pairs
    predict = model.predictor()
    np.testing.assert_allclose([predict(x) for x in X[:5]], model.predict(X[:5]), rtol=1e-6)


def test_more_rows_than_an_exact_solve_takes() -> None:
    sizes = replace(
        parts_choice.OPTIONS, exact_rows=500, landmarks=150, judged_landmarks=100, full_work=0.0
    )
    X, y = planted(1000)
    plan = chosen(X, y, sizes, max_order=2)
    assert (plan.solver.kind, plan.linear) == ("landmarks", False)
    model = KernelRidgeCV(plan=plan, random_state=0).fit(X, y)
    assert not hasattr(model.model_, "dual_coef_")
    assert isinstance(model.features_, NystromFeatures)
    assert isinstance(model.kernel_, Anova)
    new, clean = planted(500, seed=5)
    assert np.sqrt(np.mean((model.predict(new) - clean) ** 2)) < 0.27
    found = explain(model)
    total = sum(found.part_values(part.columns, new[:9]) for part in found.parts)
    np.testing.assert_allclose(total + found.constant, model.predict(new[:9]), atol=1e-8)


def test_classes() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(500, 3))
    for labels in (
        np.where(X[:, 0] * X[:, 1] > 0, "a", "b"),
        np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] * X[:, 2] > 0)],
    ):
        model = KernelRidgeClassifier(max_order=2, random_state=0).fit(X[:400], labels[:400])
        assert isinstance(model.kernel_, Anova)
        assert model.score(X[400:], labels[400:]) > 0.85
        values = explain(model).shapley(X[:5])
        total = values.values.sum(axis=1) + values.base
        chances = model.predict_proba(X[:5])
        odds = np.log(chances) - np.log(1.0 - chances)  # of one class against the others
        if len(model.classes_) == 2:
            np.testing.assert_allclose(total, odds[:, 1], rtol=1e-6, atol=1e-6)
            continue
        logs = np.log(chances)  # of one class against the mean of the others
        means = (logs.sum(axis=1, keepdims=True) - logs) / (len(model.classes_) - 1)
        np.testing.assert_allclose(total, logs - means, rtol=1e-6, atol=1e-6)


def test_a_limit_is_for_learned_kernels() -> None:
    X, y = planted(60)
    for model in (
        KernelRidgeCV(NystromFeatures(10), max_order=2),
        KernelRidgeCV(gammas=[0.1], max_order=2),
        KernelRidgeCV(cv=3, max_order=2),
        KernelRidgeClassifier(NystromFeatures(10), max_order=2),
    ):
        with pytest.raises(ValueError, match="max_order=2 is for a learned kernel"):
            model.fit(X, (y > 0).astype(float))
    with pytest.raises(ValueError, match="max_order=2 needs dense rows"):
        KernelRidgeCV(max_order=2).fit(sp.csr_array(X), y)
    with pytest.raises(ValueError, match="max_order"):
        KernelRidgeCV(max_order=0).fit(X, y)


def test_landmarks_out_of_core() -> None:
    X, y = planted(300)
    kernel = Anova.of(Product(1.0, "laplacian"), X)
    features = NystromFeatures(60, kernel=kernel, random_state=0)
    whole = KernelRidge(features, alpha=0.1).fit(X, y)
    blocks = BlockSource([(X[k : k + 100], y[k : k + 100]) for k in range(0, 300, 100)])
    streamed = KernelRidge(features, alpha=0.1).fit(blocks)
    np.testing.assert_allclose(streamed.predict(X), whole.predict(X), atol=1e-6)
    for i, j in itertools.combinations(range(5), 2):
        assert explain(whole).part_values([f"x{i}", f"x{j}"], X[:3]).shape == (3,)


@pytest.mark.parametrize("free_intercept", [False, True])
def test_one_factor_judges_all_ridges(free_intercept: bool) -> None:
    X, y = planted(200, 3)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, len(X))
    block = ArraySource(X, np.stack([y, y**2], axis=1), weights).take(np.arange(len(X)))
    outside = np.arange(len(X)) % 3 == 0
    judge = SetApart(block, outside, True, 1, free_intercept)
    kernel = Anova.of(Product(0.5, "laplacian"), X)
    together = judge.ridges(kernel)
    for alphas in ([0.01, 0.02, 0.04, 0.08, 0.16], [0.32], [1e-9, 1e-4, 1e3]):
        expected = [judge.ridges(kernel)(np.array([alpha]))[0] for alpha in alphas]
        np.testing.assert_allclose(together(np.array(alphas)), expected, rtol=1e-5, atol=1e-6)
    other = Anova.of(Product(2.0, "laplacian"), X)  # a judge keeps nothing of another kernel
    fresh = SetApart(block, outside, True, 1, free_intercept)
    found, expected = (one.ridges(other)(np.array([0.1]))[0] for one in (judge, fresh))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
