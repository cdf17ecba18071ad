"""The numbers that Woodruff and Zandieh (ICML 2020) published, Table 1."""

from __future__ import annotations

from dataclasses import dataclass

CITATION = (
    "D. P. Woodruff and A. Zandieh, Near Input Sparsity Time Kernel Embeddings via Adaptive "
    "Sampling, ICML 2020"
)


@dataclass(frozen=True)
class Published:
    """A cell of the paper's table: test RMSE, total training time, number of features."""

    error: str
    time: str
    n_components: int


PUBLISHED = {
    ("wine", "fourier"): Published("0.736", "2 s", 5000),
    ("wine", "nystrom"): Published("0.730", "1.5 min", 2000),
    ("wine", "oblivious"): Published("0.732", "13 s", 1024),
    ("wine", "row-norm"): Published("0.727", "3 s", 5000),
    ("wine", "adaptive"): Published("0.723", "15 s", 400),
    ("insurance", "fourier"): Published("0.231", "1 s", 2000),
    ("insurance", "nystrom"): Published("0.231", "1.5 min", 2000),
    ("insurance", "oblivious"): Published("0.231", "20 s", 1024),
    ("insurance", "row-norm"): Published("0.231", "2 s", 1500),
    ("insurance", "adaptive"): Published("0.232", "6 s", 400),
    ("ct", "fourier"): Published("3.89", "1 min", 4000),
    ("ct", "nystrom"): Published("3.86", "8.5 min", 1500),
    ("ct", "oblivious"): Published("3.70", "3.5 min", 5120),
    ("ct", "row-norm"): Published("3.68", "1 min", 6000),
    ("ct", "adaptive"): Published("3.72", "8.5 min", 2800),
    ("forest", "fourier"): Published("1.00", "3 min", 1000),
    ("forest", "nystrom"): Published("1.03", "8 min", 500),
    ("forest", "oblivious"): Published("1.05", "2.5 min", 320),
    ("forest", "row-norm"): Published("1.08", "2.5 min", 1000),
    ("forest", "adaptive"): Published("1.05", "7 min", 500),
}  # fmt: skip
PAPER_DATASETS = tuple(dict.fromkeys(dataset for dataset, _ in PUBLISHED))
