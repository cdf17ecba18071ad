"""
The same model on Dask
======================

The estimators take Dask arrays and data frames as they take arrays. A fit adds up small
summaries of chunks in a tree; which features are chosen depends on the seed, not on chunks or
workers. Here a table of 250,000 rows that is never in memory as a whole.

This example needs ``pip install 'kernelsieve[dask]'``. It runs on threads; with a
``distributed.Client`` the same lines run on a cluster.
"""

from time import perf_counter

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

from kernelsieve import AdaptiveFeatures, KernelRidge

n_columns = 10


def make(n_rows, chunk_rows, seed=0):
    """Friedman's function of uniform columns, made chunk by chunk when it is asked for."""
    X = da.random.default_rng(seed).uniform(-1, 1, (n_rows, n_columns), chunks=(50_000, n_columns))
    noise = da.random.default_rng(seed + 1).normal(size=n_rows, chunks=50_000)
    x = (X.T + 1) / 2
    y = 10 * da.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4] + noise
    return X.rechunk((chunk_rows, n_columns)), y.rechunk(chunk_rows)


# %%
# The same rows in chunks of different sizes, and as arrays in memory: the same features, and
# predictions that differ by rounding.

X_new, y_new = (part.compute() for part in make(5_000, 5_000, seed=100))
features = AdaptiveFeatures(300, gamma=0.1, random_state=0)
X, y = make(50_000, 25_000)
in_memory = KernelRidge(features, alpha=1.0).fit(X.compute(), y.compute())
reference = in_memory.predict(X_new)
for chunk_rows in (10_000, 50_000):
    X, y = make(50_000, chunk_rows)
    model = KernelRidge(features, alpha=1.0).fit(X, y)
    same = model.features_.get_feature_names_out().tolist() == (
        in_memory.features_.get_feature_names_out().tolist()
    )
    difference = np.abs(model.predict(X_new) - reference).max()
    print(f"chunks of {chunk_rows:,}: same features {same}, largest difference {difference:.1e}")

# %%
# More rows, better predictions, in a time that grows with them and a memory that does not:

rows = [2_000, 10_000, 50_000, 250_000]
errors, seconds = [], []
for n in rows:
    X, y = make(n, min(n, 50_000))
    start = perf_counter()
    fitted = KernelRidge(features, alpha=0.01).fit(X, y)
    seconds.append(perf_counter() - start)
    errors.append(np.sqrt(np.mean((fitted.predict(X_new) - y_new) ** 2)))

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained")
left.semilogx(rows, errors, "o-", color="#0072B2", label="300 features")
left.axhline(1, color="#555555", ls=":", label="noise: nothing can do better")
left.set(ylabel="RMSE on new rows", title="More rows, better predictions")
left.legend(frameon=False)
right.loglog(rows, seconds, "o-", color="#0072B2", label="fit, making the rows included")
slope = [seconds[-1] * n / rows[-1] for n in rows]
right.loglog(rows, slope, color="#555555", ls="--", lw=1, label="in proportion to the rows")
right.set(ylabel="seconds", title="Time to fit: at first that of choosing")
right.legend(frameon=False)
for ax in (left, right):
    ax.set_xlabel("rows, in chunks of at most 50,000")
plt.show()
