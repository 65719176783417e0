"""`OptimizerPlan`: makes the optimizer that the flags or `make_optimizer` describe, as often as a mode needs one.

    plan.make(global_step)              the bare optimizer, whose slots a checkpoint has
    plan.shaped(optimizer, global_step) the same, behind clipping and weight decay
    plan.factor(global_step)            what the schedule makes of the rate of an embedding table

`global_step` is the variable on ps 0, or a worker's own count in a round of local steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import optimizers, transfer
from ps_train.graph.row_sparse import adam
from ps_train.graph.shaping.schedules import Schedule, rate_at
from ps_train.graph.shaping.shaped import ShapedOptimizer, clip_by_norm
from ps_train.parts.own_train_op.update import ELEMENTWISE


class Knobs(NamedTuple):
    """What the flags say beside the optimizer and its learning rate; None for TensorFlow's default.

    Attributes:
      options: keyword arguments of the optimizer's class, such as momentum.
      schedule: of the learning rate.
      clip_norm: the largest global norm of the gradients, or None.
      weight_decay: the share of a dense variable that it loses in an update with the learning rate 1; 0 for none.
      given: the flags on the command line that choose another rule than the default.
    """

    options: tuple[tuple[str, Any], ...] = ()
    schedule: Schedule = Schedule()
    clip_norm: float | None = None
    weight_decay: float = 0.0
    given: tuple[str, ...] = ()


class OptimizerPlan(NamedTuple):
    """How to make the optimizer.

    Attributes:
      name: of --optimizer.
      learning_rate: the rate that the schedule starts from.
      decays_all_rows: whether Adam decays the moments of every row of a table in each update.
      knobs: the other flags.
      make_own: the model's `make_optimizer`, called with the global step; None to go by the flags.
    """

    name: str
    learning_rate: float
    decays_all_rows: bool = False
    knobs: Knobs = Knobs()
    make_own: Callable[[tf.Variable], Any] | None = None

    def make(self, global_step: tf.Variable) -> tf.train.Optimizer:
        """Returns a new optimizer, without slots yet.

        Raises:
          UserCodeError: `make_optimizer` of the model returned something else.
        """
        # The rate is computed where the step is: on a worker it would cost a transfer in each step.
        with tf.device(global_step.device):
            if self.make_own is None:
                return optimizers.make_optimizer(self.name, self._rate(global_step),
                                                 decays_all_rows=self.decays_all_rows, **dict(self.knobs.options))
            optimizer = self.make_own(global_step)
        _check(optimizer)
        if not self.decays_all_rows:
            adam.make_row_sparse(optimizer)
        return optimizer

    def is_elementwise(self, optimizer: tf.train.Optimizer) -> bool:
        """Tells whether variables may be packed for an optimizer that `make` returned."""
        return self.make_own is None or type(optimizer) in ELEMENTWISE

    def shaped(self, optimizer: tf.train.Optimizer, global_step: tf.Variable) -> tf.train.Optimizer:
        """Returns an optimizer that clips and decays, and then applies the rest with this one."""
        if self.knobs.clip_norm is None and not self.knobs.weight_decay:
            return optimizer
        decay = None
        if self.knobs.weight_decay:
            with tf.device(global_step.device):
                decay = self._rate(global_step) * self.knobs.weight_decay
        return ShapedOptimizer(optimizer, clip_norm=self.knobs.clip_norm, decay=decay)

    def clipped(
        self, pairs: Sequence[transfer.Pair], of_tables: Mapping[str, tf.Tensor]
    ) -> tuple[list[transfer.Pair], dict[str, tf.Tensor]]:
        """Returns the gradients of variables and of tables after clipping by the norm of both."""
        gradients = [*(gradient for gradient, _ in pairs), *of_tables.values()]
        if self.knobs.clip_norm is not None:
            gradients = clip_by_norm(gradients, self.knobs.clip_norm)
        return ([(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)],
                dict(zip(of_tables, gradients[len(pairs):])))

    def without_clipping(self) -> OptimizerPlan:
        """Returns the plan for gradients that are clipped already."""
        return self._replace(knobs=self.knobs._replace(clip_norm=None))

    def factor(self, global_step: tf.Variable) -> tf.Tensor | None:
        """Returns by what the rates of embedding tables are multiplied, a float32 scalar; None for 1."""
        if self.make_own is not None or self.knobs.schedule.is_constant:
            return None
        with tf.device(global_step.device):
            return self._rate(global_step) / self.learning_rate

    def _rate(self, global_step: tf.Variable) -> tf.Tensor | float:
        schedule = self.knobs.schedule
        if schedule.is_constant:
            return self.learning_rate
        return rate_at(schedule, self.learning_rate, global_step.read_value())


def _check(optimizer: Any) -> None:
    """Refuses what is no optimizer of TensorFlow 1.

    Raises:
      UserCodeError: it is not.
    """
    kind = type(optimizer).__name__
    if not isinstance(optimizer, tf.train.Optimizer):
        raise UserCodeError(f"make_optimizer(params, global_step) returned {kind}; it must return a "
                            "tf.compat.v1.train.Optimizer, such as tf.compat.v1.train.AdamOptimizer(1e-3)")
    if isinstance(optimizer, tf.train.SyncReplicasOptimizer) or kind == "SyncReplicasOptimizer":
        raise UserCodeError("make_optimizer(params, global_step) returned a SyncReplicasOptimizer; return the "
                            "optimizer inside it, and give --sync_replicas")
