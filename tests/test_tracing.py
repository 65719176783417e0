"""Which session runs are steps, and from where they begin."""

from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

from ps_train import tracing
from ps_train.tracing import TracedSession


class FakeSession:
    """A session whose status is the global step that it was given."""

    def __init__(self):
        self.step = 0

    def run(self, fetches, options):
        return [self.step, 1]


@pytest.fixture
def traced():
    """A TracedSession, with what it runs on, and the Begin of each step that it ran."""
    graph = types.SimpleNamespace(single=types.SimpleNamespace(progress=object()), status=object())
    made = types.SimpleNamespace(session=FakeSession(), beats=types.SimpleNamespace(step=0), status=graph.status,
                                 step={"progress": graph.single.progress, "loss": "loss"}, begins=[])

    def run_step(session, begin, fetches, options):
        made.begins.append(begin)
        if isinstance(made.session.step, Exception):
            raise made.session.step

    made.run = TracedSession(made.session, graph, made.beats, run_step).run
    return made


def test_a_step_begins_where_the_run_before_has_brought_the_worker(traced):
    """First where the training stood, however old the beats are; then where the loop says that it is."""
    traced.beats.step, traced.session.step = 900, 400  # a training that was restored to an earlier step
    traced.run(traced.status, None)
    traced.run(traced.step, None)
    traced.beats.step = 402
    traced.run(traced.step, None)
    assert [begin.step for begin in traced.begins] == [400, 402]


def test_a_worker_is_held_up_from_the_end_of_its_last_step(traced, monkeypatch):
    """While the loop asks for the status between two steps; asking before the first one is no wait."""
    now = iter([10.0, 20.0, 30.0])
    monkeypatch.setattr(tracing.time, "time", lambda: next(now))
    for fetches in (traced.status, traced.step, traced.step, traced.status, traced.status, traced.step):
        traced.run(fetches, None)
    assert [begin.held_secs for begin in traced.begins] == [None, None, 20.0]


def test_a_step_that_failed_holds_nobody_up(traced):
    """The loop then asks for the status, and tries again."""
    traced.run(traced.step, None)
    traced.session.step = ValueError("not finite")
    with pytest.raises(ValueError):
        traced.run(traced.step, None)
    traced.session.step = 7
    traced.run("what is left of a round", None)
    traced.run(traced.status, None)
    traced.run(traced.step, None)
    assert (traced.begins[-1].step, traced.begins[-1].held_secs) == (7, None)


def test_nodes_behind_a_change_on_a_ps_are_told_from_gradients():
    """The pull and the gradients are before it; what is read or noted after it, in any order, is behind."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:1/cpu:0"):
            weights = tf.get_variable("weights", [], use_resource=True)
            pulled = weights.read_value()
        with tf.device("/job:worker/task:0/cpu:0"):
            own = tf.get_variable("own", [], use_resource=True)
            gradient = tf.multiply(pulled, own.assign_add(1.0).read_value(), name="gradient")
        with tf.device("/job:ps/task:1/cpu:0"):
            changed = weights.assign_sub(gradient, read_value=False)
        with tf.device("/job:worker/task:0/cpu:0"), tf.control_dependencies([changed]):
            noted = tf.constant(1.0, name="noted")
        tf.add(gradient, pulled, name="before")
        tf.add(gradient, noted, name="behind")
    found = tracing.answered(graph)
    assert found >= {"noted", "behind", changed.name}
    assert found.isdisjoint({"gradient", "before", pulled.op.name})
