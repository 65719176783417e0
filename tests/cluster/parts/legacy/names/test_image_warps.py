"""tf.contrib.image, beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.legacy.names import image_warps
from tests.tensorflow_mode import tf

IMAGE = np.arange(12, dtype=np.float32).reshape(3, 4)


def evaluate(build):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(build())


def test_a_quarter_turn_is_that_of_numpy():
    """Counterclockwise, of images with 2, 3 and 4 axes; each of a batch by its own angle."""
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    for shape in ((3, 3), (3, 3, 1), (1, 3, 3, 1)):
        turned = evaluate(lambda shape=shape: image_warps.rotate(square.reshape(shape), np.pi / 2))
        assert turned.reshape(3, 3).tolist() == np.rot90(square).tolist() and turned.shape == shape
    batch = np.stack([square, square])[..., np.newaxis]
    turned = evaluate(lambda: image_warps.rotate(batch, [0.0, np.pi], "BILINEAR"))
    np.testing.assert_allclose(turned[..., 0], [square, np.rot90(square, 2)], atol=1e-4)


def test_translations_move_right_and_down():
    """What comes in from outside is 0; bytes stay bytes; halves of pixels are interpolated."""
    moved = evaluate(lambda: image_warps.translate(IMAGE.astype(np.uint8), [1.0, 1.0]))
    assert moved.dtype == np.uint8 and moved[0].tolist() == [0] * 4 and moved[1:, 1:].tolist() == [[0, 1, 2], [4, 5, 6]]
    half = evaluate(lambda: image_warps.translate(IMAGE, [0.5, 0], "bilinear"))
    np.testing.assert_allclose(half[:, 1:], (IMAGE[:, 1:] + IMAGE[:, :-1]) / 2)


def test_transforms_are_composed_and_may_change_the_size():
    """Matrices and back; a turn back and forth is the identity; the gradient goes to the pixel that was taken."""
    def build():
        there, back = (image_warps.angles_to_projective_transforms(angle, 3.0, 4.0) for angle in (0.3, -0.3))
        return image_warps.compose_transforms(there, back), image_warps.flat_transforms_to_matrices(there)
    composed, matrices = evaluate(build)
    np.testing.assert_allclose(composed[0], [1, 0, 0, 0, 1, 0, 0, 0], atol=1e-6)
    assert matrices.shape == (1, 3, 3) and matrices[0, 2].tolist() == [0, 0, 1]
    moved = image_warps.translations_to_projective_transforms
    cut, gradient = evaluate(lambda: (
        image_warps.transform(IMAGE, moved([-1.0, 0.0]), output_shape=[2, 3]),
        tf.gradients(image_warps.transform(image := tf.constant(IMAGE), moved([-1.0, 0.0]))[0, 0], image)[0]))
    assert cut.tolist() == IMAGE[:2, 1:].tolist()
    assert np.argwhere(gradient).tolist() == [[0, 1]]


@pytest.mark.parametrize("images, angles", [(np.zeros([3]), 0.0), (np.zeros([3, 3], bool), 0.0), (IMAGE, [[0.0]])])
def test_other_ranks_and_types_are_refused(images, angles):
    """As in TensorFlow 1."""
    with tf.Graph().as_default(), pytest.raises(TypeError):
        image_warps.rotate(images, angles)


def test_a_dense_warp_takes_pixels_at_the_flow():
    """The pixel at (y, x) is that at (y, x) - flow; outside of the image the nearest within counts."""
    flow = np.zeros((1, 3, 4, 2), np.float32)
    flow[0, 1, 2], flow[0, 0, 0], flow[0, 2, 3] = [0.5, -0.25], [5.0, 0.0], [-1.0, 2.0]
    warped = evaluate(lambda: image_warps.dense_image_warp(IMAGE[np.newaxis, ..., np.newaxis], flow))[0, ..., 0]
    expected = IMAGE.copy()
    expected[1, 2] = 0.75 * (IMAGE[0, 2] + IMAGE[1, 2]) / 2 + 0.25 * (IMAGE[0, 3] + IMAGE[1, 3]) / 2
    expected[2, 3] = IMAGE[2, 1]
    np.testing.assert_allclose(warped, expected, rtol=1e-5)


def greedy(distances, num_rows, count):
    """Returns the column of each row and the row of each column, of the least distances in turn."""
    of_rows, of_columns = np.full(distances.shape[0], -1), np.full(distances.shape[1], -1)
    for place in np.argsort(distances[:num_rows], axis=None, kind="stable"):
        row, column = divmod(int(place), distances.shape[1])
        if of_rows[row] < 0 and of_columns[column] < 0 and (of_rows >= 0).sum() < count:
            of_rows[row], of_columns[column] = column, row
    return of_rows, of_columns


@pytest.mark.parametrize("num_rows, top_k", [(4, -1), (2, -1), (4, 1)])
def test_rows_and_columns_are_matched_greedily(num_rows, top_k):
    """All, those of the first rows only, and the best pair only."""
    distances = np.random.default_rng(3).random((4, 3)).astype(np.float32)
    found = evaluate(lambda: image_warps.bipartite_match(distances, num_rows, top_k))
    expected = greedy(distances, num_rows, 3 if top_k < 0 else top_k)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


def test_colours_change_in_yiq():
    """Hue, saturation and value: nothing, a factor, grey, and a turn by a half, which leaves the brightness."""
    pixels = np.random.default_rng(0).uniform(0.2, 0.6, [2, 3, 3]).astype(np.float32)
    brightness = [0.299, 0.587, 0.114]

    def changed(*args):
        return evaluate(lambda: image_warps.adjust_hsv_in_yiq(pixels, *args))
    np.testing.assert_allclose(changed(), pixels, atol=1e-6)
    np.testing.assert_allclose(changed(0, 1, 0.5), pixels / 2, atol=1e-6)
    grey = changed(0, 0, 1)
    np.testing.assert_allclose(grey, np.repeat((pixels @ brightness)[..., np.newaxis], 3, -1), atol=2e-3)
    turned = changed(np.pi)
    np.testing.assert_allclose((turned + pixels) / 2, grey, atol=1e-6)
    np.testing.assert_allclose(changed(2 * np.pi), pixels, atol=1e-5)
    np.testing.assert_allclose(turned @ brightness, pixels @ brightness, atol=2e-3)
    # A quarter turn, in the coordinates of YIQ: I and Q change places, and one its sign.
    to_yiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
    before, after = pixels @ to_yiq.T, changed(np.pi / 2) @ to_yiq.T
    np.testing.assert_allclose(after, np.stack([before[..., 0], -before[..., 2], before[..., 1]], -1), atol=1e-5)
    whole = evaluate(lambda: image_warps.adjust_hsv_in_yiq((pixels * 255).astype(np.uint8)))
    assert whole.dtype == np.uint8 and np.abs(whole - (pixels * 255).astype(np.uint8).astype(int)).max() <= 1


def test_random_colours_lie_between_their_bounds():
    """Value alone is a factor; bounds that cross are refused."""
    pixels = np.full([2, 2, 3], 0.5, np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        drawn = image_warps.random_hsv_in_yiq(pixels, lower_value=0.5, upper_value=1.5, seed=3)
        values = [session.run(drawn) for _ in range(20)]
    factors = [value[0, 0, 0] / 0.5 for value in values]
    assert all(0.5 <= factor <= 1.5 for factor in factors) and len(set(factors)) > 10
    with pytest.raises(ValueError, match="upper_value=0.5"):
        image_warps.random_hsv_in_yiq(pixels, lower_value=1, upper_value=0.5)
    with pytest.raises(ValueError, match="max_delta_hue=-1"):
        image_warps.random_hsv_in_yiq(pixels, -1)


def test_resampled_pixels_are_those_at_the_places():
    """Between pixels their mean; half outside, half of the pixel; far outside 0. The places have gradients, too."""
    image = IMAGE[np.newaxis, ..., np.newaxis]
    places = np.array([[[2, 1], [0.5, 0], [3.5, 2], [9, 0], [-0.25, 0.5]]], np.float32)  # (x, y)

    def build():
        data, warp = tf.constant(image), tf.constant(places)
        pixels = image_warps.resampler(data, warp)
        return [pixels, *tf.gradients(pixels[0, :2], [data, warp])]
    pixels, data_gradient, place_gradient = evaluate(build)
    assert pixels.shape == (1, 5, 1)
    np.testing.assert_allclose(pixels.ravel(), [6, 0.5, 11 / 2, 0, 0.75 * 2], atol=1e-6)
    assert data_gradient[0, ..., 0].tolist() == [[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(place_gradient[0, 1], [1, 4])  # the slopes of the image to the right and down
