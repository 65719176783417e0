"""The fingerprint of a worker: everything that must be the same for all workers of a training, as text.

    chief: describe --> text on the blackboard        other workers: describe --> differences --> refused, or admitted

Addresses are not part of it: a task may reach another through a tunnel or a proxy, at an address that only it knows.
See docs/decisions/blackboard.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster

_MOST_SHOWN = 4
_UNKNOWN = "unknown"  # a value that one of the two tasks does not know is not compared


def describe(
    cluster: Cluster, options: Mapping[str, Any], variables: Sequence[tf.Variable],
    packed: Mapping[str, str] | None = None, others: Mapping[str, str] | None = None, train_dir: str = "",
) -> str:
    """Returns the fingerprint of a worker.

    Args:
      options: name -> value of the flags that all workers must share.
      variables: the graph's global variables; all workers must share their names, shapes, dtypes and placement.
      packed: name of a packed variable -> name of the variable that contains it (graph/packing.py).
      others: name -> further values that must be the same for all workers.
      train_dir: the chief's; the other workers do not know it.
    """
    places = packed or {}
    return json.dumps({
        **{f"--{name}": value for name, value in options.items()},
        "number of ps": len(cluster.ps),
        "number of workers": _UNKNOWN if "worker" in cluster.partial else cluster.num_workers,
        "--train_dir": os.path.realpath(train_dir) if train_dir else _UNKNOWN,
        **{f"variable {variable.op.name}": _variable(variable, places.get(variable.op.name))
           for variable in variables},
        **(others or {}),
    }, sort_keys=True)


def _variable(variable: tf.Variable, place: str | None) -> str:
    shape = variable.shape.as_list() if variable.shape.rank is not None else "of unknown shape"
    ps = tf.DeviceSpec.from_string(variable.device).task
    return f"{variable.dtype.base_dtype.name}{shape} on ps:{ps}{f', in {place}' if place else ''}"


def differences(theirs: str, this: str, *, their_name: str) -> list[str]:
    """Returns a line for each difference between two fingerprints; only the first few if there are many.

    Args:
      theirs: the fingerprint of the other task.
      this: the fingerprint of this task.
      their_name: the other task in messages, such as "worker:0 (chief)".
    """
    other, mine = json.loads(theirs), json.loads(this)
    names = [name for name in sorted({*other, *mine})
             if other.get(name) != mine.get(name) and _UNKNOWN not in (other.get(name), mine.get(name))]
    lines = [f"{name}: here {mine.get(name, 'missing')}, at {their_name} {other.get(name, 'missing')}"
             for name in names[:_MOST_SHOWN]]
    return lines + ([f"and {len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else [])
