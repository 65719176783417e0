"""Splines of tf.contrib.image, beside numpy; TensorFlow 1.15.5's own tests of both functions pass, too."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import splines
from tests.tensorflow_mode import tf

POINTS = np.array([[[0, 0], [0, 3], [3, 0], [3, 3], [1, 2]]], np.float64)
VALUES = np.array([[[1.0], [2], [0], [4], [-1]]])


def spline_of(points, values, queries, order, weight):
    """Returns the interpolant's values at queries [m, 2]."""
    def phi(first, second):
        distance = np.maximum(np.linalg.norm(first[:, np.newaxis] - second[np.newaxis], axis=2), 1e-5)
        return distance ** order * (np.log(distance) if order % 2 == 0 else 1)

    def line(places):
        return np.concatenate([places, np.ones([len(places), 1])], 1)
    left = np.block([[phi(points, points) + weight * np.eye(len(points)), line(points)],
                     [line(points).T, np.zeros([3, 3])]])
    weights = np.linalg.solve(left, np.concatenate([values, np.zeros([3, 1])]))
    return np.concatenate([phi(queries, points), line(queries)], 1) @ weights


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_a_spline_is_that_of_numpy(order, weight):
    """Through the points without a weight; the batch and the number of points need not be known."""
    queries = np.random.default_rng(0).uniform(-1, 4, (1, 7, 2))
    with tf.Graph().as_default(), tf.Session() as session:
        points = tf.placeholder(tf.float64, [None, None, 2])
        result = splines.interpolate_spline(points, VALUES, queries, order, weight)
        known = spline_of(POINTS[0], VALUES[0], queries[0], order, weight)
        np.testing.assert_allclose(session.run(result, {points: POINTS})[0], known, atol=1e-6)
        at_points = session.run(splines.interpolate_spline(POINTS, VALUES, POINTS, order, weight))
    assert np.allclose(at_points, VALUES, atol=1e-6) == (weight == 0)


def test_a_warp_moves_a_point_and_leaves_the_edges():
    """A pixel comes where its destination is; gradients are finite."""
    image = np.zeros([2, 9, 9, 1], np.float32)
    image[:, 4, 3] = 1
    source, target = (np.repeat(np.array([[place]], np.float32), 2, 0) for place in ([4.0, 3.0], [5.0, 5.0]))
    with tf.Graph().as_default(), tf.Session() as session:
        places = tf.constant(target)
        warped, flow = splines.sparse_image_warp(image, source, places, num_boundary_points=2)
        warped, flow, slope = session.run([warped, flow, tf.gradients(tf.reduce_sum(warped ** 2), places)[0]])
    assert flow.shape == (2, 9, 9, 2) and np.isfinite(slope).all()
    np.testing.assert_allclose(warped[:, 5, 5, 0], 1, atol=1e-4)
    np.testing.assert_allclose(flow[:, 5, 5], [[1, 2], [1, 2]], atol=1e-4)
    corners = flow[:, ::4, ::4].reshape(2, 9, 2)[:, [0, 1, 2, 3, 5, 6, 7, 8]]  # and the middles of the edges
    np.testing.assert_allclose(corners, 0, atol=1e-3)
