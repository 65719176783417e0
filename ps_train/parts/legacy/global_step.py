"""Finds the global step of a script that made it by hand."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def note_global_step(graph: tf.Graph | None = None) -> None:
    """Adds a variable named "global_step" to the collection GLOBAL_STEP, unless there is one already.

    `tf.Variable(0, name="global_step")` is in no such collection. TF1's hooks and its Supervisor found it by the name
    of its tensor, which is that of a handle now. Call this before a session is made.

    Args:
      graph: the default graph if None.
    """
    graph = graph or tf.get_default_graph()
    if graph.get_collection(tf.GraphKeys.GLOBAL_STEP):
        return
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        if variable.op.name == "global_step" and variable.dtype.is_integer and variable.shape.rank == 0:
            graph.add_to_collection(tf.GraphKeys.GLOBAL_STEP, variable)
            return
