"""Steps to which a script feeds a value for a variable."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ps_train.parts.legacy.names.fed_variables import feed_variables
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.fixture
def session(monkeypatch):
    """A session of a graph for this test only, which feeds variables."""
    with tf.Graph().as_default(), tf.Session() as session:
        monkeypatch.setattr(session, "_run", functools.partial(feed_variables, type(session)._run, session))
        yield session


def _model():
    rate = tf.get_variable("rate", initializer=0.5, trainable=False, use_resource=True)
    weight = tf.get_variable("weight", initializer=[1.0, 2.0], use_resource=True)
    return rate, weight


@pytest.mark.parametrize("key_of", [lambda rate: rate, lambda rate: "rate:0", lambda rate: rate._graph_element])
def test_what_is_fed_for_a_variable_reaches_all_that_reads_it(session, key_of):
    """Its value, a product, and a step of an optimizer; the variable keeps its own."""
    rate, weight = _model()
    product, step = rate * 2.0, tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(weight * weight))
    session.run(tf.global_variables_initializer())
    assert session.run([rate, product], {key_of(rate): 10.0}) == [10.0, 20.0]
    session.run(step, {key_of(rate): 1.0})
    np.testing.assert_allclose(session.run(weight), [-1.0, -2.0])
    assert session.run(rate) == 0.5


def test_what_is_fed_for_a_placeholder_goes_there_alone(session):
    """By itself or by name, beside a variable; a name that is not in the graph is TensorFlow's to refuse."""
    _, weight = _model()
    x = tf.placeholder(tf.float32, name="x")
    session.run(tf.global_variables_initializer())
    assert session.run(weight * x, {x: 2.0}).tolist() == [2.0, 4.0]
    assert session.run(weight * x, {"x:0": 2.0, weight: [3.0, 3.0]}).tolist() == [6.0, 6.0]
    with pytest.raises(TypeError, match="other"):
        session.run(weight, {"other:0": 2.0})


def test_a_variable_with_another_kind_of_read_is_refused(session):
    """The rows that a lookup takes would be those of the variable itself."""
    _, weight = _model()
    rows = tf.nn.embedding_lookup(weight, [0])
    with raises("fed_variable") as caught:
        session.run(rows, {weight: [3.0, 3.0]})
    assert "--reference_variables" in str(caught.value)


def test_only_what_a_step_reads_is_refused(session):
    """A branch that assigns, a lookup that the step does not need or whose rows are fed, and partial runs."""
    _, weight = _model()
    rows, is_new = tf.nn.embedding_lookup(weight, [0]), tf.placeholder(tf.bool)
    new = tf.cond(is_new, lambda: weight.assign([5.0, 6.0]).op, tf.no_op)
    double, beside = weight * 2.0, tf.add(rows, 1.0)
    session.run(tf.global_variables_initializer())
    for _ in range(2):
        assert session.run(double, {weight: [3.0, 3.0]}).tolist() == [6.0, 6.0]
        assert session.run([double, beside], {weight: [3.0, 3.0], rows: [1.0]})[1].tolist() == [2.0]
    session.run([new, double], {weight: [3.0, 3.0], is_new: True})
    assert session.run(rows).tolist() == [5.0]
    run = session.partial_run_setup([double, rows], [weight])
    assert session.partial_run(run, rows).tolist() == [5.0]
    with raises("fed_variable"):
        session.run({"all": [double, beside]}, {weight: [3.0, 3.0]})


def test_a_read_in_a_branch_is_refused(session):
    """It would be taken whatever the condition says."""
    _, weight = _model()
    is_new = tf.placeholder(tf.bool)
    value = tf.cond(is_new, lambda: weight * 2.0, lambda: tf.zeros([2]))
    session.run(tf.global_variables_initializer())
    with raises("fed_variable"):
        session.run(value, {weight: [3.0, 3.0], is_new: True})
