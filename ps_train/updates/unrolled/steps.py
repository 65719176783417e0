"""Several steps in one session run (--steps_per_execution): copies of a step's operations run one after another.

    ps 0     read --+    apply, count --> read --+    apply, count --> ... --> the progress of all steps
                    v    ^                       v    ^
    worker          step 1                       step 2

Each copy is a whole step: it pulls the current parameters and pushes its own gradients. The steps share only the fixed
cost of a session run, which is most of the time of a small model. `clones.py` copies a step and keeps the copies in
order without a transfer. See docs/decisions/unrolled-steps.md.
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
      num_steps: how many steps, or rounds of local steps, it makes.
      progress: int64 [num_steps, 6], a `training.status.StepStatus` after each step, read on ps 0. Fetching it trains.
      loss: scalar loss of the last mini-batch.
    """

    num_steps: int
    progress: tf.Tensor
    loss: tf.Tensor


class UnrolledSteps(NamedTuple):
    """Several steps in one session run.

    Attributes:
      execution: all of them.
      rest: int64 scalar, how many steps a failed session run has made, or 0 if it succeeded; reading it resets it.
      reset_op: resets `rest` to 0.
    """

    execution: Execution
    rest: tf.Tensor
    reset_op: tf.Operation


def unroll(
    first: Execution, num_steps: int, *, pulled: Iterable[transfer.View], worker: int, first_ps_device: str
) -> UnrolledSteps:
    """Adds copies of a step to the current graph.

    Args:
      first: the single step.
      num_steps: the number of steps in all, at least 2.
      pulled: what the step pulls.
      worker: the number of this worker.
      first_ps_device: the device of ps 0.

    Raises:
      UserCodeError: the step uses something that cannot be copied.
    """
    template = clones.StepTemplate(transfer.upstream([first.progress, first.loss]), pulled)
    step, rows, loss, counted = template.first_step(), [first.progress], first.loss, []
    for number in range(1, num_steps):
        with tf.device(None), tf.device(first_ps_device), tf.control_dependencies([rows[-1].op]):
            counted.append(variables.add_element("steps_in_run", worker, 1))
        step = template.clone_after(step, number, counted[-1], first_ps_device)
        rows.append(clones.cloned_tensor(step, first.progress))
        loss = clones.cloned_tensor(step, first.loss)
    with tf.device(None), tf.device(first_ps_device):
        with tf.control_dependencies([rows[-1].op, *counted]):
            reset = _reset(worker)
        with tf.control_dependencies([reset]):
            progress = tf.concat(rows, 0)
        return UnrolledSteps(Execution(num_steps, progress, loss), _read_and_reset(worker), _reset(worker))


def _read_and_reset(worker: int) -> tf.Tensor:
    num_steps = variables.read("steps_in_run")[worker]
    with tf.control_dependencies([num_steps]):
        reset = _reset(worker)
    with tf.control_dependencies([reset]):
        return tf.identity(num_steps)


def _reset(worker: int) -> tf.Operation:
    return variables.write_element("steps_in_run", worker, 0)
