"""The images of `scipy.misc`."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("PIL.Image")

from ps_train.parts.legacy.names import images

GREY = np.arange(0, 240, 20, dtype=np.uint8).reshape(3, 4)
COLOURS = np.stack([GREY, GREY + 5, GREY + 10], axis=2)


@pytest.mark.parametrize("values", [GREY, COLOURS], ids=["grey", "colours"])
def test_an_image_is_read_as_it_was_written(values, tmp_path):
    """Rows and columns, with and without channels."""
    images.imsave(tmp_path / "image.png", values)
    assert (images.imread(tmp_path / "image.png") == values).all()
    assert images.imread(tmp_path / "image.png", flatten=True).dtype == np.float32
    assert images.imread(tmp_path / "image.png", mode="RGB").shape == (3, 4, 3)


@pytest.mark.parametrize(("size", "shape"), [((6, 2), (6, 2)), (200, (6, 8)), (0.5, (1, 2))])
def test_an_image_has_the_size_that_was_asked_for(size, shape):
    """Rows and columns, percent, or a fraction."""
    assert images.imresize(GREY, size).shape == shape
    assert images.imresize(COLOURS, size, "nearest").shape == (*shape, 3)


def test_floats_are_scaled_from_their_least_to_their_greatest():
    """As SciPy did, and between given bounds."""
    assert images.bytescale(np.array([[-1.0, 0.0, 1.0]])).tolist() == [[0, 128, 255]]
    assert images.bytescale(np.array([[0.0, 0.5]]), cmin=0, cmax=1).tolist() == [[0, 128]]
    assert images.bytescale(np.array([[2.0, 2.0]])).tolist() == [[0, 0]]
    assert images.bytescale(GREY) is GREY
    assert np.asarray(images.toimage(np.array([[0.0, 1.0]]))).tolist() == [[0, 255]]


def test_channels_may_come_first_and_a_turn_is_counterclockwise():
    """The axis of length 3 or 4 has the channels."""
    assert (np.asarray(images.toimage(np.moveaxis(np.tile(COLOURS, (2, 2, 1)), 2, 0)))
            == np.tile(COLOURS, (2, 2, 1))).all()
    square = np.array([[1, 2], [3, 4]], np.uint8)
    assert images.imrotate(square, 90, "nearest").tolist() == [[2, 4], [1, 3]]
    with pytest.raises(ValueError, match="suitable array shape"):
        images.toimage(np.zeros((5, 5, 5)))
