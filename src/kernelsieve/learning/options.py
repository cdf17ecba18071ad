"""The sizes and thresholds of the choice of a model: all of them trade time for accuracy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LearnOptions:
    """What a default fit looks at before it decides.

    Attributes
    ----------
    learn_rows : int
        Rows whose likelihood the rates come from. At most three quarters of all rows.
    exact_rows : int
        Up to so many rows the ridge is solved for the exact kernel by one Cholesky factor.
    landmarks : int
        Features of the ridge of more rows, where the exact kernel does not pay.
    left_out_rows : int
        Up to so many rows kernels are compared by leave-one-out; beyond, on rows set apart.
    apart_rows, known_rows : int
        Rows set apart, and rows that they are predicted from, while kernels are compared.
    left_out_at_last : int
        If no more rows have chosen, they have the last word on alpha, by leave-one-out.
    final_rows : int
        Rows that they are predicted from when the width and alpha of the winner are settled.
    judged_rows, judged_landmarks : int
        The same where landmarks will be used.
    solver_rows : int
        Rows on which the exact kernel is compared with landmarks.
    full_work : float
        The largest `product_work` at which the exact kernel of all rows is an alternative to
        landmarks: about a second for each product.
    families : int
        How many go from the likelihood to the judge.
    equal : tuple of str
        Families whose kernel with equal rates takes part.
    step : float
        Between factors of the rates that are tried.
    narrowest, widest : float
        Factors beyond which the search does not go.
    linear : float
        The factor at which a smooth kernel with equal rates is almost linear.
    worth : float
        The relative gain below which the next factor is not tried: the width and alpha of rough
        kernels do almost the same, and the search should not walk on along that valley.
    spare_digits : float
        On landmarks a narrower kernel, or a larger alpha, may be worse by so much: features of an
        almost constant kernel, whose use is in its last digits, lose more in float32.
    alpha_step : float
        Between ridges that are tried.
    alpha_sides : int
        How many of them are tried at once on each side of the first.
    shares : tuple of float
        Of the mean rate in the rates of mixed kernels. They keep columns that the likelihood has
        dropped too early.
    tails : tuple of float
        Columns are dropped whose relevances sum up to so much.
    sparing : float
        A kernel of fewer columns may be worse by so much, relative to the best.
    handicap : float
        Learned rates may be worse by so much than equal ones, because more rows will follow.
    behind : float
        A kernel that begins so much worse than the best one is not followed to other widths.
    rivals : float
        A rough kernel beside a smooth one, or the other way round, is followed to more rows if it
        is not worse by more than this.
    foresight : float
        Up to so many doublings of the rows the errors of the two are foreseen.
    reported_rows : int
        Rows for the error that is reported. If a fifth of all rows are fewer, folds that
        repeat the choice are taken in place of them.
    folds : int
    linear_rows : int
        The fewest rows for each coefficient of a linear part.
    linear_worth : float
        The relative gain in squared error that a linear part must be worth.
    """

    learn_rows: int = 1000
    exact_rows: int = 6000
    landmarks: int = 2000
    left_out_rows: int = 1200
    apart_rows: int = 1000
    known_rows: int = 1500
    left_out_at_last: int = 2500
    final_rows: int = 2500
    judged_rows: int = 5000
    judged_landmarks: int = 1000
    solver_rows: int = 2500
    full_work: float = 1e10
    families: int = 2
    equal: tuple[str, ...] = ("laplacian", "gaussian")
    step: float = 2.0
    narrowest: float = 64.0
    widest: float = 1.0 / 64.0
    linear: float = 1.0 / 8.0
    worth: float = 0.005
    spare_digits: float = 0.002
    alpha_step: float = 4.0
    alpha_sides: int = 1
    shares: tuple[float, ...] = (0.2, 0.6)
    tails: tuple[float, ...] = (0.002, 0.01, 0.03, 0.1, 0.3)
    sparing: float = 0.003
    handicap: float = 0.03
    behind: float = 0.15
    rivals: float = 0.1
    foresight: float = 1.0
    reported_rows: int = 200
    folds: int = 4
    linear_rows: int = 10
    linear_worth: float = 0.01
