"""The models of tf.contrib.learn's heads, by their names of TensorFlow 1. test_names.py runs these tests in a child
process, as the names change the whole process. Numbers are those of TensorFlow 1.15.5."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

from ps_train.errors import MissingNameError
from ps_train.parts.legacy import estimator
from ps_train.parts.legacy.names import installation

real.disable_v2_behavior()
real.enable_resource_variables()
real.logging.set_verbosity(real.logging.ERROR)
estimator.install_estimator()
installation.install()
tf = sys.modules["tensorflow"]
learn, layers = tf.contrib.learn, tf.contrib.layers

X = np.random.RandomState(1).normal(size=[6, 3]).astype(np.float32)
TWO, THREE = np.array([0, 1, 1, 0, 1, 1]), np.array([0, 2, 1, 1, 0, 2])
NUMBERS = layers.real_valued_column("x", dimension=3)
WORDS = layers.sparse_column_with_keys("s", ["a", "b", "c"])


def input_fn(labels=TWO):
    """Returns an input function of numbers and words."""
    return lambda: ({"x": tf.constant(X), "s": tf.SparseTensor(
        [[row, 0] for row in range(6)], list("abacba"), [6, 1])}, tf.constant(labels))


def with_fixed_weights(features, labels):
    """Lets the layers that the model makes begin with numbers that are no random ones."""
    def getter(getter, name, *args, **kwargs):
        if name.startswith("dnn/") and name.endswith("weights"):
            kwargs["initializer"] = lambda shape, dtype=None, partition_info=None: tf.constant(
                np.sin(np.arange(np.prod(shape))).reshape(shape).astype(np.float32))
        return getter(name, *args, **kwargs)
    tf.get_variable_scope().set_custom_getter(getter)
    return features, labels


CASES = {
    "layers": (lambda: learn.DNNEstimator(
        learn.multi_class_head(3), [4, 2], [NUMBERS], gradient_clip_norm=0.5,
        feature_engineering_fn=with_fixed_weights), THREE, {"loss": 1.095246, "accuracy": 1 / 6}, {
        "dnn/multi_class_head/dnn/learning_rate": 0.05}),
    "a layer": (lambda: learn.DNNEstimator(
        learn.multi_class_head(2), [4], [NUMBERS], optimizer=lambda: tf.train.GradientDescentOptimizer(0.1),
        activation_fn=tf.nn.tanh, feature_engineering_fn=with_fixed_weights), TWO,
        {"loss": 0.896984, "auc": 0.125}, {}),
    "linear": (lambda: learn.LinearEstimator([NUMBERS, WORDS], learn.multi_class_head(2)), TWO,
               {"loss": 0.513375, "accuracy": 1.0}, {
        "linear/bias_weight": [0.283011], "linear/s/weights": [[0.164539], [0.294114], [-0.179479]],
        "linear/x/weight": [[-0.311830], [-0.214279], [0.154830]]}),
    "clipped": (lambda: learn.LinearEstimator(
        [NUMBERS, WORDS], learn.binary_svm_head(), optimizer="SGD", gradient_clip_norm=0.1), TWO, {"loss": 0.945095}, {
        "linear/bias_weight": [0.038855]}),
    "both": (lambda: learn.DNNLinearCombinedEstimator(
        learn.regression_head(), None, [WORDS, NUMBERS], "Adagrad", False, [NUMBERS], "SGD", [3],
        fix_global_step_increment_bug=True, gradient_clip_norm=1.0, feature_engineering_fn=with_fixed_weights),
        TWO.astype(np.float32), {"loss": 0.265155}, {
        "linear/bias_weight": [-0.421798], "regression_head/linear/learning_rate": 0.2}),
}


@pytest.mark.parametrize("name", CASES)
def test_models_of_heads_train_as_in_tensorflow_1(name):
    """Four steps; variables have the names that they had."""
    make, labels, metrics, variables = CASES[name]
    model = make()
    model.fit(input_fn=input_fn(labels), steps=4)
    found = model.evaluate(input_fn=input_fn(labels), steps=1)
    assert found["global_step"] == 4
    assert {metric: found[metric] for metric in metrics} == pytest.approx(metrics, rel=1e-4)
    for variable, value in variables.items():
        np.testing.assert_allclose(model.get_variable_value(variable), value, rtol=1e-4)
    if name == "layers":
        assert {"dnn/hiddenlayer_0/weights", "dnn/hiddenlayer_1/biases", "dnn/logits/weights"} <= set(
            model.get_variable_names())


def test_the_step_counts_twice_as_it_did_and_columns_have_rates_of_their_own():
    """With two parts; an embedding whose gradient is multiplied by 0 stays."""
    embedding = layers.embedding_column(WORDS, 2, initializer=tf.ones_initializer())
    model = learn.DNNLinearCombinedEstimator(
        learn.multi_class_head(2), linear_feature_columns=[WORDS], dnn_feature_columns=[embedding],
        dnn_hidden_units=[3], embedding_lr_multipliers={embedding: 0.0})
    model.fit(input_fn=input_fn(), steps=1)
    assert model.get_variable_value("global_step") == 2
    table, = (name for name in model.get_variable_names() if name.endswith("embedding_weights"))
    assert model.get_variable_value(table).tolist() == [[1.0, 1.0]] * 3
    assert np.any(model.get_variable_value("linear/s/weights"))
    with pytest.raises(ValueError, match="both empty"):
        learn.DNNLinearCombinedEstimator(learn.regression_head())


@pytest.mark.parametrize("make", [
    lambda optimizer: learn.DNNEstimator(learn.multi_class_head(2), [3], [NUMBERS], optimizer=optimizer),
    lambda optimizer: learn.LinearEstimator([NUMBERS], learn.multi_class_head(2), optimizer=optimizer)])
def test_the_optimizer_of_a_model_is_the_one_that_the_script_has(make):
    """Of SyncReplicasOptimizer a script adds the hook, which finds no step if a copy trains."""
    class Noting(tf.train.GradientDescentOptimizer):
        is_applied = False

        def apply_gradients(self, *args, **kwargs):
            self.is_applied = True
            return super().apply_gradients(*args, **kwargs)
    optimizer = Noting(0.1)
    make(optimizer).fit(input_fn=input_fn(), steps=1)
    assert optimizer.is_applied


def test_a_model_fn_gets_the_params_themselves():
    """Which need be nothing that can be copied."""
    params, seen = {"lock": threading.Lock()}, []

    def model_fn(features, labels, mode, params):
        seen.append(params)
        loss = tf.square(tf.get_variable("v", initializer=1.0))
        return features["x"], loss, tf.assign_add(tf.train.get_global_step(), 1).op
    model = learn.Estimator(model_fn, params=params)
    model.fit(input_fn=input_fn(), steps=1)
    assert all(each is params for each in (*seen, model.params))
    assert learn.Estimator(lambda features, labels, mode: None).params == {}


def test_a_function_that_makes_an_optimizer_is_called_once_outside_of_the_model():
    """So a variable that it makes has the name that it had."""
    calls = []

    def make():
        calls.append(tf.get_variable("rate", initializer=0.1, trainable=False))
        return tf.train.GradientDescentOptimizer(calls[-1])
    model = learn.DNNLinearCombinedEstimator(
        learn.regression_head(), None, [NUMBERS], make, False, [NUMBERS], "SGD", [2])
    model.fit(input_fn=input_fn(TWO.astype(np.float32)), steps=1)
    assert len(calls) == 1 and "rate" in model.get_variable_names()


def test_weights_are_divided_among_the_ps():
    """The large ones; columns may have another limit, and rates of their own."""
    embedding = layers.embedding_column(WORDS, 2)
    model = learn.DNNEstimator(
        learn.multi_class_head(2), [300, 600], [embedding], embedding_lr_multipliers={embedding: 0.5},
        input_layer_min_slice_size=8)
    config = model.config.replace()
    config._num_ps_replicas = 2
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        spec = model.model_fn(*input_fn()(), "train", config)
        shapes = {variable.op.name: variable.shape.as_list() for variable in tf.trainable_variables()}
        table = "dnn/input_from_feature_columns/input_layer/s_embedding/embedding_weights"
        assert [shapes[f"{table}/part_{index}"] for index in range(2)] == [[2, 2], [1, 2]]
        assert [shapes[f"dnn/hiddenlayer_1/weights/part_{index}"] for index in range(2)] == [[150, 600]] * 2
        assert shapes["dnn/logits/weights/part_0"] == [600, 1]
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.tables_initializer()])
            session.run(spec.train_op)
            assert session.run(tf.train.get_global_step()) == 1


def test_a_logistic_regressor_has_the_metrics_of_two_classes():
    """Of a model_fn that returns a tuple."""
    def model_fn(features, labels, how):
        predictions = tf.sigmoid(features["x"][:, 0] * tf.get_variable("v", initializer=1.0))
        if labels is None:
            return predictions, None, None
        loss = tf.reduce_mean(tf.square(predictions - tf.cast(labels, tf.float32)))
        return predictions, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    model = learn.LogisticRegressor(model_fn, thresholds=[0.4])
    model.fit(input_fn=input_fn(), steps=4)
    assert model.evaluate(input_fn=input_fn(), steps=1) == pytest.approx({
        "labels/prediction_mean": 0.509255, "labels/actual_label_mean": 2 / 3, "accuracy/baseline_label_mean": 2 / 3,
        "auc": 0.25, "accuracy/threshold_0.400000_mean": 1 / 3, "precision/positive_threshold_0.400000_mean": 0.5,
        "recall/positive_threshold_0.400000_mean": 0.5, "loss": 0.38403, "global_step": 4}, rel=1e-4)


def test_a_kernel_classifier_separates_a_ring(tmp_path):
    """What no linear model does; its features are mapped."""
    points = np.random.RandomState(0).normal(size=[200, 2]).astype(np.float32)
    labels = (np.linalg.norm(points, axis=1) > 1.1).astype(np.int64)
    column = layers.real_valued_column("p", dimension=2)
    mapper = tf.contrib.kernel_methods.RandomFourierFeatureMapper(2, 100, 1.0, name="m")
    model = tf.contrib.kernel_methods.KernelLinearClassifier(
        optimizer=tf.train.FtrlOptimizer(5.0), kernel_mappers={column: [mapper]}, model_dir=str(tmp_path))
    model.fit(input_fn=lambda: ({"p": tf.constant(points)}, tf.constant(labels)), steps=60)
    assert model.evaluate(input_fn=lambda: ({"p": tf.constant(points)}, tf.constant(labels)), steps=1)["accuracy"] > 0.9
    found = list(model.predict_classes(input_fn=lambda: {"p": tf.constant(points)}))
    assert np.mean(found == labels) > 0.9 and len(next(model.predict_proba(lambda: {"p": tf.constant(points)}))) == 2


def test_a_model_of_two_heads_is_exported_by_either(tmp_path):
    """The default output is the one that is asked for; a predictor takes one by its name."""
    heads = learn.multi_head([learn.regression_head("r", head_name="r"), learn.multi_class_head(3, "i", head_name="i")])

    def model_fn(features, labels, mode):
        return heads.create_model_fn_ops(
            features, mode, labels, lambda loss: tf.train.GradientDescentOptimizer(0.1).minimize(
                loss, tf.train.get_global_step()), logits_input=features["x"])
    model = learn.Estimator(model_fn, str(tmp_path))
    assert isinstance(model, learn.BaseEstimator)
    labels = {"r": tf.float32, "i": tf.int64}
    model.fit(input_fn=lambda: ({"x": tf.constant(X)}, {
        name: tf.constant(THREE, dtype) for name, dtype in labels.items()}), steps=2)

    def serving_input_fn():
        x = tf.placeholder(tf.float32, [None, 3])
        return learn.InputFnOps({"x": x}, None, {"in": x})
    for name, key in (("r", "scores"), ("i", "probabilities")):
        folder = model.export_savedmodel(str(tmp_path / name), serving_input_fn, default_output_alternative_key=name)
        assert key in tf.contrib.predictor.from_saved_model(folder.decode())({"in": X})
        found = tf.contrib.predictor.from_contrib_estimator(model, serving_input_fn, output_alternative_key=name)
        assert len(found({"in": X})[key]) == 6
    for key in (None, "other"):
        with pytest.raises(ValueError, match=rf"output is '?{key}'?; the model's outputs are \['i', 'r'\]"):
            model.export_savedmodel(str(tmp_path / "wrong"), serving_input_fn, default_output_alternative_key=key)
        with pytest.raises(ValueError, match=rf"output is '?{key}'?; the model's outputs are \['i', 'r'\]"):
            tf.contrib.predictor.from_contrib_estimator(model, serving_input_fn, output_alternative_key=key)
    with pytest.raises(TypeError, match="from_estimator"):
        tf.contrib.predictor.from_contrib_estimator(tf.estimator.Estimator(model_fn), serving_input_fn)


@pytest.mark.parametrize("metrics", [None, {"share": learn.MetricSpec(
    lambda labels, predictions: tf.metrics.mean(predictions), ("i", "classes"), "i")}])
def test_an_experiment_exports_the_chosen_head(tmp_path, metrics):
    """With metrics of its own, too; without a key there is no export."""
    heads = learn.multi_head([learn.regression_head("r", head_name="r"), learn.multi_class_head(3, "i", head_name="i")])

    def model_fn(features, labels, mode):
        return heads.create_model_fn_ops(
            features, mode, labels, lambda loss: tf.assign_add(tf.train.get_global_step(), 1).op,
            logits_input=features["x"])

    def both():
        return {"x": tf.constant(X)}, {"r": tf.constant(THREE, tf.float32), "i": tf.constant(THREE, tf.int64)}

    def run(key, model):
        strategy = learn.make_export_strategy(
            learn.utils.input_fn_utils.build_default_serving_input_fn({"x": tf.placeholder(tf.float32, [6, 3])}), key)
        learn.Experiment(model, both, both, metrics, train_steps=1, eval_steps=1, export_strategies=strategy).test()
    run("i", learn.Estimator(model_fn, str(tmp_path)))
    folder, = (tmp_path / "export" / "Servo").iterdir()
    assert "probabilities" in tf.contrib.predictor.from_saved_model(str(folder))({"x": X})
    with pytest.raises(ValueError, match="output is None"):
        run(None, learn.Estimator(model_fn, str(tmp_path)))
    with pytest.raises(ValueError, match="needs an Estimator of tf.contrib.learn; got Estimator"):
        run("i", tf.estimator.Estimator(lambda features, labels, mode: model_fn(features, labels, mode)))


def test_the_newest_exports_are_kept(tmp_path):
    """Issue: a script's own export found neither the name of a folder nor what removes the old ones."""
    utils = learn.utils.saved_model_export_utils
    for name in ("9", "10", "8", "temp-11"):
        (tmp_path / name).mkdir()
    assert utils.get_most_recent_export(str(tmp_path)) == (str(tmp_path / "10"), 10)
    utils.garbage_collect_exports(str(tmp_path), None)
    utils.garbage_collect_exports(str(tmp_path).encode(), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "9", "temp-11"]
    folder = utils.get_timestamped_export_dir(str(tmp_path))
    assert int(os.path.basename(folder)) > 10
    assert os.path.basename(utils.get_temp_export_dir(folder)) == b"temp-" + os.path.basename(folder)
    gc = learn.utils.gc
    assert gc.negation(gc.largest_export_versions(1))([gc.Path("a", 1), gc.Path("b", 2)]) == [gc.Path("a", 1)]


@pytest.mark.parametrize(("make", "labels", "expected"), [
    (lambda: learn.DNNClassifier([3], [NUMBERS], n_classes=3), THREE, ["0", "1", "2"]),
    (lambda: learn.DNNClassifier([3], [NUMBERS]), TWO, ["0", "1"]),
    (lambda: learn.LinearClassifier([NUMBERS], n_classes=3, label_keys=["a", "b", "c"]),
     np.array(list("acbbac")), ["a", "b", "c"]),
    (lambda: learn.LinearRegressor([NUMBERS]), TWO.astype(np.float32), None)])
def test_a_predictor_of_a_model_of_contrib_learn_needs_no_key(make, labels, expected):
    """Its output is that of TensorFlow 1: probabilities and the names of all classes, or scores."""
    model = make()
    model.fit(input_fn=input_fn(labels), steps=2)

    def serving_input_fn():
        x = tf.placeholder(tf.float32, [None, 3])
        return learn.InputFnOps({"x": x}, None, {"in": x})
    found = tf.contrib.predictor.from_contrib_estimator(model, serving_input_fn)({"in": X})
    if expected is None:
        assert set(found) == {"scores"} and found["scores"].shape == (6,)
        return
    assert set(found) == {"classes", "probabilities"}
    assert found["classes"].astype(str).tolist() == [expected] * 6
    assert found["probabilities"] == pytest.approx(np.array(list(model.predict_proba(input_fn=input_fn(labels)))))


def test_a_strategy_exports_by_a_function():
    """Which gets what it has an argument for."""
    calls = []

    def export(estimator, export_path, checkpoint_path, eval_result=None, strip_default_attrs=None):
        calls.append((estimator, export_path, checkpoint_path, eval_result, strip_default_attrs))
        return "done"
    strategy = learn.ExportStrategy("best", export, strip_default_attrs=True)
    assert strategy.name == "best" and strategy.export("model", "path", "checkpoint", {"loss": 1.0}) == "done"
    assert calls == [("model", "path", "checkpoint", {"loss": 1.0}, True)]
    assert learn.ExportStrategy("short", lambda estimator, path: path).export(None, "path", "checkpoint", {}) == "path"
    with pytest.raises(ValueError, match="needs checkpoint_path"):
        learn.ExportStrategy("x", lambda estimator, path, eval_result: path).export(None, "path")


@pytest.mark.parametrize("name", [
    "learn.read_keyed_batch_examples", "learn.read_keyed_batch_features", "learn.extract_pandas_data",
    "learn.io.extract_pandas_labels", "learn.run_n", "learn.infer", "learn.NanLossDuringTrainingError",
    "learn.python.learn.estimators.head.loss_only_head", "learn.estimators.head.multi_class_head",
    "factorization.WALSModel", "factorization.WALSMatrixFactorization", "factorization.KMeans",
    "factorization.python.ops.factorization_ops.WALSModel", "factorization.COSINE_DISTANCE",
    "kernel_methods.sparse_multiclass_hinge_loss", "layers.transform_features", "layers.check_feature_columns",
    "slim.real_valued_column", "slim.embed_sequence", "slim.transform_features", "slim.fully_connected",
    "slim.crossed_column", "kernel_methods.python.mappers.dense_kernel_mapper.InvalidShapeError"])
def test_names_are_there(name):
    """Below tf.contrib."""
    value = tf.contrib
    for part in name.split("."):
        value = getattr(value, part)
    assert value is not None


@pytest.mark.parametrize(("name", "advice"), [
    ("learn.SVM", "binary_svm_head"), ("learn.train", "MonitoredTrainingSession"),
    ("learn.DynamicRnnEstimator", "dynamic_rnn"), ("factorization.GMM", "GaussianMixture"),
    ("integrate.odeint", "tfp.math.ode"), ("estimator.RNNClassifier", "dynamic_rnn")])
def test_other_names_say_what_to_use(name, advice):
    """In one line."""
    module, _, leaf = name.partition(".")
    with pytest.raises(MissingNameError, match=advice):
        getattr(getattr(tf.contrib, module), leaf)
