"""The shapes of the ten digits: strokes, and the distance of every point to the nearest stroke.

A glyph is a list of strokes, and a stroke a polyline [points, 2] of (x, y): x to the right, y down, the digit between
y = -1 and y = 1. `VARIANTS` has the variants of each digit:

    strokes --distance_map--> float32 [MAP_SIDE, MAP_SIDE] over [-EXTENT, EXTENT] squared
"""

from __future__ import annotations

import numpy as np

EXTENT = 1.7
MAP_SIDE = 120


def _line(*points: tuple[float, float]) -> np.ndarray:
    """A stroke with corners."""
    return np.array(points, np.float32)


def _curve(*points: tuple[float, float], pieces: int = 5) -> np.ndarray:
    """A smooth stroke through the points: a Catmull-Rom spline with `pieces` parts per span."""
    knots = np.array([points[0], *points, points[-1]], np.float32)
    before, start, stop, after = knots[:-3], knots[1:-2], knots[2:-1], knots[3:]
    t = (np.arange(pieces, dtype=np.float32) / pieces)[None, :, None]
    before, start, stop, after = (knot[:, None] for knot in (before, start, stop, after))
    # q(t) = (2 p1 + (p2-p0) t + (2 p0-5 p1+4 p2-p3) t^2 + (3 p1-p0-3 p2+p3) t^3) / 2
    spline = 2 * start + (stop - before) * t
    spline += (2 * before - 5 * start + 4 * stop - after) * t**2
    spline += (3 * start - before - 3 * stop + after) * t**3
    return np.concatenate([spline.reshape(-1, 2) / 2, knots[-1:]])


def _oval(x: float, y: float, radius_x: float, radius_y: float, turn: float = 1.0) -> np.ndarray:
    """An ellipse around (x, y), starting at its top; `turn` is the part that is drawn."""
    angles = np.linspace(0, 2 * np.pi * turn, 20, dtype=np.float32)
    return np.stack([x - radius_x * np.sin(angles), y - radius_y * np.cos(angles)], axis=1)


VARIANTS: tuple[tuple[list[np.ndarray], ...], ...] = (
    (  # 0: round, narrow, with the pen's start inside
        [_oval(0, 0, 0.62, 0.98)],
        [_oval(0, 0, 0.42, 1.0)],
        [_oval(0, 0.05, 0.55, 0.95, turn=0.97), _curve((0.02, -0.9), (0.25, -0.95), (0.4, -1.05))],
    ),
    (  # 1: a bar, with a flag, with a flag and a foot
        [_line((0, -1), (0, 1))],
        [_line((-0.4, -0.55), (0.05, -1), (0.05, 1))],
        [_line((-0.35, -0.6), (0, -1), (0, 0.97)), _line((-0.42, 0.97), (0.42, 0.97))],
    ),
    (  # 2: with a straight foot, with a loop, with a swinging foot
        [
            _curve((-0.5, -0.55), (-0.2, -0.93), (0.25, -0.93), (0.47, -0.55), (0.3, -0.05),
                   (-0.1, 0.45), (-0.55, 0.95)),
            _line((-0.55, 0.95), (0.6, 0.95)),
        ],
        [_curve((-0.45, -0.6), (-0.1, -0.97), (0.35, -0.85), (0.42, -0.4), (0.1, 0.3), (-0.3, 0.85),
                (-0.58, 0.85), (-0.5, 0.58), (-0.2, 0.6), (0.2, 0.9), (0.65, 0.8))],
        [_curve((-0.5, -0.8), (0.0, -1), (0.45, -0.7), (0.35, -0.2), (-0.15, 0.35), (-0.5, 0.85)),
         _curve((-0.5, 0.85), (-0.1, 0.75), (0.25, 0.95), (0.65, 0.9))],
    ),
    (  # 3: round, flat on top, with a deep waist
        [_curve((-0.5, -0.75), (-0.1, -1), (0.38, -0.78), (0.33, -0.3), (-0.12, -0.06)),
         _curve((-0.12, -0.06), (0.4, 0.12), (0.5, 0.6), (0.08, 1), (-0.55, 0.75))],
        [_line((-0.5, -0.95), (0.45, -0.95), (-0.08, -0.2)),
         _curve((-0.08, -0.2), (0.4, -0.02), (0.5, 0.5), (0.1, 0.98), (-0.55, 0.8))],
        [_curve((-0.45, -0.9), (0.1, -0.98), (0.42, -0.62), (0.2, -0.2), (-0.25, 0), (0.3, 0.15),
                (0.48, 0.6), (0.1, 0.98), (-0.5, 0.9))],
    ),
    (  # 4: open, closed, bowl
        [_line((-0.3, -0.95), (-0.5, 0.15), (0.6, 0.15)), _line((0.28, -0.6), (0.2, 1))],
        [_line((0.22, 1), (0.22, -0.98), (-0.58, 0.3), (0.6, 0.3))],
        [_curve((-0.45, -0.9), (-0.5, -0.25), (-0.2, 0.05), (0.4, -0.05)),
         _line((0.45, -0.95), (0.35, 1))],
    ),
    (  # 5: with a square shoulder, in one swing, with a flat roof and big belly
        [_line((0.5, -0.95), (-0.35, -0.95), (-0.42, -0.15)),
         _curve((-0.42, -0.15), (0.1, -0.3), (0.5, 0.12), (0.4, 0.72), (-0.05, 1), (-0.55, 0.8))],
        [_curve((0.5, -0.9), (0.0, -0.95), (-0.4, -0.6), (-0.2, -0.15), (0.3, 0.05), (0.45, 0.5),
                (0.1, 0.97), (-0.5, 0.9))],
        [_line((-0.3, -0.85), (-0.45, -0.05)), _line((-0.3, -0.85), (0.6, -0.95)),
         _curve((-0.45, -0.05), (0.05, -0.15), (0.45, 0.25), (0.25, 0.85), (-0.45, 0.95))],
    ),
    (  # 6: round, with a straight back, with a wide belly
        [_curve((0.4, -0.95), (-0.1, -0.7), (-0.48, -0.05), (-0.45, 0.6), (0, 0.99), (0.45, 0.7),
                (0.42, 0.25), (0.05, 0.02), (-0.42, 0.35))],
        [_curve((0.1, -1), (-0.25, -0.3), (-0.4, 0.4), (-0.2, 0.93), (0.2, 0.93), (0.35, 0.55),
                (0.1, 0.25), (-0.36, 0.5))],
        [_curve((0.25, -0.98), (-0.25, -0.5), (-0.55, 0.2), (-0.4, 0.85), (0.15, 0.98),
                (0.58, 0.6), (0.4, 0.15), (-0.05, 0.1), (-0.5, 0.5))],
    ),
    (  # 7: plain, barred, with a serif and a curved leg
        [_line((-0.52, -0.9), (0.5, -0.9), (-0.15, 1))],
        [_line((-0.5, -0.92), (0.5, -0.92), (-0.1, 1)), _line((-0.3, 0.05), (0.5, 0.0))],
        [_line((-0.5, -0.6), (-0.47, -0.9), (0.45, -0.95)),
         _curve((0.45, -0.95), (0.2, -0.3), (0.02, 0.3), (0.0, 1))],
    ),
    (  # 8: two rings, in one stroke, with an open top
        [_oval(0, -0.5, 0.38, 0.48), _oval(0, 0.48, 0.48, 0.5)],
        [_curve((0.4, -0.75), (0.05, -1), (-0.38, -0.7), (-0.1, -0.15), (0.4, 0.35), (0.3, 0.9),
                (-0.15, 0.97), (-0.42, 0.55), (-0.05, 0.05), (0.35, -0.4), (0.4, -0.75))],
        [_curve((0.5, -0.95), (0.0, -0.95), (-0.35, -0.6), (0.0, -0.1), (0.38, 0.4), (0.15, 0.95),
                (-0.28, 0.9), (-0.3, 0.4), (0.1, -0.05), (0.5, -0.85))],
    ),
    (  # 9: with a straight leg, with a curved tail, with a small ring
        [_oval(0, -0.5, 0.42, 0.48), _line((0.42, -0.55), (0.35, 1))],
        [_oval(-0.03, -0.48, 0.42, 0.48),
         _curve((0.4, -0.6), (0.45, 0.1), (0.3, 0.75), (-0.05, 0.98), (-0.45, 0.8))],
        [_curve((0.38, -0.75), (0, -0.98), (-0.4, -0.6), (-0.2, -0.2), (0.2, -0.3), (0.38, -0.75)),
         _curve((0.38, -0.75), (0.25, 0.1), (0.05, 1))],
    ),
)


def distance_map(strokes: list[np.ndarray]) -> np.ndarray:
    """Returns the distance from every point of the grid to the nearest stroke.

    Returns:
        float32 [MAP_SIDE, MAP_SIDE], row by row from y = -EXTENT, in the strokes' own units.
    """
    axis = np.linspace(-EXTENT, EXTENT, MAP_SIDE, dtype=np.float32)
    starts = np.concatenate([stroke[:-1] for stroke in strokes])
    spans = np.concatenate([np.diff(stroke, axis=0) for stroke in strokes])
    nearest = np.full((MAP_SIDE, MAP_SIDE), np.inf, np.float32)
    for (x, y), (dx, dy) in zip(starts, spans):
        across, down = axis[None, :] - x, axis[:, None] - y
        # the foot of the perpendicular, clamped to the segment
        along = np.clip((across * dx + down * dy) / (dx * dx + dy * dy), 0, 1)
        np.minimum(nearest, (across - along * dx) ** 2 + (down - along * dy) ** 2, out=nearest)
    return np.sqrt(nearest)
