"""The variables that the blackboard consists of: raw TensorFlow operations under fixed names.

Each function adds operations to the current graph, on the current device: `with tf.device(ps.device)` around a call
chooses the ps. Because the names are fixed, any graph can use the variables; because they are no `tf.Variable`, no
Saver, readiness check or `tf.global_variables()` sees them. See docs/decisions/blackboard.md.

What a chief writes is refused where a later chief has begun its term. A chief can freeze between any two of its calls,
and while a call is on its way. When it wakes, another process may have its number, may have prepared the parameters,
and workers may train on them. So each ps has the number of the latest term. It only rises.

    begin    on all ps: the highest term of any ps, plus 1; then on ps 0, if the process still holds the chief's number
    write    on each ps, in the graph call of the write itself: only if that ps knows of no later term

A chief reads the terms after its claim, and the one before it had passed ps 0 before that claim. So the term of the
later chief is higher on each ps that has not restarted. On one that has, the sessions of the earlier chief have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Task
from ps_train.parts import table

# Fixed sizes: no task needs to know the number of workers or ps.
MAX_WORKERS = 1024
MAX_PS = 1024
ANY_CLAIM = 0  # of a task that is no worker: nothing that it writes is refused; and of a number that nobody has
NO_TERM = 2**63 - 1  # of a task that is no chief: nothing that it writes is refused
REFUSED = "another process has begun a later term as chief"

# Variable -> shape and dtype. Those of shape [MAX_WORKERS] have one element per worker. Parts add more, in board.py.
_ON_EVERY_PS = {
    "state": ([], tf.int64),
    "incarnation": ([], tf.int64),
    "first_ps": ([], tf.string),  # address of ps 0, which the chief writes
    "term": ([1], tf.int64),  # of the latest chief
    "cluster": ([], tf.string),  # the cluster as this ps is configured (agreement.py)
    "stop_requested": ([], tf.int64),  # 1 after `ps_train stop` (parts/control/)
    "mismatch": ([], tf.string),  # how two tasks' cluster descriptions differ, "" if they agree (agreement.py)
}
_ON_FIRST_PS = {
    "clock": ([], tf.float64),
    "prepared": ([MAX_PS], tf.int64),  # incarnation of each ps when the chief prepared the parameters
    "fingerprint": ([], tf.string),
    "chief_activity": ([], tf.string),  # the chief's activity before training begins, such as "restores PATH"
    "end_reason": ([], tf.string),  # why training ends before the last step, such as early stopping; "" if unknown
    "claims": ([MAX_WORKERS], tf.int64),
    "admissions": ([MAX_WORKERS], tf.int64),  # claim of the process that may use the parameters (training/opening.py)
    "heartbeats": ([MAX_WORKERS], tf.float64),  # the clock at the last heartbeat
    "steps": ([MAX_WORKERS], tf.int64),  # the global step that the worker has seen
    "local_steps": ([MAX_WORKERS], tf.int64),  # the steps that the worker has taken
    "finished": ([MAX_WORKERS], tf.int64),
    "staleness": ([MAX_WORKERS], tf.float64),  # of the worker's updates, in the mean
    "joined": ([MAX_WORKERS], tf.int64),  # claim of the process that trained last (updates/staleness.py)
    # updates/local_steps.py: the number of training workers when the last round began.
    "round_divisors": ([MAX_WORKERS], tf.int64),
    "step_counts": ([MAX_WORKERS], tf.int64),  # updates/staleness.py: the steps that --staleness_bound compares
    "steps_in_run": ([MAX_WORKERS], tf.int64),  # updates/unrolled.py: the finished steps of a session run
    # updates/sync/aggregation.py
    "required": ([], tf.int64),  # gradients that the next update waits for
    "updating": ([], tf.int64),  # 1 while an update is being applied
    "unused": ([], tf.int64),  # gradients that were pushed, but are in no update yet
    "computed_for": ([MAX_WORKERS], tf.int64),  # the global step that the next gradient is for
    "pushed": ([MAX_WORKERS], tf.int64),  # gradients pushed for that step
    "awaited": ([MAX_WORKERS], tf.int64),  # the global step that the worker waits for
    "marks": ([MAX_WORKERS], tf.float64),  # updates/sync/aggregation.py: of the gradients pushed for that step
    "included": ([MAX_WORKERS], tf.float64),  # the marks that the last update with a gradient of the worker had
}
for _name, _declared in table.board_variables().items():
    if _name in _ON_EVERY_PS or _name in _ON_FIRST_PS:
        raise ValueError(f"a part declares {_name}, which is a variable of the spine")
    (_ON_EVERY_PS if _declared.is_on_every_ps else _ON_FIRST_PS)[_name] = (
        [MAX_WORKERS] if _declared.is_per_worker else [], tf.as_dtype(_declared.dtype))
_ALL = {**_ON_EVERY_PS, **_ON_FIRST_PS}


def read(name: str) -> tf.Tensor:
    """Returns the value of a variable."""
    return tf.raw_ops.ReadVariableOp(resource=_handle(name), dtype=_ALL[name][1])


def read_element(name: str, index: Any) -> tf.Tensor:
    """Returns one element of a variable."""
    return tf.raw_ops.ResourceGather(resource=_handle(name), indices=index, dtype=_ALL[name][1])


def write(name: str, value: Any) -> tf.Operation:
    """Sets a variable."""
    dtype = _ALL[name][1]
    return tf.raw_ops.AssignVariableOp(
        resource=_handle(name), value=value if dtype == tf.string else tf.cast(value, dtype))


def add(name: str, value: Any) -> tf.Operation:
    """Adds to a scalar variable."""
    return tf.raw_ops.AssignAddVariableOp(resource=_handle(name), value=tf.cast(value, _ALL[name][1]))


def write_element(name: str, index: Any, value: Any) -> tf.Operation:
    """Sets one element of a variable."""
    dtype = _ALL[name][1]
    return tf.raw_ops.ResourceScatterUpdate(
        resource=_handle(name), indices=index, updates=value if dtype == tf.string else tf.cast(value, dtype))


def add_element(name: str, index: Any, value: Any) -> tf.Operation:
    """Adds to one element of a variable."""
    return tf.raw_ops.ResourceScatterAdd(resource=_handle(name), indices=index, updates=tf.cast(value, _ALL[name][1]))


def raise_element(name: str, index: Any, value: Any) -> tf.Operation:
    """Sets one element of a variable to a value, if that is higher."""
    return tf.raw_ops.ResourceScatterMax(resource=_handle(name), indices=index, updates=tf.cast(value, _ALL[name][1]))


def clear(name: str) -> tf.Operation:
    """Sets a variable to zeros or ""."""
    return write(name, tf.zeros(*_ALL[name]))


def clear_first_ps() -> list[tf.Operation]:
    """Clears all variables that are on ps 0 only."""
    return [clear(name) for name in _ON_FIRST_PS]


def was_written(name: str) -> tf.Tensor:
    """Returns whether a variable has a value, bool scalar."""
    return tf.raw_ops.VarIsInitializedOp(resource=_handle(name))


def _handle(name: str) -> tf.Tensor:
    shape, dtype = _ALL[name]
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=f"ps_train/{name}", container="")


def begin_term_on(all_ps: Sequence[Task], worker: tf.Tensor, claim: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Begins a term on all ps for the chief with this worker number and claim; both are int64 scalars.

    Returns:
      The number of the term, int64 scalar, and whether the claim holds the chief's number, bool scalar.
    """
    first, *others = [task.device for task in all_ps]
    latest = []
    for task in all_ps:
        with tf.device(task.device):
            latest.append(read_element("term", 0))
    # Only in this order does a process that is replaced in the middle raise no term above that of its successor, which
    # reads the terms after its own claim.
    with tf.device(first), tf.control_dependencies(latest):
        holds_number = tf.equal(read("claims")[worker], claim)
        term = tf.where(holds_number, tf.reduce_max(tf.stack(latest)) + 1, tf.constant(0, tf.int64))
    raised = []
    for device in others:
        with tf.device(device):
            raised.append(raise_element("term", 0, term))
    with tf.device(first):
        with tf.control_dependencies(raised):
            raised_first = raise_element("term", 0, term)
        with tf.control_dependencies([raised_first]):
            is_accepted = holds_number & tf.equal(read("claims")[worker], claim)
    return term, is_accepted


def is_current(term: tf.Tensor) -> tf.Tensor:
    """Returns whether the ps of the current device knows of no later term, bool scalar."""
    with tf.control_dependencies([tf.identity(term)]):  # it may be on its way while the chief is frozen
        return tf.less_equal(read_element("term", 0), term)


def write_in(
    term: tf.Tensor, write: Callable[[], tf.Operation | Sequence[tf.Operation]], *, values: Sequence[tf.Tensor] = ()
) -> tf.Tensor:
    """Adds the operations of `write()` to the current device; they run unless it knows of a later term.

    Args:
      values: what is written, as far as it is fed: the term is checked when it is there.

    Returns:
      bool scalar, whether they have run.
    """
    with tf.control_dependencies([tf.identity(value) for value in values]):
        condition = is_current(term)
    return write_if(condition, write)


def write_if(condition: tf.Tensor, write: Callable[[], tf.Operation | Sequence[tf.Operation]]) -> tf.Tensor:
    """Returns a condition, bool scalar, after the operations of `write()` if it holds."""
    return tf.cond(condition, lambda: _after(write()), lambda: tf.constant(False))


def _after(operations: tf.Operation | Sequence[tf.Operation]) -> tf.Tensor:
    with tf.control_dependencies([operations] if isinstance(operations, tf.Operation) else operations):
        return tf.constant(True)
