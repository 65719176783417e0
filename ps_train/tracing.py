"""Which of the loop's session runs are steps, from where they begin, and which nodes of a graph follow an update.

    train.Loop --run(fetches)--> TracedSession --a step--------> run_step(session, begin, fetches, options)
                                               --anything else-> session.run
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import spans
from ps_train.beats import Beats
from ps_train.graph import TrainGraph

_CHANGES = re.compile("Assign|Apply|Scatter|Enqueue")  # as in ResourceApplyAdam


class Begin(NamedTuple):
    """How a step begins.

    Attributes:
      step: the global step.
      held_secs: since when the worker was held up, in seconds since 1970, or None where it was not.
    """

    step: int
    held_secs: float | None


RunStep = Callable[[tf.Session, Begin, Any, tf.RunOptions], Any]


class TracedSession:
    """A session for `train.Loop`: its `run` is that of `tf.Session`, but steps go their own way."""

    def __init__(self, session: tf.Session, graph: TrainGraph, beats: Beats, run_step: RunStep) -> None:
        """Prepares.

        Args:
          beats: knows the global step that the loop saw last.
          run_step: `run_step(session, begin, fetches, options)` runs a step in place of `session.run`.
        """
        self._session = session
        self._graph = graph
        self._beats = beats
        self._run = run_step
        self._known_step: int | None = None
        self._ended_secs: float | None = None
        self._is_held = False

    def run(self, fetches: Any, options: tf.RunOptions) -> Any:
        """Runs a step, or something else."""
        if self._graph.single.progress in tf.nest.flatten(fetches):
            return self._run_step(fetches, options)
        values = self._session.run(fetches, options=options)
        if fetches is self._graph.status:  # at the start, and while the loop holds this worker up
            self._known_step = int(values[0])
            self._is_held = self._ended_secs is not None
        return values

    def _run_step(self, fetches: Any, options: tf.RunOptions) -> Any:
        """Runs a step, which begins at the global step that the run before has brought."""
        begin = Begin(self._beats.step if self._known_step is None else self._known_step,
                      self._ended_secs if self._is_held else None)
        self._known_step, self._ended_secs, self._is_held = None, None, False
        values = self._run(self._session, begin, fetches, options)
        self._ended_secs = time.time()
        return values


def answered(graph: tf.Graph) -> set[str]:
    """Returns the names of the nodes that come after a change on a ps, and so after the gradients.

    All of them: TensorFlow runs a node where its resource is, whatever device the graph says.
    """
    after: set[tf.Operation] = set()
    for node in graph.get_operations():  # as they were made: each one after what it depends on
        before = [*node.control_inputs, *(tensor.op for tensor in node.inputs)]
        changes_ps = spans.task_of(node.device).startswith("ps:") and _CHANGES.search(node.type)
        if changes_ps or not after.isdisjoint(before):
            after.add(node)
    return {node.name for node in after}
