"""
From a CSV to a served model in ten minutes
===========================================

A table in a file becomes a model, an answer with an interval, a file that runs without Python, and
a function that answers one row at a time. Everything here takes seconds.
"""

# %%
# The table
# ---------
# Rents of flats, with a town, a size and the day the contract began; some sizes are missing. In
# your own work this is a file that exists already.

import csv
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import kernelsieve
from kernelsieve import AdaptiveFeatures, ConformalRegressor, KernelRidge, TableModel

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())
towns = np.array(["Ulm", "Bonn", "Aue"])
town, size = rng.integers(0, 3, 800), rng.uniform(20, 150, 800).round(1)
age = rng.integers(0, 60, 800)
rent = size * np.array([11.0, 14.0, 7.0])[town] * (1.2 - 0.005 * age) + rng.normal(0, 40, 800)
with (folder / "flats.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["town", "size", "age", "rent"])
    for i in range(800):
        known = "" if rng.random() < 0.05 else size[i]
        writer.writerow([towns[town[i]], known, age[i], round(rent[i], 2)])

# %%
# A model of it
# -------------
# ``kernelsieve fit flats.csv --target rent -o rent.ks`` does the same on the command line.
# A fifth of the rows was set aside to judge the model.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the notice about missing sizes
    model = TableModel("rent", method="adaptive", n_components=200).fit(folder / "flats.csv")
print({name: round(value, 3) for name, value in model.facts_["scores"].items()})

# %%
# Its errors on the rows set aside give intervals: 90 % of new rents are inside.

new = {"town": ["Bonn", "Aue"], "size": [80.0, 80.0], "age": [5.0, 5.0]}
answer = model.predict_table(new, interval=0.9)
print({name: values.round(0).tolist() for name, values in answer.columns.items()})

# %%
# A file for servers
# ------------------
# ``kernelsieve export rent.ks rent.onnx`` writes the model with standard operators: onnxruntime
# runs it from C++, Java, JavaScript or Python, without kernelsieve.

kernelsieve.save(model, folder / "rent.ks")
print(f"rent.ks: {(folder / 'rent.ks').stat().st_size / 1e3:.0f} kB")
try:
    kernelsieve.export_onnx(model, folder / "rent.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "rent.onnx")
    inputs = {
        "town": np.array(["Bonn", "Aue"], dtype=object),
        "size": np.array([80.0, np.nan]),  # NaN where a number is missing
        "age": np.array([5.0, 5.0]),
    }
    print("onnxruntime:", session.run(None, inputs)[0].round(0).tolist())
except ImportError as error:  # pip install 'kernelsieve[onnx]' onnxruntime
    print(f"not exported here: {error}")

# %%
# One row at a time, from Python
# ------------------------------
# ``predictor()`` does everything that does not depend on the row once. It takes a dict, and threads
# may share it: this is what a web server calls.

predict = model.predictor()
flats = [{"town": towns[town[i]], "size": size[i], "age": age[i]} for i in range(300)]
times = []
for flat in flats:
    start = time.perf_counter()
    predict(flat)
    times.append(1e3 * (time.perf_counter() - start))
print(f"{predict({'town': 'Bonn', 'size': 80.0, 'age': 5.0}):.0f} in {np.median(times):.3f} ms")

# %%
# Intervals keep their promise on rows that nobody has seen. Here the rows are a matrix of numbers,
# which needs no table.

X = np.column_stack([np.eye(3)[town], (size - 85) / 37, age / 20.0 - 1.5])
ridge = KernelRidge(AdaptiveFeatures(200, random_state=0), alpha=0.1)
conformal = ConformalRegressor(ridge, random_state=0).fit(X[:600], rent[:600])
promised = np.linspace(0.1, 0.95, 18)
inside = []
for coverage in promised:
    low, high = conformal.predict_interval(X[600:], coverage)
    inside.append(np.mean((low <= rent[600:]) & (rent[600:] <= high)))

figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.plot([0, 1], [0, 1], color="0.8")
axes.plot(promised, inside, "o-")
axes.set(xlabel="coverage that was promised", ylabel="share of 200 new rents inside")
plt.show()
