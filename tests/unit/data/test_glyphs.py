"""The strokes of the digits and their distance maps."""

from __future__ import annotations

import numpy as np
import pytest

from data import glyphs

GLYPHS = [
    pytest.param(glyph, id=f"{digit}-{way}")
    for digit, ways in enumerate(glyphs.VARIANTS) for way, glyph in enumerate(ways)
]


def test_distance_to_a_bar():
    """Beside a bar the distance is across it, beyond its end it is to the end."""
    distance = glyphs.distance_map([np.array([[0, -1], [0, 1]], np.float32)])
    axis = np.linspace(-glyphs.EXTENT, glyphs.EXTENT, glyphs.MAP_SIDE)
    x, y = np.meshgrid(axis, axis)
    expected = np.hypot(x, np.maximum(np.abs(y) - 1, 0))
    np.testing.assert_allclose(distance, expected, atol=1e-5)
    assert distance.dtype == np.float32


@pytest.mark.parametrize("glyph", GLYPHS)
def test_distance_is_that_of_the_nearest_point(glyph):
    """The map agrees with the nearest of many points along the strokes."""
    part = np.linspace(0, 1, 50)[:, None, None]
    points = np.concatenate([
        (stroke[:-1] * (1 - part) + stroke[1:] * part).reshape(-1, 2) for stroke in glyph
    ])
    axis = np.linspace(-glyphs.EXTENT, glyphs.EXTENT, glyphs.MAP_SIDE)
    distance = glyphs.distance_map(glyph)
    for row, column in [(0, 0), (60, 60), (35, 70), (90, 50), (119, 20)]:
        expected = np.hypot(*(points - [axis[column], axis[row]]).T).min()
        assert distance[row, column] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("glyph", GLYPHS)
def test_glyphs_fill_their_box(glyph):
    """A digit is about two units high, and no wider than it is high."""
    points = np.concatenate(glyph)
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    assert -1.1 < top < -0.8 and 0.8 < bottom < 1.1
    assert left >= -0.75 and right <= 0.75


def test_ten_digits_with_as_many_ways_each():
    """`drawing` numbers the maps so, and picks a way for each digit alike."""
    assert len(glyphs.VARIANTS) == 10
    assert len({len(ways) for ways in glyphs.VARIANTS}) == 1
