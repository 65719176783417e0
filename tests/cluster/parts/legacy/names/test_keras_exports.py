"""Keras models as SavedModels, in a child: Keras is chosen before TensorFlow is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes import REPO

pytest.importorskip("tf_keras")

DEADLINE_SECS = 200
CHILD = """\
import sys
import numpy as np
import tensorflow.compat.v1 as tf
from ps_train.parts.legacy.names import keras_exports, predictor

tf.disable_v2_behavior()
layers = tf.keras.layers
model = tf.keras.Sequential([layers.Dense(3, activation="relu", input_shape=(2,)), layers.Dropout(0.5),
                             layers.Dense(1, name="score")])
x = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)
expected = model.predict(x)
folders = [keras_exports.save_keras_model(model, sys.argv[1].encode()) for _ in range(2)]
assert folders[0] != folders[1] and folders[0].startswith(sys.argv[1])
served = predictor.from_saved_model(folders[0])
np.testing.assert_allclose(served({name: x for name in served.feed_tensors})["score"], expected, rtol=1e-5)
tf.keras.backend.clear_session()
loaded = keras_exports.load_exported_keras_model(folders[1])
np.testing.assert_allclose(loaded.predict(x), expected, rtol=1e-5)
print("all fit")
"""


def test_a_model_is_served_and_loaded_again(tmp_path):
    """With the same numbers, from folders of their own."""
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], cwd=REPO, capture_output=True, text=True, timeout=DEADLINE_SECS,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"})
    assert ended.stdout.endswith("all fit\n"), ended.stdout + ended.stderr
