"""The images of `scipy.misc`."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

pytest.importorskip("PIL.Image")

from ps_train.parts.legacy.names import images

GREY = np.arange(0, 240, 12, dtype=np.uint8).reshape(5, 4)
COLOURS = np.stack([GREY, GREY + 5, GREY + 10], axis=2)


@pytest.mark.parametrize("values", [GREY, COLOURS], ids=["grey", "colours"])
def test_an_image_is_read_as_it_was_written(values, tmp_path):
    """Rows and columns, with and without channels."""
    images.imsave(tmp_path / "image.png", values)
    assert (images.imread(tmp_path / "image.png") == values).all()
    assert images.imread(tmp_path / "image.png", flatten=True).dtype == np.float32
    assert images.imread(tmp_path / "image.png", mode="RGB").shape == (5, 4, 3)


@pytest.mark.parametrize(("size", "shape"), [((6, 2), (6, 2)), (200, (10, 8)), (0.5, (2, 2))])
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


def test_whole_numbers_are_scaled_and_floats_are_kept():
    """Modes I and F; SciPy scaled the one between its least and its greatest value, too."""
    values = np.array([[0.0, 5.0], [10.0, 20.0]])
    assert np.asarray(images.toimage(values, mode="I")).tolist() == [[0, 63], [127, 255]]
    scaled = images.toimage(values, mode="I", high=1000, low=10, cmin=0, cmax=10)
    assert np.asarray(scaled).tolist() == [[10, 505], [1000, 1990]]
    assert np.asarray(images.toimage(values, mode="F")).tolist() == values.tolist()
    assert np.asarray(images.toimage(values, mode="1", high=7)).tolist() == [[False, False], [True, True]]
    assert images.toimage(values, mode="P").convert("L").tobytes() == bytes([0, 64, 128, 255])
    with pytest.raises(ValueError, match="Mode is unknown"):
        images.toimage(values, mode="RGB")
    with pytest.raises(ValueError, match="complex"):
        images.toimage(values + 1j)


@pytest.mark.parametrize(("shape", "channel_axis", "size"), [
    ((3, 5, 4), None, (4, 5)), ((3, 5, 3), None, (3, 5)), ((5, 3, 4), None, (4, 5)), ((4, 5, 6), None, (6, 5)),
    ((3, 5, 3), 2, (5, 3))])
def test_the_first_axis_of_three_has_the_channels(shape, channel_axis, size):
    """Else the first of four, as SciPy chose it."""
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    image = images.toimage(values, channel_axis=channel_axis)
    axis = shape.index(3 if 3 in shape else 4) if channel_axis is None else channel_axis
    assert (image.size, image.mode) == (size, "RGB" if shape[axis] == 3 else "RGBA")
    assert (np.asarray(image) == np.moveaxis(values, axis, 2)).all()


def test_the_values_are_those_of_the_mode_that_is_given():
    """YCbCr and CMYK are no conversions of RGB."""
    assert (np.asarray(images.toimage(COLOURS, mode="YCbCr")) == COLOURS).all()
    four = np.dstack([COLOURS, GREY])
    assert (np.asarray(images.toimage(four, mode="CMYK", channel_axis=2)) == four).all()
    with pytest.raises(ValueError, match="shape for mode"):
        images.toimage(COLOURS, mode="RGBA")
    with pytest.raises(ValueError, match="Channel axis"):
        images.toimage(np.zeros((3, 5, 6)), channel_axis=1)


def test_what_scipy_itself_still_has_is_found(tmp_path, monkeypatch):
    """Such as `derivative` until 1.11; its files import each other by their names."""
    (tmp_path / "scipy/misc").mkdir(parents=True)
    (tmp_path / "scipy/__init__.py").write_text("")
    (tmp_path / "scipy/misc/__init__.py").write_text("from ._common import derivative\nfrom . import _common\n")
    (tmp_path / "scipy/misc/_common.py").write_text("def derivative(): return 5\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "scipy.misc", images)
    images._module_of_scipy.cache_clear()
    try:
        assert images.derivative() == 5 and sys.modules["scipy.misc"] is images
        assert isinstance(images._module_of_scipy(), types.ModuleType)
        with pytest.raises(AttributeError, match="no 'ascent'"):
            _ = images.ascent
    finally:
        images._module_of_scipy.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
            del sys.modules[name]
