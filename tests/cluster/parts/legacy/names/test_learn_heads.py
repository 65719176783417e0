"""The heads of tf.contrib.learn, and the models of them: against numbers of TensorFlow 1.15.5."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ps_train.parts.legacy import estimator as bridge
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)
bridge.install_estimator()

from ps_train.parts.legacy.names import learn_heads as heads  # noqa: E402 (it needs the Estimator)

_RANDOM = np.random.RandomState(1)
X = _RANDOM.normal(size=[6, 3]).astype(np.float32)
LABELS = (_RANDOM.uniform(size=[6, 3]) > 0.5).astype(np.int64)
NUMBERS = _RANDOM.normal(size=[6, 2]).astype(np.float32)
WEIGHTS = np.array([1, 2, 0.5, 1, 3, 1], np.float32)
IDS, TWO = np.array([2, 0, 1, 2, 0, 2]), np.array([0, 1, 1, 0, 1, 1])
COUNTS = np.array([[1.0], [0], [3], [2], [1], [5]], np.float32)
WORDS = np.array(["c", "a", "a", "b", "c", "b"])


def built(head, labels, mode="train", **others):
    """Returns what a head makes of logits of a fixed kernel, with every variable initialized, and a session."""
    tf.train.get_or_create_global_step()
    start = np.linspace(-1, 1, 3 * head.logits_dimension).reshape(3, -1).astype(np.float32)
    with tf.variable_scope("m"):
        others = others or {"logits": tf.matmul(X, tf.get_variable("k", initializer=start))}
        labels = {name: tf.constant(value) for name, value in labels.items()} if isinstance(labels, dict) else (
            tf.constant(labels))
        ops = head.create_model_fn_ops(
            features={"x": tf.constant(X), "w": tf.constant(WEIGHTS)}, mode=mode, labels=labels,
            train_op_fn=lambda loss: tf.train.GradientDescentOptimizer(0.1).minimize(
                loss, tf.train.get_global_step()), **others)
    session = tf.Session()
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
    return ops, session


CASES = {
    "numbers": (lambda: heads.learn_regression_head(label_dimension=2), NUMBERS, [2.618991, 2.025139, 1.653060],
                2.618991, {}),
    "weighted numbers": (lambda: heads.learn_regression_head("y", "w", link_fn=lambda logits: 2 * logits),
                         {"y": NUMBERS[:, 0]}, [3.991361], 2.817431, {}),
    "counts": (lambda: heads.learn_poisson_head(weight_column_name="w", head_name="p"), COUNTS,
               [3.973552, 3.272569, 2.983152], 3.973552, {"loss/p": 2.80486}),
    "two classes": (lambda: heads.multi_class_head(2, thresholds=[0.3, 0.6]), TWO, [0.697611, 0.692401, 0.687478],
                    0.697611, {
        "accuracy": 0.666667, "labels/prediction_mean": 0.33851, "labels/actual_label_mean": 0.666667,
        "accuracy/baseline_label_mean": 0.666667, "auc": 1.0, "auc_precision_recall": 1.0,
        "accuracy/threshold_0.300000_mean": 0.666667, "precision/positive_threshold_0.300000_mean": 1.0,
        "recall/positive_threshold_0.300000_mean": 0.5, "accuracy/threshold_0.600000_mean": 0.5,
        "precision/positive_threshold_0.600000_mean": 1.0, "recall/positive_threshold_0.600000_mean": 0.25}),
    "weighted classes": (lambda: heads.multi_class_head(2, weight_column_name="w"), TWO[:, None],
                         [0.878251, 0.847356, 0.820464], 0.619942, {
        "accuracy": 0.705882, "labels/prediction_mean": 0.445001, "labels/actual_label_mean": 0.764706,
        "accuracy/baseline_label_mean": 0.764706, "auc": 1.0, "auc_precision_recall": 1.0,
        "accuracy/threshold_0.500000_mean": 0.705882, "precision/positive_threshold_0.500000_mean": 1.0,
        "recall/positive_threshold_0.500000_mean": 0.615385}),
    "three classes": (
        lambda: heads.multi_class_head(3, weight_column_name="w", metric_class_ids=[1, 2]), IDS[:, None],
        [1.571566, 1.515234, 1.46766], 1.10934, {
            "accuracy": 0.352941, "labels/prediction_mean/class1": 0.0, "labels/actual_label_mean/class1": 0.058824,
            "labels/probability_mean/class1": 0.318559, "labels/logits_mean/class1": -0.224358,
            "labels/prediction_mean/class2": 0.529412, "labels/actual_label_mean/class2": 0.352941,
            "labels/probability_mean/class2": 0.289682, "labels/logits_mean/class2": -0.389009}),
    "words": (lambda: heads.multi_class_head(3, label_keys=["a", "b", "c"]), WORDS, [1.05699, 1.028339, 1.004088],
              1.05699, {"accuracy": 0.5}),
    "a loss of its own": (lambda: heads.multi_class_head(
        3, loss_fn=lambda labels, logits, weights=None: tf.reduce_sum(tf.square(logits)), head_name="c"), IDS,
        [24.709736, 24.948394], 24.709736, {"loss/c": 24.709736, "accuracy/c": 1 / 3}),
    "hinge": (lambda: heads.binary_svm_head(weight_column_name="w"), TWO, [1.074666, 0.976505, 0.878345], 0.758587,
              {"accuracy": 0.705882}),
    "labels": (lambda: heads.multi_label_head(3, metric_class_ids=[1], weight_column_name="w"), LABELS,
               [1.584519, 1.562141, 1.540492], 1.118484, {
        "accuracy": 0.294118, "auc": 0.267692, "auc_precision_recall": 0.528612,
        "labels/prediction_mean/class1": 0.470588, "labels/actual_label_mean/class1": 0.411765,
        "labels/probability_mean/class1": 0.453591, "labels/logits_mean/class1": -0.224358, "auc/class1": 0.142857,
        "auc_precision_recall/class1": 0.252963}),
    "two heads": (lambda: heads.multi_head(
        [heads.learn_regression_head("r", head_name="r"), heads.multi_class_head(3, "i", head_name="i")], [1.0, 0.5]),
        {"r": NUMBERS[:, :1], "i": IDS}, [2.630024, 2.114269, 1.814856], 2.630024, {
        "loss/r": 2.061714, "loss/i": 1.13662, "accuracy/i": 1 / 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_and_metrics_are_those_of_tensorflow_1(name):
    """The losses of some steps; in an evaluation the mean by weights, as was the metric "loss"."""
    make, labels, losses, loss, expected = CASES[name]
    with tf.Graph().as_default():
        ops, session = built(make(), labels)
        assert [session.run([ops.loss, ops.train_op])[0] for _ in losses] == pytest.approx(losses, rel=1e-5)
        assert session.run(tf.train.get_global_step()) == len(losses)
    with tf.Graph().as_default():
        ops, session = built(make(), labels, "eval")
        session.run([update_op for _, update_op in ops.eval_metric_ops.values()])
        found = session.run({metric: value for metric, (value, _) in ops.eval_metric_ops.items()})
        assert found == pytest.approx(expected, rel=1e-4)
        assert session.run(ops.loss) == pytest.approx(loss, rel=1e-5)


def test_predictions_have_their_names():
    """Of numbers the link's; of words the words; of several heads the head's name before; each head is an export."""
    with tf.Graph().as_default():
        ops, session = built(CASES["weighted numbers"][0](), {}, "infer")
        assert session.run(ops.predictions)["scores"] == pytest.approx(2 * X @ np.array([-1.0, 0.0, 1.0]), abs=1e-6)
    with tf.Graph().as_default():
        ops, session = built(CASES["words"][0](), WORDS, "infer")
        found = session.run(ops.predictions)
        assert sorted(found) == ["classes", "logits", "probabilities"] and set(found["classes"]) <= {b"a", b"b", b"c"}
        assert session.run(ops.export_outputs["serving_default"].outputs["classes"])[0].tolist() == [b"a", b"b", b"c"]
    with tf.Graph().as_default():
        ops, _ = built(CASES["two heads"][0](), {}, "infer")
        assert sorted(ops.predictions) == [("i", "classes"), ("i", "logits"), ("i", "probabilities"), ("r", "scores")]
        assert sorted(ops.export_outputs) == ["i", "r", "serving_default"]


def test_a_centered_bias_learns_on_its_own():
    """By Adagrad and the labels; it, its slot and a linear layer have the names that they had."""
    with tf.Graph().as_default():
        head = heads.multi_class_head(2, enable_centered_bias=True, head_name="b")
        ops, session = built(head, TWO, logits_input=tf.constant(X))
        assert sorted(variable.op.name for variable in tf.global_variables()) == [
            "global_step", "m/b/centered_bias_weight", "m/b/logits/biases", "m/b/logits/weights",
            "m/b/m/b/centered_bias_weight/Adagrad"]
        session.run(ops.train_op)
        # The gradient of its own loss is 1/2 - 2/3; that of the loss with all logits is added by the optimizer.
        bias, slot = (next(variable for variable in tf.global_variables() if variable.op.name == name) for name in (
            "m/b/centered_bias_weight", "m/b/m/b/centered_bias_weight/Adagrad"))
        assert session.run(slot) == pytest.approx([0.1 + (1 / 6) ** 2], rel=1e-4)
        assert session.run(bias)[0] > 0.1 * (1 / 6) / np.sqrt(0.1 + 1 / 36)


def test_a_loss_alone_is_a_head():
    """It is added to the others', and has no predictions; without a step it is refused."""
    with tf.Graph().as_default():
        both = heads.multi_head([heads.loss_only_head(lambda: [tf.constant(1.0), tf.constant(2.0)], "reg"),
                                 heads.learn_regression_head(label_dimension=2, head_name="r")])
        ops, session = built(both, NUMBERS, "eval", logits={"r": tf.constant(NUMBERS)})
        assert session.run(ops.loss) == 3.0
        ops, _ = built(both, NUMBERS, "infer", logits={"r": tf.constant(NUMBERS)})
        assert set(ops.predictions) == {("r", "scores")}
        with pytest.raises(ValueError, match="training needs a train_op_fn"):
            both.create_model_fn_ops({}, "train", tf.constant(NUMBERS), logits={"r": tf.constant(NUMBERS)})


@pytest.mark.parametrize(("call", "message"), [
    (lambda: heads.multi_class_head(1), "n_classes must be at least 2; got 1"),
    (lambda: heads.multi_label_head(1), "n_classes must be at least 2; got 1"),
    (lambda: heads.multi_class_head(2, label_keys=["a", "b"]), "label_keys needs three or more classes"),
    (lambda: heads.multi_class_head(2, metric_class_ids=[1]), "metric_class_ids needs three or more classes"),
    (lambda: heads.multi_class_head(3, label_keys=["a"]), "label_keys has 1 words for 3 classes"),
    (lambda: heads.multi_class_head(3, metric_class_ids=[3]), "metric_class_ids has 3; the classes are 0 to 2"),
    (lambda: heads.multi_class_head(3, loss_fn=lambda labels, logits: 0), "weights is missing"),
    (lambda: heads.multi_class_head(3, loss_fn=lambda labels, logits, **others: 0), "weights is missing"),
    (lambda: heads.multi_head([heads.learn_regression_head()]), "each head of multi_head needs a head_name"),
    (lambda: heads.multi_head([heads.learn_regression_head(head_name="r")], [1, 2]), "2 loss_weights for 1 heads"),
    (lambda: heads.learn_regression_head().create_model_fn_ops({}, "train"), "one of logits and logits_input"),
    (lambda: heads.learn_regression_head().create_model_fn_ops({}, "other"), "mode is 'other'")])
def test_wrong_arguments_are_one_line(call, message):
    """With what was given."""
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        call()
