"""Draws digits in many handwritings: the glyphs of `data.glyphs`, randomly bent, moved and inked.

    pixel (column, row) --shift, bend, turn, scale, shear--> point of a glyph --its distance map-->
        distance to the nearest stroke --pen's width, ink--> uint8

The warp maps image pixels back to the glyph, so drawing an image takes one look-up per pixel.
"""

from __future__ import annotations

import numpy as np

from . import glyphs

SIDE = 28

# Standard deviations (clipped at two of them) and ranges of the variation between images. They were chosen by eye, and
# so a linear classifier is right in about 9 of 10 cases.
_TURN = 0.15  # radians
_SHEAR = 0.17
_ZOOM, _ASPECT = 0.1, 0.1  # of the logarithm
_HALF_HEIGHT_PIXELS = 8.6
_SHIFT_PIXELS = 2.0
_BEND_PIXELS = 0.6
_BENDS_PER_PIXEL = (0.11, 0.29)  # radians
_PEN = (0.06, 0.19)  # half the width of a stroke, in units of half the height
_EDGE = (0.08, 0.14)  # width over which ink fades at a stroke's edge, in the same units
_INK = (0.7, 1.0)
_GRAIN = 0.06

_CHUNK = 500  # images drawn at once; a small number keeps the temporary arrays in the processor's cache


def draw(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws one image for each label, each one different.

    Args:
        labels: int [n], 0..9.
        rng: the source of the variation.

    Returns:
        uint8 [n, 28, 28], ink 255 on 0.
    """
    maps = np.stack([glyphs.distance_map(glyph) for ways in glyphs.VARIANTS for glyph in ways])
    chunks = [labels[start : start + _CHUNK] for start in range(0, len(labels), _CHUNK)]
    return np.concatenate([_draw_chunk(chunk, maps, _Dice(rng, len(chunk))) for chunk in chunks])


class _Dice:
    """Draws a number for each image of a chunk: float32 [n, 1, 1], ready to broadcast."""

    def __init__(self, rng: np.random.Generator, num_images: int) -> None:
        self.rng = rng
        self.shape = (num_images, 1, 1)

    def between(self, low: float, high: float) -> np.ndarray:
        return self.rng.uniform(low, high, self.shape).astype(np.float32)

    def around_zero(self, deviation: float) -> np.ndarray:
        draws = np.clip(self.rng.standard_normal(self.shape), -2, 2)
        return (deviation * draws).astype(np.float32)


def _draw_chunk(labels: np.ndarray, maps: np.ndarray, dice: _Dice) -> np.ndarray:
    num_ways = len(glyphs.VARIANTS[0])
    glyph = labels * num_ways + dice.rng.integers(num_ways, size=len(labels))
    x, y = _warp(*_bend(dice), dice)
    return _ink(_look_up(maps, glyph, x, y), dice)


def _bend(dice: _Dice) -> tuple[np.ndarray, np.ndarray]:
    """Returns pixel positions relative to the digit's middle, [n, 28, 28] each, displaced along smooth waves."""
    centred = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    column = centred[None, None, :] - dice.between(-_SHIFT_PIXELS, _SHIFT_PIXELS)
    row = centred[None, :, None] - dice.between(-_SHIFT_PIXELS, _SHIFT_PIXELS)
    # Each wave runs along one axis, so an image needs 28 sines, not 784.
    x = column + _wave(row, _BEND_PIXELS, dice) + _wave(column, _BEND_PIXELS / 2, dice)
    y = row + _wave(column, _BEND_PIXELS, dice) + _wave(row, _BEND_PIXELS / 2, dice)
    return x, y


def _wave(along: np.ndarray, deviation: float, dice: _Dice) -> np.ndarray:
    angle = dice.between(*_BENDS_PER_PIXEL) * along + dice.between(0, 2 * np.pi)
    return dice.around_zero(deviation) * np.sin(angle)


def _warp(x: np.ndarray, y: np.ndarray, dice: _Dice) -> tuple[np.ndarray, np.ndarray]:
    """Converts pixels to the glyph's units: turned, scaled along each axis, sheared."""
    turn, zoom, aspect = (dice.around_zero(d) for d in (_TURN, _ZOOM, _ASPECT))
    cos, sin = np.cos(turn), np.sin(turn)
    glyph_y = (cos * y - sin * x) / (_HALF_HEIGHT_PIXELS * np.exp(zoom - aspect))
    glyph_x = (cos * x + sin * y) / (_HALF_HEIGHT_PIXELS * np.exp(zoom + aspect))
    return glyph_x + dice.around_zero(_SHEAR) * glyph_y, glyph_y


def _look_up(maps: np.ndarray, glyph: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the distance of (x, y) to the glyph: the nearest cell of its map, or the one at the border."""
    side = glyphs.MAP_SIDE
    cells_per_unit = (side - 1) / (2 * glyphs.EXTENT)
    row, column = (
        np.clip((place + glyphs.EXTENT) * cells_per_unit + 0.5, 0, side - 1).astype(np.intp)
        for place in (y, x)
    )
    return maps.reshape(-1)[(glyph[:, None, None] * side + row) * side + column]


def _ink(distance: np.ndarray, dice: _Dice) -> np.ndarray:
    """Returns ink where a stroke is near: smoothstep over its edge, 3 t^2 - 2 t^3, with some grain."""
    t = np.clip((dice.between(*_PEN) - distance) / dice.between(*_EDGE) + 0.5, 0, 1)
    ink = t * t * (3 - 2 * t) * dice.between(*_INK)
    ink *= 1 + _GRAIN * dice.rng.standard_normal(ink.shape, dtype=np.float32)
    return (np.clip(ink, 0, 1) * 255 + 0.5).astype(np.uint8)
