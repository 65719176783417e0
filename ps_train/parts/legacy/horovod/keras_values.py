"""Numbers and variables that the ranks of a Keras script exchange at once, outside of its graph.

    each rank   its value --> the values of all ranks, by rank (exchange.py) --> what is made of them

All travel in one channel, so all ranks must call these functions in the same order, as under Horovod.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ClusterLostError
from ps_train.parts.legacy.horovod import module as hvd
from ps_train.parts.legacy.horovod.exchange import REDUCTIONS

_CHANNEL = "keras"
_MOST_NAMES = 5  # in a line of the log
_log = logging.getLogger(__name__)


def allreduce_values(
    value: Any, name: str | None = None, average: bool | None = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, op: str | None = None, **kwargs: Any,
) -> Any:
    """Returns the mean of all ranks' numbers or arrays, or what `op` says; of a dtype of floats it keeps that.

    Raises:
      ConfigError: hvd.Adasum.
    """
    reduce = REDUCTIONS[hvd.reduction(average, op)]
    found = reduce(_by_rank(_scaled(_array(value), prescale_factor)))
    return _scaled(np.asarray(found), postscale_factor)[()]  # a number is no array


def allgather_values(value: Any, name: str | None = None, **kwargs: Any) -> np.ndarray:
    """Returns the arrays of all ranks, by rank, one after the other along the first axis."""
    return np.concatenate(_by_rank(_array(value)))


def broadcast_value(value: Any, root_rank: int = 0, name: str | None = None, **kwargs: Any) -> Any:
    """Returns the number or array of rank 0, the only root there is here."""
    hvd.check_root("broadcast", root_rank)
    return _of_chief(_array(value))[()]


def broadcast_values(root_rank: int = 0, model: Any = None) -> None:
    """Gives the global variables of Keras's graph the values that they have on rank 0.

    Those of the model and of its optimizer are the same by their places: if rank 0 has loaded the model, they have
    other names there. Others are the same by their names. The log has those that are on one rank only.

    Args:
      root_rank: must be 0.
      model: a compiled one, if known.
    """
    hvd.check_root("broadcast_global_variables", root_rank)
    session = tf.keras.backend.get_session()
    with session.graph.as_default():
        variables = _by_key(model)
        found = _of_chief(_values_of(variables, session) if hvd.rank() == 0 else None)
        if hvd.rank() == 0:
            return
        if differing := sorted(found.keys() ^ variables.keys()):
            names = ", ".join(differing[:_MOST_NAMES]) + ", ..." * (len(differing) > _MOST_NAMES)
            _log.warning("the broadcast leaves out %d variables that are on rank 0 or on rank %d only: %s",
                         len(differing), hvd.rank(), names)
        tf.keras.backend.batch_set_value([(variables[key], value) for key, value in found.items() if key in variables])


def _by_key(model: Any) -> dict[str, Any]:
    """Returns key -> global variable, with the same keys on all ranks."""
    found = {}
    if model is not None:
        found = {f"weight {place}": weight for place, weight in enumerate(model.weights)}
        optimizer = model.optimizer
        if isinstance(optimizer, tf.keras.optimizers.Optimizer):
            settings = {name: getattr(optimizer, name, None) for name in optimizer.get_config()}
            found |= {f"optimizer's weight {place}": weight for place, weight in enumerate(optimizer.weights)}
            found |= {f"optimizer's {name}": value for name, value in settings.items() if hasattr(value, "assign")}
    known = {id(variable) for variable in found.values()}
    return found | {variable.op.name: variable for variable in tf.global_variables() if id(variable) not in known}


def _values_of(variables: Mapping[str, Any], session: tf.Session) -> dict[str, np.ndarray]:
    """Returns key -> value; variables without one are left out."""
    without = {name.decode() for name in session.run(tf.report_uninitialized_variables(list(variables.values())))}
    return session.run({key: variable for key, variable in variables.items() if variable.op.name not in without})


def mean_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Returns the mean of each metric over the ranks that have it."""
    everyone = hvd.allgather_object(dict(values), name=_CHANNEL)
    return {name: float(np.mean([each[name] for each in everyone if name in each])) for name in values}


def _array(value: Any) -> np.ndarray:
    if tf.is_tensor(value):
        value = tf.keras.backend.get_session().run(value)
    array = np.asarray(value)
    return array.astype(np.float32) if isinstance(value, float) else array  # as TensorFlow makes a tensor of it


def _scaled(value: np.ndarray, factor: float) -> np.ndarray:
    return value if factor == 1.0 else value * np.asarray(factor, value.dtype)


def _by_rank(value: np.ndarray) -> list[np.ndarray]:
    return hvd.allgather_object(value, name=_CHANNEL)


def _of_chief(value: Any) -> Any:
    """Returns the value of rank 0; those of the others stay where they are.

    Raises:
      ClusterLostError: rank 0 is no more.
    """
    is_chief = hvd.rank() == 0
    has_value, found = hvd.allgather_object((is_chief, value if is_chief else None), name=_CHANNEL)[0]
    if not has_value:
        raise ClusterLostError("chief_failed", "rank 0 is no more, and its values were to be broadcast; start all "
                               "tasks again: they continue from the last checkpoint")
    return found
