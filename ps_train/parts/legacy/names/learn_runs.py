"""Of `tf.contrib.learn`: the values of tensors, of a graph whose variables are initialized or restored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

_GRACE_SECS = 120


def run_feeds_iter(output_dict: Mapping[str, Any], feed_dicts: Iterable,
                   restore_checkpoint_path: str | None = None) -> Iterator[dict]:
    """Yields name -> value for each of some feeds, while the queues of the graph are filled.

    Args:
      output_dict: name -> tensor.
      feed_dicts: what is fed, each a dictionary or None.
      restore_checkpoint_path: of the variables; without it they are initialized.

    Raises:
      ValueError: there is nothing to run.
    """
    if not output_dict or not feed_dicts:
        raise ValueError(f"output_dict and feed_dicts must not be empty; got {output_dict} and {feed_dicts}")
    graph = next(iter(output_dict.values())).graph
    with graph.as_default(), tf.Session(graph=graph) as session:
        if restore_checkpoint_path:
            _restore(session, restore_checkpoint_path)
        else:
            session.run(tf.global_variables_initializer())
        session.run([tf.local_variables_initializer(), tf.tables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            for feed in feed_dicts:
                yield session.run(dict(output_dict), feed)
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=_GRACE_SECS)


def _restore(session: tf.Session, path: str) -> None:
    """Restores by the graph's own saver, or by one of all variables, if there are some."""
    savers = tf.get_collection(tf.GraphKeys.SAVERS)
    if savers or tf.global_variables() or tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS):
        (savers[0] if savers else tf.train.Saver()).restore(session, path)


def run_feeds(output_dict: Mapping[str, Any], feed_dicts: Iterable,
              restore_checkpoint_path: str | None = None) -> list[dict]:
    """Returns a list of what `run_feeds_iter` yields."""
    return list(run_feeds_iter(output_dict, feed_dicts, restore_checkpoint_path))


def run_n(output_dict: Mapping[str, Any], feed_dict: Any = None, restore_checkpoint_path: str | None = None,
          n: int = 1) -> list[dict]:
    """Returns name -> value of each of `n` runs with the same feeds."""
    return run_feeds(output_dict, itertools.repeat(feed_dict, n), restore_checkpoint_path)


def infer(restore_checkpoint_path: str | None, output_dict: Mapping[str, Any], feed_dict: Any = None) -> dict:
    """Returns name -> value of one run."""
    return run_feeds(output_dict, [feed_dict], restore_checkpoint_path)[0]
