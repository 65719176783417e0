"""Optimizers of tf.contrib.opt for several workers that share parameters on the ps.

    DropStaleGradientOptimizer   leaves out a gradient that was computed too many global steps ago
    ElasticAverageOptimizer      each worker trains variables of its own, which a shared center draws together
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops.variables import PartitionedVariable  # it has no public name

CENTER, _LOCAL_CENTER = "global_center_variable", "local_center_variable"
_BETA = 0.9  # of https://arxiv.org/abs/1412.6651; over the workers and the period, it is the moving rate


class DropStaleGradientOptimizer(tf.train.Optimizer):
    """Applies the gradients of another optimizer, unless the global step has risen by more than `staleness` meanwhile.

    The variable `stale_counter` counts the gradients that were left out, those of all workers.
    """

    def __init__(self, opt: tf.train.Optimizer, staleness: int, use_locking: bool = False,
                 name: str = "DropStaleGradient") -> None:
        super().__init__(use_locking, name)
        self._opt, self._staleness = opt, staleness
        self._computed_for: tf.Tensor | None = None

    def compute_gradients(self, loss: tf.Tensor, *args: Any, **kwargs: Any) -> list:
        """Notes the global step, then computes the gradients; see `tf.train.Optimizer`."""
        with tf.colocate_with(loss):
            self._computed_for = tf.train.get_global_step().read_value() + 0
        with tf.control_dependencies([self._computed_for]):
            return self._opt.compute_gradients(tf.identity(loss), *args, **kwargs)

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: Any = None,
                        name: str | None = None) -> tf.Tensor:
        """Returns what applies the gradients, or counts them as stale; see `tf.train.Optimizer`.

        Raises:
          ValueError: the global step is None, or `compute_gradients` was not called before.
        """
        if global_step is None or self._computed_for is None:
            raise ValueError("DropStaleGradientOptimizer: pass the global step, and call compute_gradients before")
        pairs = list(grads_and_vars)
        with tf.colocate_with(global_step):
            counter = tf.get_variable("stale_counter", [], initializer=tf.zeros_initializer(), trainable=False)
        computed = [gradient.op for gradient, _ in pairs if gradient is not None]
        with tf.control_dependencies(computed), tf.colocate_with(global_step):
            age = tf.reshape(global_step.read_value() - self._computed_for, [])

        def accept() -> tf.Tensor:
            with tf.control_dependencies([self._opt.apply_gradients(pairs, global_step=global_step, name=name)]):
                return tf.identity(tf.constant(0.0))

        update = counter.assign_add(tf.cond(age <= self._staleness, accept, lambda: tf.constant(1.0)))
        tf.summary.scalar("Gradient staleness percentage",
                          counter / tf.cast(global_step.read_value() + 1, tf.float32))
        return update

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns a slot of the other optimizer."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the other optimizer's slots."""
        return self._opt.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Returns the other optimizer's variables."""
        return self._opt.variables()


class ElasticAverageCustomGetter:
    """Makes three variables of each one that is trained: the worker's, its center on the ps, and a copy of that.

        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker_device)), \\
                tf.variable_scope("", custom_getter=ElasticAverageCustomGetter(worker_device)):
            weights = tf.get_variable("weights", [10])
    """

    copy_name = _LOCAL_CENTER  # of what the worker has beside each variable
    puts_local_variables = True  # those that are not trained on the worker's device, too

    def __init__(self, worker_device: str) -> None:
        """Takes the device of the worker's own variables, such as "/job:worker/task:1"."""
        self._worker_device = worker_device
        self._centers: dict[Any, tuple[tf.Variable, tf.Variable]] = {}

    def __call__(self, getter: Callable, name: str, trainable: bool | None = None, collections: Any = None,
                 *args: Any, **kwargs: Any) -> Any:
        """Called by `tf.get_variable`."""
        if trainable is False:  # None is the default: trained
            is_local = self.puts_local_variables and tf.GraphKeys.LOCAL_VARIABLES in (collections or ())
            with tf.device(self._worker_device) if is_local else contextlib.nullcontext():
                return getter(name, *args, trainable=trainable, collections=collections, **kwargs)
        own = self._make(getter, name, *args, trainable=True, **kwargs)
        if kwargs.get("reuse") is True:
            return own
        center = getter(f"{CENTER}/{name}", *args, trainable=False,
                        collections=[tf.GraphKeys.GLOBAL_VARIABLES], **kwargs)
        copy = self._make(getter, f"{self.copy_name}/{name}", *args, trainable=False, **kwargs)
        for each, *others in zip(*map(_pieces, (own, center, copy))):
            self._centers[each.ref()] = tuple(others)
        return own

    def _make(self, getter: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
        with tf.device(self._worker_device):
            return getter(name, *args, collections=[tf.GraphKeys.LOCAL_VARIABLES], **kwargs)

    def centers_of(self, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable] | None:
        """Returns the center on the ps and the worker's copy of it, None for a variable that was not made here."""
        return self._centers.get(variable.ref())


def _pieces(variable: Any) -> list[tf.Variable]:
    """Returns the parts of a partitioned variable, or the variable."""
    return list(variable) if isinstance(variable, PartitionedVariable) else [variable]


class ElasticAverageOptimizer(tf.train.Optimizer):
    """Elastic averaging SGD (https://arxiv.org/abs/1412.6651), asynchronous.

    After every `communication_period` steps of a worker, its variables and the centers on the ps move towards each
    other by `moving_rate` of their difference, and the global step rises by one.
    """

    def __init__(self, opt: tf.train.Optimizer, num_worker: int, ea_custom_getter: ElasticAverageCustomGetter,
                 communication_period: int = 10, moving_rate: float | None = None, rho: float | None = None,
                 use_locking: bool = True, synchronous: bool = False, name: str = "ElasticAverageOptimizer") -> None:
        """Creates the optimizer.

        Args:
          opt: updates the worker's variables.
          num_worker: the number of workers.
          ea_custom_getter: has made the variables.
          communication_period: in steps of a worker.
          moving_rate: by default 0.9, over the period and over the workers.
          rho: the weight, in the loss, of the distance to the center as it was last read; by default the moving rate
            over the learning rate.
          use_locking: see `tf.train.Optimizer`.
          synchronous: whether the workers wait for each other before their first step.
          name: see `tf.train.Optimizer`.
        """
        super().__init__(use_locking, name)
        self._opt, self._getter = opt, ea_custom_getter
        self._num_workers, self._period, self._is_synchronous = num_worker, communication_period, synchronous
        self._moving_rate = _BETA / communication_period / num_worker if moving_rate is None else moving_rate
        # Optimizers that have no attribute of this name, such as Adam's, need `rho`.
        self._rho = self._moving_rate / self._opt._learning_rate if rho is None else rho  # noqa: SLF001
        self._local_step = tf.get_variable("local_step", initializer=0, trainable=False,
                                           collections=[tf.GraphKeys.LOCAL_VARIABLES])

    def compute_gradients(self, loss: tf.Tensor, var_list: Sequence[tf.Variable] | None = None, *args: Any,
                          **kwargs: Any) -> list:
        """Returns the gradients of the loss and the distance to the center; see `tf.train.Optimizer`."""
        trained = list(var_list or tf.trainable_variables())
        distances = [tf.nn.l2_loss(variable - self._centers_of(variable)[1]) for variable in trained]
        return self._opt.compute_gradients(loss + self._rho * tf.add_n(distances), trained, *args, **kwargs)

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: Any = None,
                        name: str | None = None) -> tf.Operation:
        """Returns a worker's step; see `tf.train.Optimizer`. It raises the global step once a period."""
        pairs = list(grads_and_vars)
        with variables_of_worker():
            apply_op = self._opt.apply_gradients(pairs)
        with tf.control_dependencies([apply_op]):
            step = self._local_step.assign_add(1, read_value=True)
        trained = [variable for gradient, variable in pairs if gradient is not None]
        exchanged = tf.cond(tf.equal(step % self._period, 0),
                            lambda: self._exchange(trained, global_step), lambda: tf.constant(False))
        return tf.group(exchanged, name=name)

    def _exchange(self, trained: Sequence[tf.Variable], global_step: Any) -> tf.Tensor:
        """Reads the centers, and draws them and the worker's variables together."""
        centers = [self._centers_of(variable) for variable in trained]
        reads = [copy.assign(center.read_value(), read_value=False) for center, copy in centers]
        updates = []
        with tf.control_dependencies(reads):
            for variable, (center, copy) in zip(trained, centers):
                with tf.device(variable.device):
                    change = self._moving_rate * (variable.read_value() - copy.read_value())
                    updates.append((variable, change))
                updates.append((center, -change))
        with tf.control_dependencies([change for _, change in updates]):
            done = [variable.assign_sub(change, use_locking=self._use_locking, read_value=False)
                    for variable, change in updates]
            if global_step is not None:
                done.append(global_step.assign_add(1, read_value=False))
        with tf.control_dependencies(done):
            return tf.constant(True)

    def _centers_of(self, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        centers = self._getter.centers_of(variable)
        if centers is None:
            raise ValueError(f"ElasticAverageOptimizer: {variable.op.name} was not made by tf.get_variable below "
                             "its ElasticAverageCustomGetter; make it there, or leave it out of var_list")
        return centers

    def get_init_op(self, task_index: int) -> tf.Operation:
        """Returns what a worker runs before its first step: it takes over the centers."""
        init_ops = []
        for variable in tf.trainable_variables():
            center, copy = self._centers_of(variable)
            init_ops += [each.assign(center.read_value(), read_value=False) for each in (variable, copy)]
        if not init_ops:
            raise ValueError("ElasticAverageOptimizer: the graph has no variables to train")
        if not self._is_synchronous:
            return tf.group(*init_ops)
        with tf.device(self._centers_of(tf.trainable_variables()[0])[0].device):  # a place that all workers see
            return self._barrier(init_ops, task_index)

    def _barrier(self, after: Sequence[tf.Operation], task_index: int) -> tf.Operation:
        """Returns what waits until all workers have run `after`."""
        queues = [tf.FIFOQueue(self._num_workers, [tf.bool], [[]], shared_name=f"variable_init_sync_queue{i}")
                  for i in range(self._num_workers)]
        with tf.control_dependencies(after):
            tokens = [queue.enqueue(False) for i, queue in enumerate(queues) if i != task_index]
        return tf.group(*tokens, queues[task_index].dequeue_many(self._num_workers - 1))

    def make_session_run_hook(self, is_chief: bool, task_index: int) -> tf.train.SessionRunHook:
        """Returns the hook that runs `get_init_op` in each new session."""
        del is_chief
        return WorkerInitHook(self, task_index)

    def swapping_saver(self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any) -> tf.train.Saver:
        """Returns a Saver that saves the centers under the names of the variables, by default of all trained ones."""
        variables = tf.trainable_variables() if var_list is None else var_list
        if isinstance(variables, dict):
            return tf.train.Saver({key: _each(self._center_or_self, value) for key, value in variables.items()},
                                  name=name, **kwargs)
        by_name: dict[str, Any] = {}
        for piece in (piece for variable in variables for piece in _pieces(variable)):
            part = piece._get_save_slice_info()  # noqa: SLF001 (no public name)
            if part:
                by_name.setdefault(part.full_name, []).append(self._center_or_self(piece))
            else:
                by_name[piece.op.name] = self._center_or_self(piece)
        return tf.train.Saver(by_name, name=name, **kwargs)

    def _center_or_self(self, variable: tf.Variable) -> tf.Variable:
        centers = self._getter.centers_of(variable)
        return centers[0] if centers else variable


def _each(function: Callable, value: Any) -> Any:
    """Returns function(value), or that of each part if value is the list of a partitioned variable's."""
    return list(map(function, value)) if isinstance(value, (list, tuple)) else function(value)


class WorkerInitHook(tf.train.SessionRunHook):
    """Lets a worker take over the centers before its first step."""

    def __init__(self, optimizer: ElasticAverageOptimizer, task_index: int) -> None:
        self._optimizer, self._task_index = optimizer, task_index
        self._init_op: tf.Operation | None = None

    def begin(self) -> None:
        self._init_op = self._optimizer.get_init_op(self._task_index)

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        session.run(self._init_op)


@contextlib.contextmanager
def variables_of_worker() -> Iterator[None]:
    """Lets slots that are made inside belong to the worker, and not to what is saved and shared."""
    kept = set(map(id, tf.global_variables()))
    yield
    shared = tf.get_collection_ref(tf.GraphKeys.GLOBAL_VARIABLES)
    tf.get_collection_ref(tf.GraphKeys.LOCAL_VARIABLES).extend(each for each in shared if id(each) not in kept)
    shared[:] = [each for each in shared if id(each) in kept]
