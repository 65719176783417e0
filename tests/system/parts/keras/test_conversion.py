"""Checkpoints of graph training converted to Keras training and back: the same numbers, and both continue."""

from __future__ import annotations

import os
import pathlib
import re

import numpy as np
import pytest

import ps_train
from data import digits
from ps_train.graph import optimizers
from ps_train.plugins import loader
from ps_train.plugins.params import resolve_params
from tests import fork_server
from tests.processes import DEADLINE_SECS, REPO, TaskCluster
from tests.tensorflow_mode import tf

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

SETTINGS = {"hidden_units": 20, "batch_size": 50, "seed": 1, "data_dir": "", "learning_rate": 0.003}
FLAGS = {"mlp": ["--model=models.mlp", "--hidden_units=20"],
         "cnn": ["--model=models.cnn", "--params=filters=3,dense_units=12,dropout=0.5"]}
# Keras needs TensorFlow 2's behaviour, unlike this process. The script converts to Keras and back, and predicts. It
# gives the checkpoint of Keras a step that may be more than its updates, as in a training that accumulates gradients.
CONVERSION = """
import os
import sys
import numpy as np
from ps_train.__main__ import main
start, keras_dir, graph_dir, features, out, last_step, *flags = sys.argv[1:]
for to, source, target in (("keras", start, keras_dir), ("graph", keras_dir, graph_dir)):
    code = main(["convert", f"--to={to}", f"--train_dir={source}", f"--output_dir={target}", *flags])
    if code:
        sys.exit(code)
    if to == "keras":
        os.rename(f"{keras_dir}/ckpt-00000007.keras", f"{keras_dir}/ckpt-{int(last_step):08d}.keras")
import tf_keras
from ps_train.parts.keras import checkpoints
step, path = checkpoints.newest_readable(keras_dir)
model = checkpoints.load_model_file(path, {})
probabilities = tf_keras.layers.Softmax()(model.predict(np.load(features), verbose=0)).numpy()
np.savez(out, probabilities=probabilities, iterations=model.optimizer.iterations.numpy(), step=step)
"""


def images(count):
    """Returns float32 images [n, 784] and labels [n] of the held-out digits."""
    examples = digits.load().test
    return examples.images[:count].astype(np.float32) / 255, examples.labels[:count].astype(np.int32)


def graph_model(name, flags):
    """Adds a reference model to the current graph; returns its features, labels and ModelSpec."""
    model = loader.load_model(name)
    [params] = resolve_params(flags[1].removeprefix("--params=") if "params" in flags[1] else "", [model],
                                      SETTINGS)
    features, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
    return features, labels, model, params


def train(name, flags, folder, steps=7):
    """Takes some steps of graph training with Adam, saves, and returns the probabilities of 40 images."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(3)
        features, labels, model, params = graph_model(name, flags)
        spec = model.model_fn(features=features, labels=labels, mode=ps_train.TRAIN, params=params)
        train_op = optimizers.make_optimizer("adam", 0.01).minimize(spec.loss, tf.train.create_global_step())
        session.run(tf.global_variables_initializer())
        batch = dict(zip((features, labels), images(40)))
        for _ in range(steps):
            session.run(train_op, batch)
        tf.train.Saver().save(session, f"{folder}/model.ckpt", steps)
    return predict(name, flags, f"{folder}/model.ckpt-{steps}")


def predict(name, flags, path):
    """Returns the probabilities of 40 images under a checkpoint of graph training."""
    with tf.Graph().as_default(), tf.Session() as session:
        features, labels, model, params = graph_model(name, flags)
        spec = model.model_fn(features=features, labels=labels, mode=ps_train.EVAL, params=params)
        tf.train.Saver(tf.trainable_variables()).restore(session, path)
        return session.run(spec.predictions["probabilities"], {features: images(40)[0]})


def tensors(path):
    """Returns name -> value of all variables in a checkpoint of graph training."""
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize(("name", "last_step"), [("mlp", 7), ("cnn", 9)])
def test_predictions_are_equal_and_the_way_back_loses_nothing(tmp_path, name, last_step):
    """Predictions to 1e-5 in both directions; weights, Adam's moments and the global step come back unchanged."""
    flags = FLAGS[name]
    expected = train(f"models.{name}", flags, tmp_path / "graph")
    np.save(tmp_path / "features.npy", images(40)[0])
    paths = [str(tmp_path / part) for part in ("graph", "keras", "again", "features.npy", "out.npz")]
    (tmp_path / "conversion.py").write_text(CONVERSION)
    with open(tmp_path / "output", "wb") as output:
        code = fork_server.of_this_process().start(
            [*paths, str(last_step), *flags], REPO, {**os.environ, "PYTHONPATH": str(REPO)}, output.fileno(),
            script=str(tmp_path / "conversion.py")).wait(DEADLINE_SECS)
    printed = (tmp_path / "output").read_text()
    assert code == 0, printed
    assert re.findall(r"ckpt-\S+", printed) == ["ckpt-00000007.keras", f"ckpt-{last_step}"]
    there = np.load(tmp_path / "out.npz")
    assert (there["iterations"], there["step"]) == (7, last_step)
    np.testing.assert_allclose(there["probabilities"], expected, atol=1e-5)
    back = str(tmp_path / f"again/model.ckpt-{last_step}")
    np.testing.assert_allclose(predict(f"models.{name}", flags, back), expected, atol=1e-5)
    before, after = tensors(str(tmp_path / "graph/model.ckpt-7")), tensors(back)
    assert before.keys() == after.keys()
    for key, value in {**before, "global_step": last_step}.items():
        np.testing.assert_allclose(after[key], value, rtol=1e-6, err_msg=key)


def test_training_continues_from_a_converted_checkpoint(start_process, tmp_path):
    """In Keras and in graph training, from the same global step."""
    train("models.mlp", FLAGS["mlp"], tmp_path / "graph", steps=30)
    for to, source, target in (("keras", "graph", "keras"), ("graph", "keras", "again")):
        start_process.start(f"to-{to}", ["convert", f"--to={to}", *FLAGS["mlp"], f"--train_dir={tmp_path}/{source}",
                                         f"--output_dir={tmp_path}/{target}"])
        assert start_process.exit_code(f"to-{to}") == 0
        if to == "keras":
            start_process.start("keras", [
                "keras", "--params=hidden_layers=1", "--hidden_units=20", "--dataset=data.digits", "--train_steps=50",
                "--steps_per_epoch=25", f"--train_dir={tmp_path}/keras", "--save_summaries_steps=0"])
            assert start_process.exit_code("keras") == 0
            assert "After 50 training steps" in start_process.log("keras")
    TaskCluster(1, 1).start(start_process, [*FLAGS["mlp"], "--dataset=data.digits", "--train_steps=70",
                                            f"--train_dir={tmp_path}/again"])
    assert set(start_process.wait().values()) == {0}
    output = start_process.log("worker-0")
    assert "After 70 training steps" in output
    assert "this worker did 20 steps" in output


def test_a_checkpoint_that_cannot_be_converted_is_refused(start_process, tmp_path):
    """Another width; a model without a twin; a folder that has checkpoints already."""
    train("models.mlp", FLAGS["mlp"], tmp_path / "graph", steps=1)
    for flags, exit_code, code in [
        (["--hidden_units=30", f"--output_dir={tmp_path}/out"], 1, "checkpoint_of_another_model"),
        (["--model=models.softmax", f"--output_dir={tmp_path}/out"], 2, "no_keras_twin"),
        (["--hidden_units=20", f"--output_dir={tmp_path}/graph"], 2, "folder_has_checkpoints"),
    ]:
        start_process.start(code, ["convert", "--to=keras", f"--train_dir={tmp_path}/graph", *flags])
        assert start_process.exit_code(code) == exit_code
        assert start_process.log(code).splitlines()[-1].endswith(f"[{code}]")
    assert not list(pathlib.Path(tmp_path / "out").glob("*"))
