"""tf.contrib.predictor: models that are called with arrays."""

from __future__ import annotations

import types

import numpy as np
import pytest

from ps_train.parts.legacy.names import predictor
from tests.tensorflow_mode import tf

signatures = tf.saved_model.signature_def_utils


@pytest.fixture
def exported(tmp_path):
    """The folder of a SavedModel that multiplies by a variable of the value 3, with two signatures."""
    folder = str(tmp_path / "export")
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        shift = tf.placeholder_with_default(0.0, [], name="shift")
        y = tf.identity(x * tf.Variable(3.0) + shift, name="y")
        session.run(tf.global_variables_initializer())
        builder = tf.saved_model.builder.SavedModelBuilder(folder)
        signature = signatures.predict_signature_def({"x": x, "shift": shift}, {"y": y})
        builder.add_meta_graph_and_variables(session, [tf.saved_model.tag_constants.SERVING], signature_def_map={
            "serving_default": signature, "default_input_alternative:old": signature})
        builder.save()
    return folder


def test_a_saved_model_is_called_with_arrays(exported):
    """By its signature, with its older name too, or by names of tensors; an input may be left out."""
    called = predictor.from_saved_model(exported)
    assert called({"x": [1.0, 2.0]})["y"].tolist() == [3, 6]
    assert called({"x": [1.0], "shift": 1.0})["y"].tolist() == [4]
    assert called({"x": [1.0], "shift": None})["y"].tolist() == [3]
    assert set(called.fetch_tensors) == {"y"} and called.session.graph is called.graph
    assert predictor.from_saved_model(exported, "old")({"x": [1.0]})["y"].tolist() == [3]
    by_name = predictor.from_saved_model(exported, input_names={"in": "x:0"}, output_names={"out": "y:0"})
    assert by_name({"in": [2.0]})["out"].tolist() == [6]


@pytest.mark.parametrize("options, error", [
    ({"signature_def_key": "other"}, "Available signatures are"), ({"tags": "train"}, "tags train"),
    ({"input_names": {"in": "x:0"}}, "both be specified"),
    ({"input_names": {}, "output_names": {}, "signature_def_key": "old"}, "at most one")])
def test_what_is_not_there_is_refused(exported, options, error):
    """Signatures, tags, and two ways at once."""
    with pytest.raises(ValueError, match=error):
        predictor.from_saved_model(exported, **options)


def test_an_unknown_input_is_refused(exported):
    """Instead of an answer without it."""
    with pytest.raises(ValueError, match="unexpected keys"):
        predictor.from_saved_model(exported)({"z": [1.0]})


def test_the_last_checkpoint_of_an_estimator_is_called(tmp_path):
    """Its model_fn, with the inputs of a function for serving."""
    def model_fn(features, labels, mode, config):
        assert (labels, mode, config) == (None, "infer", "settings")
        y = features["x"] * tf.get_variable("weight", initializer=1.0)
        output = types.SimpleNamespace(as_signature_def=lambda inputs: signatures.predict_signature_def(
            inputs, {"y": y}))
        return types.SimpleNamespace(export_outputs={"serving_default": output})

    def serving():
        x = tf.placeholder(tf.float32, [None])
        return types.SimpleNamespace(features={"x": x}, receiver_tensors={"x": x})

    with tf.Graph().as_default(), tf.Session() as session:
        weight = tf.get_variable("weight", initializer=5.0)
        session.run(weight.initializer)
        tf.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    estimator = types.SimpleNamespace(model_fn=model_fn, config="settings", model_dir=str(tmp_path))
    called = predictor.from_estimator(estimator, serving)
    np.testing.assert_allclose(called({"x": [2.0]})["y"], [10.0])
    with pytest.raises(KeyError, match="output_key must be one of"):
        predictor.from_estimator(estimator, serving, "other")
