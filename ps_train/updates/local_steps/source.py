"""What the steps of a round are made of."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.graph.input.batches import Batches
from ps_train.parts.own_train_op.update import StepModel


class StepSource(NamedTuple):
    """The mini-batches, and the model on one of them.

    Attributes:
      batches: `next()` adds the next mini-batch to the graph.
      build: `build(batch)` adds the model once more.
    """

    batches: Batches
    build: Callable[[Any], StepModel]


def refuse_single_batches(batches: Batches, num_steps: int) -> None:
    """Refuses an input that gives only one mini-batch per session run, to rounds of several steps.

    Raises:
      ConfigError: it does.
    """
    if num_steps > 1 and (batches.is_one_a_run or tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)):
        raise ConfigError("--communication_period: the input comes from queues or from tensors, which give one "
                          "mini-batch per session run, and a round of local steps needs several; let input_fn return "
                          "a tf.data.Dataset, or leave the flag out")
