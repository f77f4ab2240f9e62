"""How good generated digits are, by a classifier that was trained on half of the real ones."""

import functools
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

HALF = 898


class Quality(NamedTuple):
    """What the classifier says of some images.

    Attributes:
        distance: The Fréchet distance to the other half of the real digits, in the values of the
            classifier's hidden layer; 0 is the best. That between the halves is 0.14.
        confident: The share that it takes for one of the ten digits with 80 % or more.
        rarest: The share of the digit that is the rarest among these; 0 if one is missing.
    """

    distance: float
    confident: float
    rarest: float

    def __str__(self) -> str:
        return (
            f"distance to real digits {self.distance:.2f}; {self.confident:.0%} clearly a digit, "
            f"the rarest of the ten {self.rarest:.1%}"
        )


def judge(images: np.ndarray) -> Quality:
    """Judge (n, 8, 8) images from 0 to 1."""
    pixels = np.asarray(images, dtype="float64").reshape(len(images), 64)
    classifier, held_out = _trained()
    chances = classifier.predict_proba(pixels)
    is_clear = chances.max(axis=1) >= 0.8
    counts = np.bincount(chances.argmax(axis=1)[is_clear], minlength=10)
    distance = _frechet(_features(classifier, pixels), _features(classifier, held_out))
    return Quality(distance, float(is_clear.mean()), float(counts.min() / len(images)))


def real_digits() -> tuple[np.ndarray, np.ndarray]:
    """The half that the classifier has seen, and the other one: (n, 8, 8) images."""
    (seen, _), (held_out, _) = _halves()
    return seen.reshape(-1, 8, 8), held_out.reshape(-1, 8, 8)


def draw(images: np.ndarray, path: Path) -> None:
    """Save the first 100 as one picture, 20 a row."""
    import matplotlib.image

    framed = np.pad(images[:100], ((0, 0), (1, 1), (1, 1)))
    picture = np.vstack([np.hstack(framed[i : i + 20]) for i in range(0, 100, 20)])
    large = np.kron(1 - picture, np.ones((5, 5)))
    matplotlib.image.imsave(path, large, cmap="gray", vmin=0, vmax=1)


@functools.cache
def _trained() -> tuple[MLPClassifier, np.ndarray]:
    (x, y), (held_out, _) = _halves()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 150 passes are enough
        return MLPClassifier((64,), max_iter=150, random_state=0).fit(x, y), held_out


def _halves():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return tuple((x[half] / 16, y[half]) for half in (order[:HALF], order[HALF:]))


def _features(classifier: MLPClassifier, pixels: np.ndarray) -> np.ndarray:
    return np.maximum(0, pixels @ classifier.coefs_[0] + classifier.intercepts_[0])


def _frechet(one: np.ndarray, other: np.ndarray) -> float:
    """Between the normal distributions with the means and covariances of two sets of features."""
    covariances = np.cov(one.T), np.cov(other.T)
    roots = np.sqrt(np.maximum(np.linalg.eigvals(covariances[0] @ covariances[1]).real, 0))
    apart = np.sum((one.mean(axis=0) - other.mean(axis=0)) ** 2)
    return float(apart + sum(map(np.trace, covariances)) - 2 * roots.sum())
