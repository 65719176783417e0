"""The models of clicks: their logits against numpy, and that factorisation learns what a linear model cannot."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ps_train
from models import click_model, dlrm
from ps_train import testing
from ps_train.parts.tables import connection, registry
from ps_train.parts.tables.store_ops import Piece
from ps_train.parts.tables.table_files import TableFiles
from ps_train.plugins import loader
from tests.cluster.models.test_click_metrics import exact_auc, exact_group_auc
from tests.errors import raises
from tests.tensorflow_mode import tf

NUM_ROWS, FIELDS, NUMBERS = 60, 4, 3
SIZES = {"num_rows": NUM_ROWS, "dim": 5, "layers": "7x6", "bottom_layers": "8", "top_layers": "9"}
MODELS = ["logistic_regression", "wide_deep", "deepfm", "dlrm"]


def batch(num=50, seed=0):
    """Returns random features and labels."""
    rng = np.random.default_rng(seed)
    features = {"numbers": rng.normal(size=(num, NUMBERS)).astype(np.float32),
                "ids": rng.integers(0, NUM_ROWS, (num, FIELDS))}
    return features, rng.integers(0, 2, num).astype(np.float32)


def build(name, features, labels, mode=ps_train.EVAL, **params):
    """Adds a model to the current graph."""
    model = loader.load_model(f"models.{name}")
    own = {**model.default_params, **{key: SIZES[key] for key in SIZES if key in model.default_params}, **params}
    spec = model.model_fn(features=features, labels=labels, mode=mode, params=own)
    connection.connect_lookups()
    return spec


def make_tables(session):
    """Gives the rows of fixed tables random values, and returns them by table."""
    tables = TableFiles(registry.current_registry())
    tables.reset(session)
    values = {}
    for name, spec in tables.specs.items():
        values[name] = np.random.default_rng(len(name)).normal(0, 0.5, (NUM_ROWS, spec.dim)).astype(np.float32)
        piece = Piece(tf.range(NUM_ROWS, dtype=tf.int64), tf.ones([NUM_ROWS], tf.int32), tf.constant(values[name]),
                      tf.zeros([NUM_ROWS, 0]))
        [store] = tables.stores[name]
        session.run(store.load_piece(piece, keeps_present=tf.constant(False)))
    return values


def evaluated(name, has_numbers=True):
    """Returns (features, labels, logits, loss, variables by name, rows by table) of a model with random values."""
    features, labels = batch()
    features = features if has_numbers else {"ids": features["ids"]}
    with tf.Graph().as_default(), tf.Session() as session:
        spec = build(name, {key: tf.constant(value) for key, value in features.items()}, tf.constant(labels))
        rng = np.random.default_rng(1)
        for variable in tf.global_variables():
            session.run(tf.assign(variable, rng.normal(0, 0.5, variable.shape).astype(np.float32)))
        tables = make_tables(session)
        logits, loss = session.run([spec.predictions["logits"], spec.loss])
        return features, labels, logits, loss, {v.op.name: session.run(v) for v in tf.global_variables()}, tables


def layer(variables, name, inputs):
    """Returns inputs @ weights + biases."""
    return inputs @ variables[f"{name}/weights"] + variables[f"{name}/biases"]


def relu_layers(variables, name, inputs):
    """Returns the last of the ReLU layers below a name."""
    for number in itertools.count(1):
        if f"{name}/layer_{number}/weights" not in variables:
            return inputs
        inputs = np.maximum(layer(variables, f"{name}/layer_{number}", inputs), 0)


def products_of_pairs(vectors):
    """Returns [batch, pairs] of [batch, n, dim]."""
    n = vectors.shape[1]
    return np.stack([(vectors[:, i] * vectors[:, j]).sum(axis=1) for i in range(n) for j in range(i)], axis=1)


def expected(name, numbers, rows, v):
    """Returns the logits of a model; `rows` returns the rows of a table."""
    if name == "logistic_regression":
        return layer(v, "numbers", numbers)[:, 0] + rows("wide").sum(axis=(1, 2))
    if name == "dlrm":
        bottom = relu_layers(v, "bottom", numbers)
        products = products_of_pairs(np.concatenate([bottom[:, None], rows("dlrm")], axis=1))
        return layer(v, "output", relu_layers(v, "top", np.concatenate([bottom, products], axis=1)))[:, 0]
    if name == "deepfm":
        weights, vectors = rows("deepfm")[:, :, :1], rows("deepfm")[:, :, 1:]
        second_order = products_of_pairs(vectors).sum(axis=1)
    else:
        weights, vectors, second_order = rows("wide"), rows("deep"), 0
    joined = np.concatenate([vectors.reshape(len(vectors), -1), numbers], axis=1)
    deep = layer(v, "output", relu_layers(v, "perceptron", joined))[:, 0]
    return layer(v, "numbers", numbers)[:, 0] + weights.sum(axis=(1, 2)) + second_order + deep


@pytest.mark.parametrize("has_numbers", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_loss_are_those_of_numpy(name, has_numbers):
    """Each part of the model counts, with the biases; without numbers, those of one zero."""
    features, labels, logits, loss, variables, tables = evaluated(name, has_numbers)

    def rows(table):
        return tables[table][features["ids"]]

    wanted = expected(name, features.get("numbers", np.zeros((len(labels), 1))), rows, variables)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss, np.mean(np.logaddexp(0, wanted) - labels * wanted), rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_dataset_without_ids_is_refused_in_a_line(name):
    """It says what the dataset has."""
    features, labels = batch()
    with tf.Graph().as_default(), raises("feature_missing"):
        build(name, {"numbers": tf.constant(features["numbers"])}, tf.constant(labels))


@pytest.mark.parametrize("shapes", [{"ids": [None, None]}, {"numbers": [None, None]}, {"ids": [None]}, {"ids": None}])
@pytest.mark.parametrize("name", MODELS)
def test_a_feature_of_another_shape_is_refused_in_a_line(name, shapes):
    """As padded_batch and serving_input_fn make them. Issue: "__int__ returned non-int", in the code of the model."""
    with tf.Graph().as_default():
        features = {key: tf.placeholder(dtype, shapes.get(key, [None, 2]), name=key)
                    for key, dtype in (("ids", tf.int64), ("numbers", tf.float32))}
        if name == "logistic_regression" and shapes == {"ids": [None, None]}:
            build(name, features, None)  # it adds up the weights of any number of ids
            return
        with raises("feature_shape"):
            build(name, features, None)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_without_labels(name):
    """In mode "infer" the loss is None, with a probability for each example; any id is taken."""
    features, _ = batch()
    features["ids"] = features["ids"] + 2**62
    with tf.Graph().as_default(), tf.Session() as session:
        spec = build(name, {key: tf.constant(value) for key, value in features.items()}, None, ps_train.PREDICT,
                     num_rows=0)
        session.run(tf.global_variables_initializer())
        TableFiles(registry.current_registry()).reset(session)
        assert spec.loss is None
        probabilities = session.run(spec.predictions["probabilities"])
        assert probabilities.shape == (50,)
        assert np.all((probabilities > 0) & (probabilities < 1))


@pytest.mark.parametrize(("name", "params", "least", "most"), [
    ("logistic_regression", "", 0.4, 0.6), ("wide_deep", "", 0.95, 1), ("deepfm", "num_rows=40", 0.95, 1),
    ("dlrm", "", 0.95, 1)])
def test_only_a_model_of_pairs_learns_pairs(tmp_path, name, params, least, most):
    """After training on tables of both kinds, models with vectors tell held-out examples, and a linear one guesses."""
    found = testing.run_in_threads(
        f"models.{name}", "tests.plugins.tiny_clicks", train_dir=tmp_path, num_workers=1, train_steps=400,
        batch_size=100, seed=1, learning_rate=0.02, num_gpus=0, log_steps=0,
        params=f"{params or 'num_rows=0'},kind=pairs")
    assert least <= found.evaluation.metrics["auc"] <= most


def test_layers_are_units_with_an_x_between():
    """Anything else is one line."""
    assert click_model.parse_layers("128x64") == [128, 64]
    for text in ("", "128,64", "128x", "0", "-3", "1x2.5"):
        with raises("parameter_malformed"):
            click_model.parse_layers(text)


def test_products_are_those_of_each_pair_once():
    """27 vectors, as of Criteo's 26 fields and the numbers, have 351."""
    with tf.Graph().as_default():
        assert dlrm.pairs(tf.zeros([2, 27, 8])).shape.as_list() == [2, 351]


@pytest.mark.parametrize("num_groups", [NUM_ROWS, 1])
def test_deepfm_weighs_examples_and_reports_the_auc_by_group(num_groups):
    """The loss is the mean of weight times log loss; every metric has the weights; the groups are ids of a field."""
    features, labels = batch()
    features["weight"] = np.random.default_rng(3).integers(0, 3, len(labels)).astype(np.float32)
    params = {"weight": "weight", "group_field": 1, "num_groups": num_groups}
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(3)  # two logits in one bin would count as a tie
        spec = build("deepfm", {key: tf.constant(value) for key, value in features.items()}, tf.constant(labels),
                     **params)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        make_tables(session)
        logits, loss = session.run([spec.predictions["logits"], spec.loss])
        session.run([update_op for _, update_op in spec.eval_metric_ops.values()])
        found = session.run({name: value for name, (value, _) in spec.eval_metric_ops.items()})
    weights, losses = features["weight"], np.logaddexp(0, logits) - labels * logits
    assert loss == pytest.approx((weights * losses).mean(), rel=1e-5)
    assert found["log_loss"] == pytest.approx((weights * losses).sum() / weights.sum(), rel=1e-5)
    assert found["auc"] == pytest.approx(
        exact_auc(*(np.repeat(values, weights.astype(int)) for values in (labels, logits))), abs=1e-4)
    exact = exact_group_auc(labels, logits, features["ids"][:, 1], weights) if num_groups > 1 else np.nan
    assert found["gauc"] == pytest.approx(exact, abs=1e-2, nan_ok=True)


@pytest.mark.parametrize(("params", "code"), [
    ({"weight": "price"}, "feature_missing"), ({"group_field": FIELDS}, "parameter_out_of_range"),
    ({"num_groups": 0}, "parameter_out_of_range"),
])
def test_a_feature_or_a_field_that_is_not_there_is_refused(params, code):
    """In one line that says what there is."""
    features, labels = batch()
    with tf.Graph().as_default(), raises(code):
        build("deepfm", {key: tf.constant(value) for key, value in features.items()}, tf.constant(labels), **params)
