"""Comparisons with the type of a tensor or of a variable."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy import type_checks

EXPRESSIONS = [
    ("type(x) is tf.Tensor", True), ("type(x) == tf.Tensor, type(2 * x) != tf.Tensor", (True, False)),
    ("type(x) in (list, tf.Tensor), type(x) not in {dict, tf.Tensor}", (True, False)), ("type([]) is tf.Tensor", False),
    ("x.__class__ is tf.Tensor", True), ("type(x).__name__ == 'Tensor'", True),
    ("type(v) == tf.Variable, type(shared) is tf.Variable, type(x) is tf.Variable", (True, True, False)),
    ("type(v).__name__ == 'Variable', shared.__class__.__name__ == 'Variable'", (True, True)),
    ("type(one).__name__ in ('ndarray', 'Tensor'), type(2).__name__ == 'Tensor'", (True, False)),
    ("type(shared.assign(2.0)) is tf.Tensor", True),
    ("type(one) is tf.Variable, type(one) is np.ndarray", (False, True)), ("type(x) is type(x)", True),
    ("type(type(x) is tf.Tensor) is bool", True), ("[type(y) == tf.Tensor for y in (x, 1)]", [True, False])]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_a_type_is_what_it_was_in_tensorflow_1(expression, expected):
    """Of tensors of a graph and of variables of both kinds; other values keep theirs."""
    type_checks.install_types()
    with tf.Graph().as_default():
        scope = {"tf": tf, "np": np, "x": tf.placeholder(tf.float32), "v": tf.Variable(1.0, use_resource=False),
                 "shared": tf.Variable(1.0, use_resource=True), "one": np.ones(1)}
        tree = ast.parse(f"value = {expression}\n")
        type_checks.change_type_checks(tree)
        exec(compile(tree, "script.py", "exec"), scope)
    assert scope["value"] == expected


@pytest.mark.parametrize("text", ["type(x) is list", "type(x)(tf.Tensor)", "isinstance(x, tf.Tensor)",
                                  "type(v) in (tf.Variable, ops.ResourceVariable)",
                                  "type(v).__name__ in ('Variable', 'RefVariable')", "x == 'Tensor'"])
def test_other_code_stays(text):
    """What asks for another type, or asks otherwise."""
    assert not type_checks.change_type_checks(ast.parse(text))
