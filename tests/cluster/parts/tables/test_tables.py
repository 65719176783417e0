"""What a model says about its tables: arguments, names, and the errors of wrong ones."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import ps_train
from ps_train.config import task
from ps_train.parts.tables import hashing, part, registry, rules
from ps_train.parts.tables.row_history import WithHistory
from tests import clusters
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.fixture
def found():
    """The registry of a new graph, with a model that is being built."""
    with tf.Graph().as_default():
        found = registry.install_registry([""], rules.Adam(0.01))
        found.begin_build()
        yield found


_WRONG = {
    "name": (dict(name="a b"), "the name must consist of letters, digits and"),
    "dim": (dict(dim=0), "got dim=0; allowed: whole numbers above 0"),
    "dim of another type": (dict(dim=2.0), "got dim=2.0; allowed: whole numbers"),
    "num_rows": (dict(num_rows=-1), "got num_rows=-1; allowed: whole numbers above 0"),
    "num_hashes": (dict(num_rows=5, num_hashes=-1), "got num_hashes=-1; allowed: whole numbers from 0"),
    "min_count": (dict(min_count=0), "got min_count=0; allowed: whole numbers above 0"),
    "ttl_secs": (dict(ttl_secs=0), "got ttl_secs=0; allowed: numbers above 0"),
    "ttl_secs of a fixed table": (dict(num_rows=5, ttl_secs=3), "only dynamic tables have ttl_secs, and"),
    "l2": (dict(l2=-0.1), "got l2=-0.1; allowed: numbers from 0"),
    "two initial values": (dict(initializer=tf.zeros_initializer(), initial_limit=0.1),
                           "got initializer and initial_limit; allowed: one of them"),
    "expected_rows": (dict(expected_rows=0.5), "got expected_rows=0.5; allowed: whole numbers above 0"),
    "expected rows of a fixed table": (dict(num_rows=5, expected_rows=5), "only dynamic tables have expected_rows"),
    "optimizer": (dict(optimizer="adamax"), "got optimizer='adamax'; allowed: sgd, .*adam, or a rule"),
    "learning_rate": (dict(learning_rate=0.0), "got learning_rate=0.0; allowed: numbers above 0"),
    "learning_rate of another type": (dict(learning_rate="fast"), "got learning_rate='fast'; allowed: numbers"),
    "initial_limit": (dict(initial_limit=-0.1), "got initial_limit=-0.1; allowed: numbers from 0"),
    "hashes of a dynamic table": (dict(num_hashes=2), "num_hashes is for tables with num_rows"),
    "eviction of a fixed table": (dict(num_rows=5, ttl_steps=3, max_rows=4),
                                  "only dynamic tables have ttl_steps, max_rows, and num_rows makes a fixed table"),
}


@pytest.mark.parametrize("arguments, message", _WRONG.values(), ids=_WRONG)
def test_a_wrong_argument_is_one_line(found, arguments, message):
    """It names the table, what was given, and what is allowed."""
    with raises("bad_table_argument") as caught:
        ps_train.embedding_table(**{"name": "items", "dim": 2, **arguments})
    assert re.match(f"embedding_table '.*': {message}", str(caught.value)) and "\n" not in str(caught.value)
    assert found.specs == {}


@pytest.mark.parametrize("flags", [[], ["--embedding_optimizer=adagrad"]], ids=["of all tables", "of one"])
def test_a_rule_that_the_model_names_has_the_constants_of_the_flags(flags):
    """If it is that of --optimizer. A rule that the model makes, and others that it names, have their own."""
    config = task.parse_task(
        ["--optimizer=adam", "--adam_beta2=0.9", "--epsilon=0.001", "--learning_rate=0.5", *flags], {})
    with tf.Graph().as_default():
        part.TablesPart(config, clusters.GraphCluster(1, 1).view("worker", 0)).begin_graph()
        ps_train.embedding_table("named", 2, optimizer="adam")
        ps_train.embedding_table("noting", 2, optimizer="adam", history=True)
        ps_train.embedding_table("slow", 2, optimizer="adam", learning_rate=0.1)
        ps_train.embedding_table("made", 2, optimizer=rules.Adam())
        ps_train.embedding_table("other", 2, optimizer="ftrl")
        found = {name: spec.rule for name, spec in registry.current_registry().specs.items()}
    adam = rules.Adam(0.5, beta2=0.9, epsilon=0.001)
    assert found == {"named": adam, "noting": WithHistory(0.5, adam), "slow": dataclasses.replace(
        adam, learning_rate=0.1), "made": rules.Adam(0.5), "other": rules.Ftrl(0.5)}


def test_numpys_numbers_are_numbers(found):
    """A parameter that was computed may be one."""
    table = ps_train.embedding_table("items", np.int64(4), num_rows=np.int32(10), learning_rate=np.float32(0.5))
    assert table.lookup([1]).shape == [1, 4]
    assert found.specs["items"].rule == rules.Adam(0.5)


def test_a_name_is_used_once_in_a_model_and_again_in_its_next_build(found):
    """A second table of the name is refused; a second call of model_fn has to make it with the same arguments."""
    ps_train.embedding_table("items", 2)
    with raises("table_named_twice"):
        ps_train.embedding_table("items", 2)
    found.begin_build()
    ps_train.embedding_table("items", 2)
    found.begin_build()
    with raises("table_differs"):
        ps_train.embedding_table("items", 3)


def test_the_rule_comes_from_the_table_or_from_the_flags(found):
    """A table's rate goes with its own rule, or with that of the flags; a rule's other settings stay."""
    for name, options in {"none": {}, "name": {"optimizer": "sgd"}, "rate": {"learning_rate": 0.5},
                          "both": {"optimizer": "ftrl", "learning_rate": 0.5},
                          "rule": {"optimizer": rules.Ftrl(l1=0.1), "learning_rate": 0.5}}.items():
        ps_train.embedding_table(name, 2, **options)
    assert {name: spec.rule for name, spec in found.specs.items()} == {
        "none": rules.Adam(0.01), "name": rules.Sgd(0.01), "rate": rules.Adam(0.5), "both": rules.Ftrl(0.5),
        "rule": rules.Ftrl(0.5, l1=0.1)}


def test_the_names_of_other_frameworks_make_the_same_table(found):
    """get_embedding_variable, with 0 for what is not wanted."""
    ps_train.get_embedding_variable("items", 4, capacity=1000, filter_freq=3, steps_to_live=50, initial_limit=0.5)
    ps_train.get_embedding_variable("plain", embedding_dim=4, steps_to_live=0)
    assert found.specs["items"] == rules.TableSpec(
        "items", 4, rule=rules.Adam(0.01), min_count=3, ttl_steps=50, max_rows=1000, initial_limit=0.5)
    assert found.specs["plain"] == rules.TableSpec("plain", 4, rule=rules.Adam(0.01))


def test_ids_of_a_wrong_type_are_refused(found):
    """Floats always; strings where ids are row numbers; an unknown combiner."""
    fixed, dynamic = ps_train.embedding_table("fixed", 2, num_rows=5), ps_train.embedding_table("dynamic", 2)
    with raises("bad_id_type"):
        dynamic.lookup(tf.constant([1.0]), name="ages")
    with raises("bad_id_type"):
        fixed.lookup(tf.constant(["a"], name="words"))
    with raises("unknown_combiner"):
        fixed.lookup_sparse(tf.SparseTensor([[0, 0]], [1], [1, 1]), combiner="max")


_INITIALIZERS = {
    "uniform": (lambda: tf.random_uniform_initializer(-0.25, 0.25, seed=7), ("uniform", 0.0, 0.25)),
    "uniform of TensorFlow 2": (lambda: tf.compat.v2.random_uniform_initializer(-0.25, 0.25), ("uniform", 0.0, 0.25)),
    "uniform from 0": (lambda: tf.random_uniform_initializer(0, 1), ("uniform", 0.5, 0.5)),
    "zeros": (tf.zeros_initializer, ("constant", 0.0, 0.0)),
    "zeros, not called": (lambda: tf.zeros_initializer, ("constant", 0.0, 0.0)),
    "ones": (tf.ones_initializer, ("constant", 1.0, 0.0)),
    "constant": (lambda: tf.constant_initializer(-3), ("constant", -3.0, 0.0)),
    "normal": (lambda: tf.truncated_normal_initializer(0.5, 0.25), ("truncated_normal", 0.5, 0.25)),
}


@pytest.mark.parametrize("make, initial", _INITIALIZERS.values(), ids=_INITIALIZERS)
def test_an_initializer_that_a_table_can_have_gives_its_first_values(found, make, initial):
    """Those of TensorFlow; the other arguments of DeepRec that change nothing are taken with it."""
    ps_train.get_embedding_variable(
        "items", 4, initializer=make(), key_dtype=tf.int64, value_dtype=tf.float32, trainable=True, steps_to_live=None,
        partitioner=tf.fixed_size_partitioner(4), collections=[tf.GraphKeys.GLOBAL_VARIABLES], ev_option=None,
        steps_to_live_l2reg=0, init_data_source=None, validate_shape=False)
    assert found.specs["items"] == rules.TableSpec("items", 4, rule=rules.Adam(0.01), initial=hashing.Initial(*initial))


_NOT_IN_A_TABLE = {
    "normal": (dict(initializer=tf.random_normal_initializer(stddev=0.1)),
               "an initializer of type RandomNormal; allowed: tf.random_uniform_initializer\\(a, b\\), tf.zeros_"),
    "uniform the other way": (dict(initializer=tf.random_uniform_initializer(1, 0)), "an initializer of type RandomUn"),
    "several numbers": (dict(initializer=tf.constant_initializer([1.0, 2.0])), "an initializer of type Constant"),
    "a function": (dict(initializer=lambda shape: tf.zeros(shape)), "an initializer of type function"),
    "two limits": (dict(initializer=tf.zeros_initializer(), initial_limit=0.1),
                   "initializer and initial_limit; allowed: one of them"),
    "trainable": (dict(trainable=False), "trainable=False; allowed: True; .* use tf.stop_gradient"),
    "ev_option": (dict(ev_option={}), "ev_option={}; allowed: None; give filter_freq"),
    "l2": (dict(steps_to_live_l2reg=100), "steps_to_live_l2reg=100; allowed: None; give steps_to_live"),
    "source": (dict(init_data_source="oss://x"), "init_data_source='oss://x'; allowed: None"),
    "collections": (dict(collections=["mine"]), "collections=\\['mine'\\]; allowed: None; a table is no variable"),
    "key_dtype": (dict(key_dtype=tf.float32), "key_dtype=tf.float32; allowed: integers, or tf.string"),
    "value_dtype": (dict(value_dtype=tf.float16), "value_dtype=tf.float16; allowed: tf.float32 and tf.bfloat16"),
    "filter_freq": (dict(filter_freq="often"), "filter_freq='often'; allowed: whole numbers from 0"),
    "the name of a table's argument": (dict(min_count=3), "min_count=3; allowed: None; it is called filter_freq here"),
    "unknown": (dict(dimension=3), "dimension=3; allowed: the names capacity, filter_freq, .*num_hashes, history$"),
}


@pytest.mark.parametrize("arguments, message", _NOT_IN_A_TABLE.values(), ids=_NOT_IN_A_TABLE)
def test_what_a_table_cannot_do_of_other_frameworks_is_one_line(found, arguments, message):
    """It says what was given and what is allowed; no table is made."""
    with raises("bad_table_argument") as caught:
        ps_train.get_embedding_variable("items", 4, **arguments)
    assert re.match(f"(get_embedding_variable|embedding_table) 'items': got {message}", str(caught.value))
    assert "\n" not in str(caught.value)
    assert found.specs == {}


@pytest.mark.parametrize("rule, message", [
    (rules.Adagrad(initial_accumulator=0.0), "Adagrad with initial_accumulator=0; allowed: numbers above 0"),
    (rules.RowwiseAdagrad(initial_accumulator=-1), "RowwiseAdagrad with initial_accumulator=-1; allowed: numbers from"),
    (rules.Ftrl(l1=-0.5), "Ftrl with l1=-0.5; allowed: numbers from 0"),
    (rules.Adam(beta2=1.0), "Adam with beta2=1.0; allowed: numbers from 0 and below 1"),
    (rules.Adam(epsilon=0), "Adam with epsilon=0; allowed: numbers above 0"),
    (rules.Momentum(learning_rate=float("nan")), "Momentum with learning_rate=nan; allowed: numbers above 0"),
], ids=str)
def test_a_constant_with_which_a_rule_would_make_nan_is_one_line(found, rule, message):
    """Adagrad without a first sum divides 0 by 0 where a gradient is 0."""
    with raises("bad_table_argument") as caught:
        ps_train.embedding_table("items", 2, optimizer=rule)
    assert f"embedding_table 'items': got {message}" in str(caught.value)
    ps_train.embedding_table("items", 2, optimizer=rules.Ftrl(initial_accumulator=0.0))  # has a rule for that


def _sparse(values, indices=((0, 0), (1, 0))):
    return tf.SparseTensor(np.array(indices, np.int64)[:len(values)], values, [2, 1])


_WRONG_LOOKUPS = {
    "embedding_lookup": (lambda table: tf.nn.embedding_lookup(table, [1]), "table_is_no_tensor"),
    "embedding_lookup_sparse": (lambda table: tf.nn.embedding_lookup_sparse(table, _sparse([1, 2]), None),
                                "table_is_no_tensor"),
    "safe lookup": (lambda table: tf.nn.safe_embedding_lookup_sparse(table, _sparse([1, 2])), "table_is_no_tensor"),
    "gather": (lambda table: tf.gather(table, [1]), "table_is_no_tensor"),
    "sparse ids": (lambda table: table.lookup(_sparse([1, 2])), "bad_id_type"),
    "dense ids": (lambda table: table.lookup_sparse(tf.constant([1])), "bad_sparse_type"),
    "dense weights": (lambda table: table.lookup_sparse(_sparse([1, 2]), [1.0, 2.0]), "bad_sparse_type"),
    "one weight": (lambda table: table.lookup_sparse(_sparse([1, 2]), _sparse([1.0])), "bad_weights"),
    "weights of another type": (lambda table: table.lookup_sparse(_sparse([1, 2]), _sparse(["a", "b"])), "bad_weights"),
}


@pytest.mark.parametrize("look_up, code", _WRONG_LOOKUPS.values(), ids=_WRONG_LOOKUPS)
def test_a_wrong_lookup_is_one_line(found, look_up, code):
    """While the model is built."""
    with raises(code) as caught:
        look_up(ps_train.embedding_table("items", 2))
    assert "\n" not in str(caught.value)


def test_a_model_that_is_built_by_hand_gets_tables_of_one_process():
    """model_fn in a notebook, without ps_train around it."""
    with tf.Graph().as_default():
        assert ps_train.embedding_table("items", 2).lookup([[1, 2]]).shape == [1, 2, 2]
