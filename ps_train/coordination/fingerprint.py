"""What all workers of a training must have in common, and how two of them differ.

    chief: describe --> text on the blackboard        other workers: describe --> compare --> refused, or welcome

Addresses are left out: a task may reach another through a tunnel or a proxy, at an address that only it knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster

_MOST_SHOWN = 4
_UNKNOWN = "unknown"  # what a task cannot tell is not compared


def describe(
    cluster: Cluster, options: Mapping[str, Any], variables: Sequence[tf.Variable],
    packed: Mapping[str, str] | None = None,
) -> str:
    """Returns the fingerprint of a worker as text.

    Args:
      options: name -> value of the flags that all workers must share.
      variables: the graph's global variables, whose names, shapes, types and places all workers must share.
      packed: variable -> where it is, both by name, of the packed ones (graph/packing.py).
    """
    places = packed or {}
    return json.dumps({
        **{f"--{name}": value for name, value in options.items()},
        "number of ps": len(cluster.ps),
        "number of workers": _UNKNOWN if "worker" in cluster.partial else cluster.num_workers,
        **{f"variable {variable.op.name}": _variable(variable, places.get(variable.op.name))
           for variable in variables},
    }, sort_keys=True)


def _variable(variable: tf.Variable, place: str | None) -> str:
    shape = variable.shape.as_list() if variable.shape.rank is not None else "of unknown shape"
    ps = tf.DeviceSpec.from_string(variable.device).task
    return f"{variable.dtype.base_dtype.name}{shape} on ps:{ps}{f', in {place}' if place else ''}"


def differences(theirs: str, own: str, their_name: str) -> list[str]:
    """Returns a line for each thing in which two fingerprints differ, a few of them where there are many.

    Args:
      theirs: of `their_name`, such as "worker:0 (chief)".
      own: of this task.
    """
    other, mine = json.loads(theirs), json.loads(own)
    names = [name for name in sorted({*other, *mine})
             if other.get(name) != mine.get(name) and _UNKNOWN not in (other.get(name), mine.get(name))]
    lines = [f"{name}: here {mine.get(name, 'missing')}, at {their_name} {other.get(name, 'missing')}"
             for name in names[:_MOST_SHOWN]]
    return lines + ([f"and {len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else [])
