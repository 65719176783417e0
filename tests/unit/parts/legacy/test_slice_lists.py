"""Lists of slices as the index of an array."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from ps_train.parts.legacy import slice_lists

IMAGE = np.arange(24).reshape(2, 3, 4)


def run(text):
    """Returns the names of a text that runs when it is changed."""
    slice_lists.install_lists()
    tree = ast.parse(text)
    assert slice_lists.change_lists(tree)
    scope = {"np": np, "image": IMAGE.copy()}
    exec(compile(tree, "script.py", "exec"), scope)
    return scope


@pytest.mark.parametrize(("index", "expected"), [
    ("crop", IMAGE[0:1, 1:3]), ("crop + [2]", IMAGE[0:1, 1:3, 2]), ("[slice(None)] * 2 + [0]", IMAGE[:, :, 0]),
    ("list(crop)", IMAGE[0:1, 1:3]), ("[slice(0, 1), None]", IMAGE[0:1, None]), ("all[0]", IMAGE[0:1, 1:3]),
    ("[slice(s, s + 1) for s in (0, 2)]", IMAGE[0:1, 2:3]), ("[..., 0]", IMAGE[..., 0]), ("rows", IMAGE[[1, 0]]),
    ("rows[0]", IMAGE[1]), ("mask", IMAGE[[True, False]])])
def test_a_list_of_slices_is_a_tuple(index, expected):
    """However it is written; a list of numbers still chooses rows."""
    text = "crop, rows, mask = [slice(0, 1), slice(1, 3)], [1, 0], [True, False]\nall = [crop]\n"
    np.testing.assert_array_equal(run(f"{text}found = image[{index}]\n")["found"], expected)


def test_values_are_set_by_a_list_of_slices():
    """By an assignment, and by one that adds."""
    changed = run("crop = [slice(0, 1), 2]\nimage[crop] = 0\nimage[crop] += 5\n")["image"]
    assert (changed[0, 2] == 5).all() and (changed[1] == IMAGE[1]).all()


def test_other_objects_get_the_list():
    """And an array gets one that is too long to be its index."""
    text = """
class Table:
    def __getitem__(self, index):
        return type(index)
table, crop = Table(), [slice(0, 1)]
found = table[crop], image.copy()[crop].shape, {1: image}[1][crop].shape
try:
    image[[None] * 33]
except (IndexError, TypeError, ValueError) as error:
    failed = True
"""
    changed = run(text)
    assert changed["found"] == (list, (1, 3, 4), (1, 3, 4)) and changed["failed"]


@pytest.mark.parametrize(("text", "is_likely"), [
    ("crop = [slice(1, 2)]", True), ("np.s_[1:2]", True), ("tf.slice(x, [0], [1])", False), ("my_slice(x)", False)])
def test_only_code_that_makes_slices_changes(text, is_likely):
    """Every index that is a name costs a call."""
    assert slice_lists.may_have_lists(text) == is_likely
