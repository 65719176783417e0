"""Reads the batches of a dataset plug-in."""

from __future__ import annotations

import numpy as np

import ps_train
from ps_train.graph import extensions
from tests.tensorflow_mode import tf


def read_batches(plugin, mode, params, shard=(0, 1), count=None):
    """Returns the first batches of a dataset, or all, as (features, labels), and how many records were left out."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        iterator = tf.data.make_initializable_iterator(plugin.input_fn(mode, params, shard))
        batch = iterator.get_next()
        skipped = [variable for variable in tf.local_variables() if variable.op.name.endswith("num_bad_records")]
        session.run([iterator.initializer, tf.local_variables_initializer()],
                    feed_dict=ps_train.input_feed(graph))
        found = []
        while count is None or len(found) < count:
            try:
                found.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                break
            except tf.errors.InvalidArgumentError as error:
                extensions.explain_error(graph, error, "")
                raise
        return found, sum(map(int, session.run(skipped)))


def read_examples(plugin, mode, params, shard=(0, 1), count=None):
    """Returns the examples of those batches: (features, labels), joined."""
    batches, _ = read_batches(plugin, mode, params, shard, count)
    features = {name: np.concatenate([one[name] for one, _ in batches]) for name in batches[0][0]}
    return features, np.concatenate([labels for _, labels in batches])
