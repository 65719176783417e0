"""The rules of rows, against numpy and against TensorFlow's own optimizers on a table whose rows are all touched."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps_train.parts.legacy.deeprec.layout import Counted
from ps_train.parts.tables import rules
from ps_train.parts.tables.row_history import WithHistory
from tests.cluster.parts.tables.sharded import ShardedTable
from tests.tensorflow_mode import tf

_ROWS, _DIM, _UPDATES = 5, 3, 4
_RULES = {
    "sgd": (rules.Sgd(0.1), lambda: tf.train.GradientDescentOptimizer(0.1)),
    "momentum": (rules.Momentum(0.1, momentum=0.8), lambda: tf.train.MomentumOptimizer(0.1, 0.8)),
    "adagrad": (rules.Adagrad(0.1), lambda: tf.train.AdagradOptimizer(0.1)),
    "ftrl": (rules.Ftrl(0.1), lambda: tf.train.FtrlOptimizer(0.1)),
    "ftrl with l1": (rules.Ftrl(0.1, l1=0.5),
                     lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.5)),
    "ftrl with l1 and l2": (
        rules.Ftrl(0.1, l1=0.3, l2=0.7, initial_accumulator=0.4),
        lambda: tf.train.FtrlOptimizer(0.1, initial_accumulator_value=0.4, l1_regularization_strength=0.3,
                                       l2_regularization_strength=0.7)),
    "adam": (rules.Adam(0.1), lambda: tf.train.AdamOptimizer(0.1)),  # the same where every row is touched
}


def _data(seed=0):
    """Returns first values [rows, dim] and gradients [updates, rows, dim]."""
    random = np.random.default_rng(seed)
    return (random.normal(size=[_ROWS, _DIM]).astype(np.float32),
            random.normal(size=[_UPDATES, _ROWS, _DIM]).astype(np.float32))


def _by_rule(rule, values, gradients, settles=False):
    """Returns the values after all updates, and the slots."""
    with tf.Graph().as_default(), tf.Session() as session:
        dim = values.shape[1]
        rows, gradient = tf.placeholder(tf.float32, [None, dim + rule.num_slots(dim)]), tf.placeholder(
            tf.float32, [None, dim])
        number = tf.placeholder(tf.float32, [])
        updated = rule.update(rows, gradient, number)
        updated = rule.settle(updated) if settles else updated
        now = np.concatenate([values, session.run(rule.first_slots(tf.constant(len(values)), dim))], 1)
        for count, own in enumerate(gradients):
            now = session.run(updated, {rows: now, gradient: own, number: count + 1})
    return now[:, :dim], now[:, dim:]


def _by_tensorflow(make_optimizer, values, gradients):
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("table", initializer=values)
        gradient = tf.placeholder(tf.float32, variable.shape)
        train_op = make_optimizer().apply_gradients([(gradient, variable)])
        session.run(tf.global_variables_initializer())
        for own in gradients:
            session.run(train_op, {gradient: own})
        return session.run(variable)


@pytest.mark.parametrize("rule, make_optimizer", _RULES.values(), ids=_RULES)
def test_a_rule_gives_the_numbers_of_tensorflows_optimizer(rule, make_optimizer):
    """Four updates of all rows of a table."""
    values, gradients = _data()
    np.testing.assert_allclose(_by_rule(rule, values, gradients)[0], _by_tensorflow(make_optimizer, values, gradients),
                               rtol=2e-5, atol=1e-6)


def test_an_l1_penalty_makes_values_exactly_zero():
    """Ftrl with a penalty above the sum of the gradients; a row without any gradient stays finite."""
    values, gradients = _data()
    gradients[:, 0] = 0.0
    found, _ = _by_rule(rules.Ftrl(0.1, l1=100.0, initial_accumulator=0.0), values, gradients)
    np.testing.assert_array_equal(found, np.zeros_like(values))
    found, _ = _by_rule(rules.Ftrl(0.1, initial_accumulator=0.0), values, gradients)
    assert np.isfinite(found).all()


def test_rowwise_adagrad_has_one_sum_for_a_row():
    """sum += mean(g^2); value -= rate * g / sqrt(sum)."""
    values, gradients = _data()
    found, slots = _by_rule(rules.RowwiseAdagrad(0.1), values, gradients)
    total = np.full([_ROWS, 1], 0.1)
    for own in gradients:
        total = total + np.mean(own**2, axis=1, keepdims=True)
        values = values - 0.1 * own / np.sqrt(total)
    np.testing.assert_allclose(found, values, rtol=1e-5)
    np.testing.assert_allclose(slots, total, rtol=1e-6)


def test_lazy_adam_corrects_the_bias_by_the_updates_of_the_table():
    """A row that is touched for the first time in update 7 takes the step of Adam's seventh update."""
    rule, gradient = rules.Adam(0.1), np.array([[2.0, -1.0]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(rule.update(tf.zeros([1, 6]), tf.constant(gradient), tf.constant(7.0)))
    mean, square = 0.1 * gradient, 0.001 * gradient**2
    rate = 0.1 * np.sqrt(1 - 0.999**7) / (1 - 0.9**7)
    expected = np.concatenate([-rate * mean / (np.sqrt(square) + 1e-8), mean, square], 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("name", rules.RULES)
def test_every_rule_takes_an_empty_batch_and_settles_to_what_it_was(name):
    """No rows in, no rows out; rows that one worker alone has changed are settled already."""
    rule = rules.RULES[name]().with_defaults(0.1)
    values, gradients = _data(1)
    assert rule.name == name
    assert _by_rule(rule, values[:0], gradients[:, :0])[0].shape == (0, _DIM)
    for found, settled in zip(_by_rule(rule, values, gradients), _by_rule(rule, values, gradients, settles=True)):
        np.testing.assert_allclose(found, settled, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", [
    *(rule().with_defaults(0.1) for rule in rules.RULES.values()), rules.Ftrl(0.1, l1=0.3, l2=0.7),
    rules.Ftrl(0.1, initial_accumulator=0.0), WithHistory(0.1, rules.Ftrl(0.1, l1=0.3)),
    Counted(0.1, rules.Ftrl(0.1), first=1)], ids=str)
def test_given_values_stay_without_gradients(rule):
    """An update of zeros leaves them, and settling does: FTRL computes values from its sums alone."""
    values = _data()[0]
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.concat([tf.constant(values), rule.slots_for(tf.constant(values))], 1)
        updated = rule.update(rows, tf.zeros_like(values), tf.constant(1.0))
        for found in session.run([rule.settle(rows), updated]):
            np.testing.assert_allclose(found[:, :_DIM], values, rtol=1e-5, atol=1e-6)
        assert rows.shape[1] == _DIM + rule.num_slots(_DIM)


def test_ftrl_goes_on_from_given_values():
    """With the values that were given in place of those that it would have reached."""
    values, gradients = _data()
    rule = rules.Ftrl(0.1, l1=0.3, l2=0.7, initial_accumulator=0.4)
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.concat([tf.constant(values), rule.slots_for(tf.constant(values))], 1)
        found = session.run(rule.update(rows, tf.constant(gradients[0]), tf.constant(1.0)))[:, :_DIM]
    strength = np.sqrt(0.4 + gradients[0]**2) / 0.1 + 2 * 0.7
    pull = strength * values + 0.3 * np.sign(values) - gradients[0]
    expected = np.sign(pull) * np.maximum(np.abs(pull) - 0.3, 0) / strength
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", [rules.Adagrad(1, 1), rules.Adagrad(0.1, np.float64(1)), rules.RowwiseAdagrad(1, 1),
                                  rules.Ftrl(1, 1, 1, 1), rules.Ftrl(0.1, initial_accumulator=np.float64(1)),
                                  rules.Momentum(1, 1), rules.Adam(np.float64(1), 0, 0, 1)], ids=str)
def test_constants_may_be_whole_numbers_and_those_of_numpy(rule):
    """With the numbers of floats."""
    values, gradients = _data()
    assert rule.first_slots(tf.constant(1), _DIM).dtype == tf.float32
    as_floats = dataclasses.replace(rule, **{name: float(value) for name, value in dataclasses.asdict(rule).items()})
    for found, expected in zip(_by_rule(rule, values, gradients), _by_rule(as_floats, values, gradients)):
        np.testing.assert_array_equal(found, expected)


def test_a_rules_own_rate_wins_over_the_flag():
    """with_defaults fills in a missing rate only."""
    assert rules.Sgd().with_defaults(0.5).learning_rate == 0.5
    assert rules.Sgd(0.1).with_defaults(0.5).learning_rate == 0.1


def test_a_rule_of_the_users_own_has_a_name_for_the_checkpoint():
    """Not that of tables that are only read, with which a checkpoint of any rule could be read."""
    @dataclasses.dataclass(frozen=True)
    class Signed(rules.Sgd):
        """Steps by the sign of the gradient."""

    assert Signed(0.1).name == "signed"
    assert rules.Frozen(0.0).name == rules.FROZEN


@pytest.mark.parametrize("name", rules.RULES)
def test_an_l2_penalty_adds_the_value_to_the_gradient(name):
    """Under any rule: as the same rule with the gradients that numpy adds up."""
    rule, penalty = rules.RULES[name]().with_defaults(0.1), 0.3
    ids, gradients = np.arange(_ROWS), _data()[1]
    with ShardedTable(rule, dim=_DIM, l2=penalty) as table, ShardedTable(rule, dim=_DIM) as plain:
        table.reset(), plain.reset()
        for number, own in enumerate(gradients):
            touched = ids[number % 2:]
            plain.update(touched, own[touched] + penalty * plain.values(touched))
            table.update(touched, own[touched])
        np.testing.assert_allclose(table.rows(ids), plain.rows(ids), rtol=1e-5, atol=1e-7)
