"""Drawn digits: their form, their ink, and that no two are alike."""

from __future__ import annotations

import numpy as np
import pytest

from data.drawing import draw


def _draw(labels, seed=3):
    return draw(np.asarray(labels), np.random.default_rng(seed))


def test_form():
    """One uint8 image of 28 x 28 for each label, across the borders of chunks."""
    images = _draw(np.arange(1203) % 10)
    assert images.shape == (1203, 28, 28) and images.dtype == np.uint8


def test_seed_decides_the_images():
    """The same seed gives the same images, another one others."""
    first, again, other = (_draw([1, 2, 3], seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_no_two_images_are_alike():
    """A thousand sevens are a thousand different images."""
    assert len(np.unique(_draw(np.full(1000, 7)).reshape(1000, -1), axis=0)) == 1000


@pytest.mark.parametrize("digit", range(10))
def test_every_image_is_of_ink_on_paper(digit):
    """Some strokes are bright, most of the paper is black, and the corners are free."""
    images = _draw(np.full(500, digit))
    assert (images.reshape(500, -1).max(axis=1) > 100).all()
    part = (images > 60).mean(axis=(1, 2))
    assert part.min() > 0.01 and part.max() < 0.5
    assert (images[:, [0, 0, -1, -1], [0, -1, 0, -1]] == 0).all()


def test_labels_decide_the_digits():
    """Each image is nearest to the mean of its digit, much more often than by chance."""
    labels = np.arange(3000) % 10
    images = _draw(labels).reshape(3000, -1) / 255
    means = np.stack([images[:2000][labels[:2000] == digit].mean(axis=0) for digit in range(10)])
    distances = ((images[2000:, None] - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == labels[2000:]).mean() > 0.5
