"""Splines of tf.contrib.image: `interpolate_spline` between points, `sparse_image_warp` moves points of images.

The interpolant is f(x) = sum_i w_i phi(|x - c_i|) + v x + b with phi(r) = r^order, or r^order log r if the order is
even (https://en.wikipedia.org/wiki/Polyharmonic_spline).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.image_warps import dense_image_warp

_SMALLEST = 1e-10  # of a squared distance under a logarithm or a root, whose gradients are infinite at 0


def interpolate_spline(train_points: Any, train_values: Any, query_points: Any, order: int,
                       regularization_weight: float = 0.0, name: str = "interpolate_spline") -> tf.Tensor:
    """Returns the values of a spline through known points.

    Args:
      train_points: float [batch, n, d].
      train_values: float [batch, n, k].
      query_points: float [batch, m, d].
      order: of the spline; 2 is a thin plate.
      regularization_weight: above 0 the spline is smoother, and passes near the points only.
      name: of the operations.

    Returns:
      float [batch, m, k].
    """
    with tf.name_scope(name):
        points, values, queries = map(tf.convert_to_tensor, (train_points, train_values, query_points))
        bases = _bases(points, points, order)
        if regularization_weight > 0:
            bases += regularization_weight * tf.eye(tf.shape(points)[1], dtype=points.dtype)
        linear = _with_ones(points)
        corner = tf.zeros([tf.shape(points)[0], linear.shape[2].value, linear.shape[2].value], points.dtype)
        left = tf.concat([tf.concat([bases, linear], 2), tf.concat([tf.matrix_transpose(linear), corner], 2)], 1)
        none = tf.zeros([tf.shape(values)[0], linear.shape[2].value, values.shape[2].value], values.dtype)
        weights = tf.matrix_solve(left, tf.concat([values, none], 1))
        return tf.matmul(tf.concat([_bases(queries, points, order), _with_ones(queries)], 2), weights)


def _bases(places: tf.Tensor, centers: tf.Tensor, order: int) -> tf.Tensor:
    """Returns phi of the distances of places [batch, m, d] and centers [batch, n, d]: [batch, m, n]."""
    squares = tf.reduce_sum(tf.square(places[:, :, tf.newaxis] - centers[:, tf.newaxis]), 3)
    squares = tf.maximum(squares, _SMALLEST)
    powers = tf.pow(squares, order / 2)
    return 0.5 * powers * tf.log(squares) if order % 2 == 0 else powers


def _with_ones(points: tf.Tensor) -> tf.Tensor:
    return tf.concat([points, tf.ones_like(points[:, :, :1])], 2)


def sparse_image_warp(
    image: Any, source_control_point_locations: Any, dest_control_point_locations: Any, interpolation_order: int = 2,
    regularization_weight: float = 0.0, num_boundary_points: int = 0, name: str = "sparse_image_warp",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves points of images to other places, and what is between them by a spline.

    Args:
      image: float [batch, height, width, channels], of a known shape.
      source_control_point_locations: (row, column) of each point, float [batch, points, 2].
      dest_control_point_locations: where they come, of the same shape.
      interpolation_order: see `interpolate_spline`.
      regularization_weight: see there.
      num_boundary_points: how many points of each edge stay where they are; 1 for the corners.
      name: of the operations.

    Returns:
      The images, and by how much each pixel of them has moved: float [batch, height, width, 2].
    """
    with tf.name_scope(name):
        image, source, places = map(
            tf.convert_to_tensor, (image, source_control_point_locations, dest_control_point_locations))
        batch, height, width, _ = image.shape.as_list()
        flows = places - source
        if num_boundary_points > 0:
            edges = _edges(height, width, num_boundary_points)
            places = tf.concat([places, _for_each(edges, batch, places.dtype)], 1)
            flows = tf.concat([flows, _for_each(np.zeros_like(edges), batch, flows.dtype)], 1)
        pixels = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1).reshape(-1, 2)
        moved = interpolate_spline(
            places, flows, _for_each(pixels, batch, image.dtype), interpolation_order, regularization_weight)
        moved = tf.reshape(moved, [batch, height, width, 2])
        return dense_image_warp(image, moved), moved


def _edges(height: int, width: int, num_points: int) -> np.ndarray:
    """Returns the corners, and the points that divide each edge into `num_points` parts: [4 num_points, 2]."""
    rows, columns = (np.linspace(0, size - 1, num_points + 1) for size in (height, width))
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1)
    is_edge = np.zeros(grid.shape[:2], bool)
    is_edge[[0, -1]] = is_edge[:, [0, -1]] = True
    return grid[is_edge]


def _for_each(array: np.ndarray, batch: int, dtype: tf.DType) -> tf.Tensor:
    return tf.constant(np.repeat(array[np.newaxis], batch, 0), dtype)
