"""What a TF1 script finds, as JSON: run as a child process, because the names change the whole process.

    python -m tests.cluster.parts.legacy.names.names_child OUTPUT

Each function is a check, and its result stands under its name; an error stands there as {"error": its text}.
"""
# ruff: noqa: PLC0415 (imports are what is checked here)

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pathlib
import pkgutil
import sys
import tempfile
import unittest

import numpy as np

from ps_train.parts.legacy.names import tables
from tests.cluster.parts.legacy.names.installed import real, tf

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def _plain(value):
    array = np.asarray(value)
    return (array.astype(str) if array.dtype == object else array).tolist()


def in_graph(function):
    """Evaluates the tensors that a check returns, in a session with every variable and table initialized."""
    def run():
        with real.Graph().as_default(), real.Session() as session:
            made = function()
            session.run([real.global_variables_initializer(), real.local_variables_initializer(),
                         real.tables_initializer()])
            return real.nest.map_structure(_plain, session.run(made))
    run.__name__ = function.__name__
    CHECKS.append(run)


def text_of_error(function):
    try:
        function()
    except (AttributeError, ImportError) as error:
        return [type(error).__name__, str(error)]
    return None


@check
def unresolved():
    """Names and modules of the tables that lead nowhere, here or in an import statement."""
    root, found = sys.modules["tensorflow"], []
    for full in (*tables.TABLES.names, *tables.TABLES.modules):
        try:
            value = root
            for leaf in full.split(".")[1:]:
                value = getattr(value, leaf)
            if full in tables.TABLES.modules:
                importlib.import_module("tensorflow" + full.removeprefix("tf"))
                for source in tables.TABLES.modules[full]:
                    root._target(source)
        except (AttributeError, ImportError) as error:
            found.append(f"{full}: {error}")
    return found


@check
def missing_inside():
    return [f"{module}.{name}" for module, names in tables.MOVED.items() for name in names
            if not hasattr(importlib.import_module(module), name)]


@check
def missing_in_numpy():
    return [name for name in tables.NUMPY if not hasattr(np, name)]


@check
def still_without_a_stand_in():
    """Names with advice that are there nevertheless: the advice is never read."""
    found = []
    for full in tables.TABLES.advice:
        value = sys.modules["tensorflow"]
        for leaf in full.split(".")[1:]:
            value = getattr(value, leaf, None)
        if value is not None and full not in tables.TABLES.modules and full != "tf.estimator":
            found.append(full)
    return found


@check
def kept():
    import tensorflow as tf
    import tensorflow.compat.v1 as v1
    import tensorflow.compat.v2 as v2
    import tensorflow.io.gfile
    from tensorflow.python.framework import device, ops
    spec = device.DeviceSpec.from_string("/job:ps")
    spec.merge_from(device.DeviceSpec.from_string("/task:1"))
    return {"version": [tf.__version__, tf.VERSION] == [real.__version__] * 2, "v1": v1 is real,
            "v2": v2.__name__.startswith("tensorflow"), "io of TF1": tf.io is not v2.io and tf.io.tf_record_iterator
            is real.io.tf_record_iterator, "private": ops.Graph is tf.Graph,
            "constants": tf.logging.__dict__["INFO"] == real.logging.INFO,
            "device": spec.to_string() == "/job:ps/task:1", "keras 2": "tf_keras" in
            tf.keras.layers.Dense.__module__, "dir": {"mul", "Session", "contrib"} <= set(dir(tf))}


@check
def imports():
    import tensorflow.contrib.layers as layers
    import tensorflow.contrib.slim as slim
    import tensorflow.keras.backend as K  # noqa: N812
    import tf_slim
    from tensorflow import keras
    from tensorflow.contrib import slim as again
    from tensorflow.contrib.layers.python.layers import initializers
    from tensorflow.contrib.learn.python.learn import learn_runner
    from tensorflow.contrib.slim.nets import resnet_v1
    from tensorflow.contrib.slim.python.slim.data import tfexample_decoder
    from tensorflow.contrib.training.python.training import hparam
    from tensorflow.examples.tutorials.mnist import input_data, mnist
    from tensorflow.keras.layers import Dense
    from tensorflow.python.estimator import run_config
    from tensorflow.python.keras.preprocessing.sequence import pad_sequences
    from tensorflow.train import SummaryWriter
    return [slim is again, slim.conv2d is tf_slim.conv2d, layers.l2_regularizer is tf_slim.l2_regularizer,
            keras.layers.Dense is Dense, callable(K.clear_session), initializers is tf_slim.layers.initializers,
            callable(learn_runner.run), callable(resnet_v1.resnet_v1_50), callable(tfexample_decoder.Tensor),
            callable(hparam.HParams), callable(input_data.read_data_sets), callable(mnist.inference),
            callable(run_config.RunConfig), callable(pad_sequences), SummaryWriter is real.summary.FileWriter,
            [name for name in sys.modules if name.split(".")[0] in ("data", "models")] == []]


@check
def errors():
    return {
        "attribute": text_of_error(lambda: tf.train.nothing),
        "contrib": text_of_error(lambda: tf.contrib.crf.crf_decode),
        "import": text_of_error(lambda: __import__("tensorflow.contrib.nothing")),
        "from": text_of_error(lambda: __import__("tensorflow.contrib.seq2seq", fromlist=["Helper"]).Helper),
        "a name": text_of_error(lambda: __import__("tensorflow.mul")),
        "of TensorFlow": text_of_error(lambda: __import__("tensorflow.nothing")),
        "hasattr": [hasattr(tf, "nothing"), hasattr(tf.contrib, "crf"), getattr(tf, "nothing", 3)]}


@check
def flags():
    tf.app.flags.DEFINE_string("log_dir", "/logs", "The script's own.")
    tf.app.flags.DEFINE_boolean("v", True, "The script's own.")
    tf.app.flags.DEFINE_integer("verbosity", 7, "The script's own.")
    sys.argv[1:] = ["--verbosity=8", "--unknown=1"]
    tf.app.flags.FLAGS._parse_flags()
    return [tf.app.flags.FLAGS.log_dir, tf.app.flags.FLAGS.v, tf.app.flags.FLAGS.verbosity]


@check
def odd_defaults():
    """Defaults that absl's parsers refuse, and two that the command line replaces."""
    define = tf.app.flags
    define.DEFINE_integer("steps", np.inf, "")
    define.DEFINE_integer("examples", 1e6, "")
    define.DEFINE_integer("units", np.int64(3), "")
    define.DEFINE_integer("none", "", "")
    define.DEFINE_float("rate", np.float32(0.5), "")
    define.DEFINE_string("port", 5, "")
    define.DEFINE_boolean("maybe", "maybe", "")
    define.DEFINE_list("layers", 7, "")
    define.DEFINE_enum("kind", "other", ["one"], "")
    define.DEFINE_integer("replaced", np.inf, "")
    names = ("steps", "examples", "units", "none", "rate", "port", "maybe", "layers", "kind", "replaced")
    tf.app.flags.FLAGS(["script", "--replaced=4"], known_only=True)
    found = {name: getattr(tf.app.flags.FLAGS, name) for name in names}
    return {**found, "rate": float(found["rate"])}


@check
def numpy_arguments():
    np.set_printoptions(threshold=np.nan)
    whole = [len(str(np.zeros(2000)).split())]
    np.set_printoptions(threshold=10)
    np.set_printoptions(None, "nan")
    whole.append(len(str(np.zeros(2000)).split()))
    np.set_printoptions(threshold=10)
    whole.append(len(np.array2string(np.zeros(2000), threshold=np.nan).split()))
    return [*whole, "..." in str(np.zeros(2000)), np.in1d([1, 2], [2]).tolist(), np.rank([[1]]), np.NINF]


@check
def located():
    """What configurations that name functions do."""
    import pydoc
    return [pydoc.locate("tensorflow.nn.relu") is tf.nn.relu,
            pydoc.locate("tensorflow.contrib.slim.conv2d") is not None,
            pydoc.locate("tensorflow.nn.nothing"), importlib.util.find_spec("tensorflow.contrib.nothing"),
            pkgutil.resolve_name("tensorflow.train.AdamOptimizer") is tf.train.AdamOptimizer]


@check
def pandas_columns():
    """Columns of strings, of categories and of integers with gaps, by pandas_input_fn; methods of old."""
    if importlib.util.find_spec("pandas") is None:
        return None
    import pandas
    frame = pandas.DataFrame({"text": ["x", "y"], "own": pandas.array(["x", "y"], "string"),
                              "kind": pandas.Categorical(["b", "a"]), "number": pandas.array([1, 2], "Int64")})
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.estimator.inputs.pandas_input_fn(frame, batch_size=2, num_epochs=1, shuffle=False)()
        session.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        found = session.run({**batch, "constant": tf.constant(frame["text"]),
                             "of its dtype": tf.constant(list(frame["own"]), frame["own"].dtype)})
        coordinator.request_stop()
        coordinator.join(threads)
    old = [frame[["number"]].as_matrix().tolist(), len(frame.append({"text": "z"}, ignore_index=True)),
           frame.get_value(1, "text")]
    return [{name: _plain(np.asarray(value).astype(str)) for name, value in found.items()}, old]


@check
def keras_data():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "own.npz")
        np.savez(path, x_train=[1], y_train=[2], x_test=[3], y_test=[4])
        return [[array.tolist() for array in part] for part in tf.keras.datasets.mnist.load_data(path)]


@in_graph
def old_arguments():
    x, y = tf.constant([[1, 2]]), tf.constant([[3, 4]])
    return {"concat": tf.concat(1, [x, y]), "concat of 1.0": tf.concat([x, y], 0), "concat_dim":
            tf.concat(concat_dim=1, values=[x, y]), "split": tf.split(1, 2, x), "split of 1.0": tf.split(x, 2, 1),
            "split_dim": tf.split(split_dim=1, num_split=2, value=x), "reverse": tf.reverse(x, [False, True]),
            "reverse of 1.0": tf.reverse(x, [1]), "pack": tf.pack([x, y]), "select": tf.select([[True, False]], x, y),
            "batch_matmul": tf.batch_matmul(x, y, adj_y=True), "mul": tf.mul(x, y), "sub": tf.sub(x, y)}


@in_graph
def cross_entropies():
    logits, labels = tf.constant([[1.0, 2.0]]), tf.constant([[0.0, 1.0]])
    old, new = tf.nn, {"logits": logits, "labels": labels}
    return {"softmax": [old.softmax_cross_entropy_with_logits(logits, labels),
                        old.softmax_cross_entropy_with_logits(**new)],
            "sparse": [old.sparse_softmax_cross_entropy_with_logits(logits, [1]),
                       old.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=[1])],
            "sigmoid": [old.sigmoid_cross_entropy_with_logits(logits, targets=labels),
                        old.sigmoid_cross_entropy_with_logits(**new)],
            "flipped": [tf.contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits(logits, labels),
                        old.softmax_cross_entropy_with_logits(**new)]}


@in_graph
def metrics():
    """Predictions first."""
    predictions, labels = tf.constant([1, 1, 1, 0]), tf.constant([1, 0, 0, 0])
    found = tf.contrib.metrics
    return [found.streaming_accuracy(predictions, labels)[1], found.streaming_precision(predictions, labels)[1],
            found.streaming_recall(predictions, labels)[1],
            tf.contrib.losses.log_loss(tf.constant([0.25]), tf.constant([1.0]))]


@in_graph
def lookup():
    table = tf.contrib.lookup.index_table_from_tensor(mapping=tf.constant(["a", "b"]))
    strings = tf.contrib.lookup.index_to_string_table_from_tensor(["a", "b"], default_value="?")
    numbers = tf.contrib.lookup.HashTable(tf.contrib.lookup.KeyValueTensorInitializer(["a"], [7]), -1)
    return [table.lookup(tf.constant(["b", "c", "a"])), numbers.lookup(tf.constant(["a", "z"])),
            strings.lookup(tf.constant([1, 5], tf.int64))]


@check
def dataset_map():
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = tf.contrib.data.Dataset.range(4).map(lambda x: x * 2, num_threads=2, output_buffer_size=3)
        dataset = dataset.apply(tf.contrib.data.batch_and_drop_remainder(3))
        return session.run(dataset.make_one_shot_iterator().get_next()).tolist()


@check
def global_steps():
    with tf.Graph().as_default():
        nothing = tf.train.get_global_step()
        step = tf.Variable(0, name="global_step", trainable=False)
        hook = tf.train.StopAtStepHook(last_step=3)
        train_op = tf.assign_add(step, 1)
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                last = session.run(train_op)
        return [nothing is None, tf.train.get_global_step() is step, int(last)]


@check
def variables_that_are_instances():
    with tf.Graph().as_default():
        made = [tf.Variable(0.0), tf.get_variable("own", [2]), tf.Variable(0.0, use_resource=False)]
        return [isinstance(variable, tf.Variable) for variable in made] + [isinstance(tf.zeros([]), tf.Variable)]


@check
def losses_of_regularizers():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("w", initializer=[3.0, 4.0], regularizer=tf.contrib.layers.l2_regularizer(0.5))
        loss, = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
        session.run(tf.global_variables_initializer())
        return [loss.op.name, float(session.run(loss))]


@check
def a_queue_of_a_variable():
    with tf.Graph().as_default(), tf.Session() as session:
        names = tf.get_variable("names", initializer=["a", "b"], trainable=False)
        queue = tf.train.string_input_producer(names, shuffle=False, num_epochs=1)
        taken = queue.dequeue()
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        found = [session.run(taken).decode() for _ in range(2)]
        coordinator.request_stop()
        coordinator.join(threads)
        return found


@check
def slim_trains():
    from tensorflow.contrib import slim
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-6)):
            y = slim.fully_connected(tf.constant(np.eye(4, dtype=np.float32)), 1, activation_fn=None)
        y = tf.contrib.layers.batch_norm(y, is_training=True, scale=True)
        loss = tf.losses.mean_squared_error(tf.constant([[0.0], [1.0], [0.0], [1.0]]), y)
        op = tf.contrib.layers.optimize_loss(loss, tf.train.get_or_create_global_step(), 0.1, "Adam")
        session.run(tf.global_variables_initializer())
        first = session.run(loss)
        for _ in range(50):
            session.run(op)
        return [bool(session.run(loss) < first / 10), int(session.run(tf.train.get_global_step()))]


@check
def recurrent_cells():
    """BasicLSTMCell and LSTMBlockCell give the same, from the same weights."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant(np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 10)
        with tf.variable_scope("a", initializer=tf.constant_initializer(0.1)):
            one, _ = tf.nn.dynamic_rnn(tf.contrib.rnn.BasicLSTMCell(4), x, dtype=tf.float32)
        with tf.variable_scope("b", initializer=tf.constant_initializer(0.1)):
            other, _ = tf.nn.dynamic_rnn(tf.contrib.rnn.LSTMBlockCell(4), x, dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        return float(np.abs(np.subtract(*session.run([one, other]))).max())


@check
def contrib_learn():
    """A classifier fits arrays; an experiment trains, evaluates and exports."""
    from tensorflow.contrib import layers, learn
    from tensorflow.contrib.learn.python.learn import learn_runner
    x = np.random.RandomState(0).normal(size=(200, 3)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.int32)
    with tempfile.TemporaryDirectory() as folder:
        with unittest.TestCase().assertLogs("ps_train.parts.legacy") as logged:
            linear = learn.LinearClassifier(learn.infer_real_valued_columns_from_input(x), model_dir=folder + "/linear",
                                            optimizer=tf.train.FtrlOptimizer(0.5), gradient_clip_norm=5.0)
        linear.fit(x, y, steps=60, batch_size=50)
        evaluated = linear.evaluate(x, y, metrics={"own": learn.MetricSpec(
            tf.contrib.metrics.streaming_accuracy, prediction_key=learn.PredictionKey.CLASSES)})
        accuracy = float(evaluated["own"])
        classes = [int(found) for found in linear.predict_classes(x[:5])]

        def model_fn(features, targets, mode, params):
            weights = tf.get_variable("w", [3, 1])
            predictions = tf.squeeze(tf.matmul(features, weights), 1)
            loss = tf.losses.mean_squared_error(targets, predictions)
            train_op = layers.optimize_loss(loss, tf.contrib.framework.get_global_step(), params["rate"], "SGD")
            return learn.ModelFnOps(mode, predictions=predictions, loss=loss, train_op=train_op)

        def experiment_fn(run_config, hparams):
            estimator = learn.Estimator(model_fn, config=run_config, params=hparams.values())

            def input_fn():
                return tf.constant(x), tf.constant(x.sum(axis=1))
            return learn.Experiment(estimator, input_fn, input_fn, train_steps=60, eval_steps=1, eval_delay_secs=0)

        metrics_of_last, _ = learn_runner.run(
            experiment_fn, run_config=learn.RunConfig(model_dir=folder + "/own"),
            hparams=tf.contrib.training.HParams(rate=0.1))
    return [accuracy > 0.95, bool(evaluated["accuracy"] == evaluated["own"]), classes == y[:5].tolist(),
            float(metrics_of_last["loss"]) < 1e-3, int(metrics_of_last["global_step"]),
            "LinearClassifier: gradient_clip_norm has no effect" in logged.output[0]]


@check
def a_chief_that_is_worker_0():
    from tensorflow.contrib import learn
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:2"]},
                                          "task": {"type": "worker", "index": 1}})
    try:
        config = learn.RunConfig(model_dir="unused")
        return [config.is_chief, config.master, config.task_type, config.task, config.num_worker_replicas,
                config.num_ps_replicas, "TF_CONFIG" in os.environ]
    finally:
        del os.environ["TF_CONFIG"]


def main(output):
    found = {}
    for function in CHECKS:
        try:
            found[function.__name__] = function()
        except Exception as error:  # noqa: BLE001 (a test says which)
            found[function.__name__] = {"error": f"{type(error).__name__}: {error}"}
    pathlib.Path(output).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
