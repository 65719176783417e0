"""tf.contrib.training's strategies of replica_device_setter."""

from __future__ import annotations

import pytest

from ps_train.parts.legacy.names.functions import (
    GreedyLoadBalancingStrategy,
    RandomStrategy,
    byte_size_load_fn,
)
from tests.tensorflow_mode import tf

SHAPES = ((100, 10), (10,), (50, 10), (40, 10), (2,), ())


def _devices(strategy, use_resource):
    setter = tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)
    with tf.Graph().as_default(), tf.device(setter):
        made = [tf.get_variable(f"v{index}", shape, use_resource=use_resource) for index, shape in enumerate(SHAPES)]
        return [int(variable.device[-1]) for variable in made]


@pytest.mark.parametrize("use_resource", [True, False])
def test_each_variable_goes_to_the_ps_with_the_fewest_bytes(use_resource):
    """4000 bytes to ps 0; 40, 2000 and 1600 to ps 1, then still the lighter; 8; 4."""
    assert _devices(GreedyLoadBalancingStrategy(2, byte_size_load_fn), use_resource) == [0, 1, 1, 1, 1, 1]


def test_the_first_ps_is_taken_if_loads_are_equal():
    """A load of 1 each goes round."""
    assert _devices(GreedyLoadBalancingStrategy(2, lambda op: 1), use_resource=True) == [0, 1, 0, 1, 0, 1]


def test_random_is_the_same_in_every_worker():
    """The same seed, the same places; both ps get some."""
    devices = _devices(RandomStrategy(2, seed=3), use_resource=True)
    assert devices == _devices(RandomStrategy(2, seed=3), use_resource=True)
    assert set(devices) == {0, 1}


def test_the_bytes_of_other_operations_are_those_of_their_output():
    """[3, 4] of float64."""
    with tf.Graph().as_default():
        assert byte_size_load_fn(tf.zeros([3, 4], tf.float64).op) == 96
        with pytest.raises(ValueError, match="fully defined"):
            byte_size_load_fn(tf.placeholder(tf.float32, [None]).op)
