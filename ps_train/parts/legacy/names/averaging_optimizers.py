"""Optimizers of tf.contrib.opt with which each worker trains variables of its own for some steps.

    ModelAverageOptimizer   then all workers wait for each other, and go on with the mean of their variables
    AGNOptimizer            then the mean of a worker's gradients is applied on the ps, and it goes on from there
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.classic import named_tasks
from ps_train.parts.legacy.names.worker_optimizers import (
    CENTER,
    ElasticAverageCustomGetter,
    WorkerInitHook,
    variables_of_worker,
)


class ModelAverageCustomGetter:
    """Makes two variables of each one that is trained: the worker's, and its center on the ps.

        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker_device)), \\
                tf.variable_scope("", custom_getter=ModelAverageCustomGetter(worker_device)):
            weights = tf.get_variable("weights", [10])
    """

    def __init__(self, worker_device: str) -> None:
        """Takes the device of the worker's own variables, such as "/job:worker/task:1"."""
        self._worker_device = worker_device
        self._centers: dict[Any, tf.Variable] = {}

    def __call__(self, getter: Callable, name: str, trainable: bool | None = None, collections: Any = None,
                 *args: Any, **kwargs: Any) -> tf.Variable:
        """Called by `tf.get_variable`."""
        if trainable is False:  # None is the default: trained
            is_local = tf.GraphKeys.LOCAL_VARIABLES in (collections or ())
            with tf.device(self._worker_device) if is_local else contextlib.nullcontext():
                return getter(name, *args, trainable=trainable, collections=collections, **kwargs)
        with tf.device(self._worker_device):
            own = getter(name, *args, trainable=True, collections=[tf.GraphKeys.LOCAL_VARIABLES], **kwargs)
            with tf.init_scope():
                value = tf.cond(tf.is_variable_initialized(own), own.read_value, lambda: own.initial_value)
        # A variable that is used again gets a further center, as in TensorFlow 1; the last one counts.
        self._centers[own.ref()] = tf.Variable(value, name=f"{CENTER}/{name}", trainable=False,
                                               collections=[tf.GraphKeys.GLOBAL_VARIABLES])
        return own

    def center_of(self, variable: tf.Variable) -> tf.Variable:
        """Returns the center on the ps."""
        if variable.ref() not in self._centers:
            raise ValueError(f"ModelAverageOptimizer: {variable.op.name} was not made by tf.get_variable below its "
                             "ModelAverageCustomGetter; make it there, or leave it out of var_list")
        return self._centers[variable.ref()]


class ModelAverageOptimizer(tf.train.Optimizer):
    """Averages the variables of all workers (https://arxiv.org/abs/1410.7455), synchronously.

    After every `interval_steps` steps of its own, a worker waits until the others have come as far. The chief writes
    the mean of their variables to the centers on the ps and raises the global step by one; all go on with that mean.

    As in TensorFlow 1, that wait has no bound: a worker that ends early, or does not come back, stops all others. A
    worker of ps_train warns with the names of those that are missing. One that was lost just before it took over the
    mean, and comes back, is one average ahead of the others from then on.
    """

    def __init__(self, opt: tf.train.Optimizer, num_worker: int, is_chief: bool,
                 ma_custom_getter: ModelAverageCustomGetter, interval_steps: int = 100, use_locking: bool = True,
                 name: str = "ModelAverageOptimizer") -> None:
        """Creates the optimizer.

        Args:
          opt: updates the worker's variables.
          num_worker: the number of workers.
          is_chief: whether this worker is the one that writes the centers.
          ma_custom_getter: has made the variables.
          interval_steps: steps of a worker between two averages.
          use_locking: see `tf.train.Optimizer`.
          name: see `tf.train.Optimizer`.
        """
        super().__init__(use_locking, name)
        self._opt, self._getter = opt, ma_custom_getter
        self._num_workers, self._is_chief, self._interval = num_worker, is_chief, interval_steps
        self._local_step = _local_step()

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        """As the other optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: Any = None,
                        name: str | None = None) -> tf.Operation:
        """Returns a worker's step; see `tf.train.Optimizer`.

        Raises:
          ValueError: there are no gradients, or the global step is None.
        """
        pairs = list(grads_and_vars or ())
        if not pairs:
            raise ValueError("ModelAverageOptimizer: grads_and_vars has no variable")
        if global_step is None:
            raise ValueError("ModelAverageOptimizer needs a global_step: it counts the averages")
        with tf.control_dependencies([self._apply_to_own(pairs)]):
            step = self._local_step.assign_add(1, read_value=True)
        named_tasks.warn_of_missing("ModelAverageOptimizer")
        trained = [variable for gradient, variable in pairs if gradient is not None]
        accumulators = [self._accumulator(variable) for variable in trained]

        def average() -> tf.Tensor:
            with tf.control_dependencies([self._average(trained, accumulators, global_step)]):
                return tf.constant(True)
        return tf.group(tf.cond(tf.equal(step % self._interval, 0), average, lambda: tf.constant(False)), name=name)

    def _apply_to_own(self, pairs: Sequence[tuple]) -> tf.Operation:
        """Updates the worker's variables, with slots that are its own.

        The chief's slots are saved, as in TensorFlow 1, where they were global variables. Such a chief, started again
        while the parameters on the ps are in use, would wait for somebody to initialize them.
        """
        before = set(map(id, tf.local_variables()))
        with variables_of_worker():
            applied = self._opt.apply_gradients(pairs)
        if self._is_chief:
            for variable in tf.local_variables():
                if id(variable) not in before:
                    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, variable)
        return applied

    def _accumulator(self, variable: tf.Variable) -> tf.ConditionalAccumulator:
        """Returns what adds up a variable of all workers, beside its center."""
        center = self._getter.center_of(variable)
        with tf.device(center.device):
            return tf.ConditionalAccumulator(variable.dtype.base_dtype, variable.shape,
                                             shared_name=f"{center.name}/var_accum")

    def _average(self, trained: Sequence[tf.Variable], accumulators: Sequence, global_step: Any) -> tf.Operation:
        """Hands in the worker's variables, and takes over the mean; the chief computes it before."""
        centers = [self._getter.center_of(variable) for variable in trained]
        with tf.colocate_with(global_step):
            tokens = tf.FIFOQueue(-1, [tf.bool], [[]], shared_name="sync_queue")
            now = tf.cast(global_step.read_value(), tf.int64)
        handed_in = []
        for variable, center, accumulator in zip(trained, centers, accumulators):
            value = variable.read_value()
            with tf.device(center.device):
                handed_in.append(accumulator.apply_grad(value, local_step=now))
        if not self._is_chief:
            with tf.control_dependencies(handed_in), tf.colocate_with(tokens.queue_ref):
                synced = tokens.dequeue().op
        else:
            updates = []
            with tf.control_dependencies(handed_in):
                for center, accumulator in zip(centers, accumulators):
                    with tf.device(center.device):
                        updates.append(center.assign(accumulator.take_grad(self._num_workers), read_value=False))
                updates.append(global_step.assign_add(1, read_value=False))
            with tf.control_dependencies(updates), tf.colocate_with(tokens.queue_ref):
                synced = tokens.enqueue_many([tf.fill([self._num_workers - 1], False)])
        with tf.control_dependencies([synced]):
            return self._take_over(trained)

    def _take_over(self, variables: Sequence[tf.Variable]) -> tf.Operation:
        if not variables:
            raise ValueError("ModelAverageOptimizer: there is no variable to average")
        return tf.group(*(variable.assign(self._getter.center_of(variable).read_value(), read_value=False)
                          for variable in variables))

    def get_init_op(self) -> tf.Operation:
        """Returns what lets a worker's variables begin with the values of the centers."""
        return self._take_over(tf.trainable_variables())

    def make_session_run_hook(self) -> tf.train.SessionRunHook:
        """Returns a hook that adds `get_init_op` to the graph, and as in TensorFlow 1 does not run it."""
        return _AveragingHook(self)


class _AveragingHook(tf.train.SessionRunHook):
    def __init__(self, optimizer: ModelAverageOptimizer) -> None:
        self._optimizer = optimizer

    def begin(self) -> None:
        self._optimizer.get_init_op()


class AGNCustomGetter(ElasticAverageCustomGetter):
    """Makes three variables of each one that is trained: the worker's, its center on the ps, and a sum of gradients.

        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker_device)), \\
                tf.variable_scope("", custom_getter=AGNCustomGetter(worker_device)):
            weights = tf.get_variable("weights", [10])
    """

    copy_name = "grad_variable"
    puts_local_variables = False


class AGNOptimizer(tf.train.Optimizer):
    """Accumulated gradient normalization (https://arxiv.org/abs/1710.02368), asynchronous.

    After every `communication_period` steps of a worker, the mean of its gradients is applied to the centers on the
    ps, the worker's variables take over the centers, and the global step rises by one.
    """

    def __init__(self, optimizer: tf.train.Optimizer, num_worker: int, custom_getter: AGNCustomGetter,
                 communication_period: int = 10, use_locking: bool = True, name: str = "AGNOptimizer") -> None:
        """Creates the optimizer.

        Args:
          optimizer: updates the worker's variables, and the centers.
          num_worker: the number of workers, which changes nothing.
          custom_getter: has made the variables.
          communication_period: in steps of a worker.
          use_locking: see `tf.train.Optimizer`.
          name: see `tf.train.Optimizer`.
        """
        super().__init__(use_locking, name)
        del num_worker
        self._opt, self._getter, self._period = optimizer, custom_getter, communication_period
        self._local_step = _local_step()

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: Any = None,
                        name: str | None = None) -> tf.Operation:
        """Returns a worker's step; see `tf.train.Optimizer`. It raises the global step once a period."""
        pairs = list(grads_and_vars)
        with variables_of_worker():
            done = [self._opt.apply_gradients(pairs)]
        trained = [variable for gradient, variable in pairs if gradient is not None]
        for gradient, variable in pairs:
            if gradient is not None:
                _, total = self._beside(variable)
                done.append(total.assign_add(tf.convert_to_tensor(gradient), read_value=False))
        step = self._local_step.assign_add(1, read_value=True)
        with tf.control_dependencies(done):
            communicated = tf.cond(tf.equal(step % self._period, 0),
                                   lambda: self._communicate(trained, global_step), lambda: tf.constant(False))
        return tf.group(communicated, *done, name=name)

    def _communicate(self, trained: Sequence[tf.Variable], global_step: Any) -> tf.Tensor:
        """Applies the mean of the gradients to the centers, and takes these over."""
        centers, totals = zip(*map(self._beside, trained))
        means = [total.read_value() / tf.cast(self._period, total.dtype.base_dtype) for total in totals]
        with tf.control_dependencies(means):
            applied = self._opt.apply_gradients(zip(means, centers))
        with tf.control_dependencies([applied]):
            done = [variable.assign(center.read_value(), read_value=False)
                    for variable, center in zip(trained, centers)]
            done += [total.assign(tf.zeros_like(total), read_value=False) for total in totals]
            if global_step is not None:
                done.append(global_step.assign_add(1, read_value=False))
        with tf.control_dependencies(done):
            return tf.constant(True)

    def _beside(self, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        """Returns the center and the sum of the gradients of a variable."""
        beside = self._getter.centers_of(variable)
        if beside is None:
            raise ValueError(f"AGNOptimizer: {variable.op.name} was not made by tf.get_variable below its "
                             "AGNCustomGetter; make it there, or leave it out of var_list")
        return beside

    def get_init_op(self, task_index: int) -> tf.Operation:
        """Returns what a worker runs before its first step: it takes over the centers."""
        del task_index
        init_ops = []
        for variable in tf.trainable_variables():
            center, total = self._beside(variable)
            init_ops += [variable.assign(center.read_value(), read_value=False),
                         total.assign(tf.zeros_like(total), read_value=False)]
        if not init_ops:
            raise ValueError("AGNOptimizer: the graph has no variables to train")
        return tf.group(*init_ops)

    def make_session_run_hook(self, is_chief: bool, task_index: int) -> tf.train.SessionRunHook:
        """Returns the hook that runs `get_init_op` in each new session."""
        del is_chief
        return WorkerInitHook(self, task_index)


def _local_step() -> tf.Variable:
    """Returns the variable that counts the steps of this worker."""
    return tf.get_variable("local_step", initializer=0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
