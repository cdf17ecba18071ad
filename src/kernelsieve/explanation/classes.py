"""From the scores of a classifier to log-odds of its classes, and to probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassScale:
    """How scores of classes become log-odds and probabilities.

    Scores have no meaning by themselves: the same number added to all of them changes nothing. So a
    class is explained by its margin, the log of its probability over the geometric mean of those of
    the other classes; of two classes, by the log-odds of the second.

    Attributes
    ----------
    labels : list
        Of the classes, in the order of the scores.
    sharpness : float
        Factor of the scores inside the softmax of the model.
    predict : callable
        From rows of the model to probabilities (n, n_classes).
    chosen : int or None
        The class that is explained; None explains all.
    """

    labels: list[Any]
    sharpness: float
    predict: Any
    chosen: int | None = None

    @classmethod
    def of(cls, model: Any, labels: Any) -> ClassScale | None:
        """That of a fitted model; None for a regression."""
        if labels is None:
            return None
        return cls(np.asarray(labels).tolist(), float(model.sharpness_), model.predict_proba)

    @property
    def names(self) -> list[str]:
        """The labels as texts."""
        return [f"{one:g}" if isinstance(one, float) else str(one) for one in self.labels]

    @property
    def explained(self) -> str:
        """The class that a single margin speaks for."""
        return self.names[self.explained_place]

    @property
    def explained_place(self) -> int:
        """Its number."""
        return 1 if self.chosen is None else self.chosen

    def place(self, label: Any) -> int:
        """The number of a class."""
        return self.labels.index(label)

    @property
    def margins(self) -> Array:
        """What scores are multiplied by: shape (n_scores, n_margins)."""
        count = len(self.labels)
        if count == 2:  # a single score s, with probabilities softmax(-s, s)
            return np.array([[2.0 * self.sharpness]])
        return self.sharpness * (count * np.eye(count) - 1.0) / (count - 1.0)

    def probabilities(self, margins: Array) -> Array | None:
        """Of all classes, for margins of shape (..., n_margins); None if some are not known."""
        count = len(self.labels)
        if count == 2:
            chosen = expit(margins[..., 0])
            second = 1.0 - chosen if self.chosen == 0 else chosen
            return np.stack([1.0 - second, second], axis=-1)
        if self.chosen is not None:
            return None
        return softmax(margins * (count - 1.0) / count, axis=-1)
