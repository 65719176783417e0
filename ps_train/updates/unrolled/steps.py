"""Several steps in one session run (--steps_per_execution): copies of a step's operations follow one another in it.

    ps 0     read --+    apply, count --> read --+    apply, count --> ... --> the progress of all steps
                    v    ^                       v    ^
    worker          step 1                       step 2

Each is a whole single step, which pulls what the step before it and the other workers have made of the parameters, and
pushes its own gradients. Only what a session run costs by itself is shared: of a small model that is most of a step.

How a step is copied, and what holds the copies in order without a transfer: clones.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.graph import transfer
from ps_train.updates.unrolled import clones


class Execution(NamedTuple):
    """What a session run fetches.

    Attributes:
      num_steps: how many steps it makes, or rounds of them.
      progress: int64 [num_steps, 6], a `replica_graph.StepStatus` after each, read on ps 0; to compute it is to train.
      loss: scalar, of the last mini-batch.
    """

    num_steps: int
    progress: tf.Tensor
    loss: tf.Tensor


class Several(NamedTuple):
    """Several steps.

    Attributes:
      execution: all of them.
      rest: int64 scalar, how many of them were made by a session run that failed; 0 after one that did not, and once
        it was read.
      forget_op: makes it 0.
    """

    execution: Execution
    rest: tf.Tensor
    forget_op: tf.Operation


def several(
    first: Execution, num_steps: int, pulled: Iterable[transfer.View], worker: int, first_ps: str
) -> Several:
    """Adds copies of a step to the current graph.

    Args:
      first: the single step.
      num_steps: in all, at least 2.
      pulled: what the step pulls.
      worker: the number of this worker.
      first_ps: the device of ps 0.

    Raises:
      UserCodeError: the step uses what cannot be copied.
    """
    step = clones.Step(transfer.upstream([first.progress, first.loss]), pulled)
    own, rows, loss, counted = step.itself(), [first.progress], first.loss, []
    for number in range(1, num_steps):
        with tf.device(None), tf.device(first_ps), tf.control_dependencies([rows[-1].op]):
            counted.append(variables.add_element("taken", worker, 1))
        own = step.copy_after(own, number, counted[-1], first_ps)
        rows.append(clones.of_tensor(own, first.progress))
        loss = clones.of_tensor(own, first.loss)
    with tf.device(None), tf.device(first_ps):
        with tf.control_dependencies([rows[-1].op, *counted]):
            forgotten = variables.write_element("taken", worker, 0)
        with tf.control_dependencies([forgotten]):
            progress = tf.concat(rows, 0)
        return Several(Execution(num_steps, progress, loss), _rest(worker), variables.write_element("taken", worker, 0))


def _rest(worker: int) -> tf.Tensor:
    taken = variables.read("taken")[worker]
    with tf.control_dependencies([taken]):
        forgotten = variables.write_element("taken", worker, 0)
    with tf.control_dependencies([forgotten]):
        return tf.identity(taken)
