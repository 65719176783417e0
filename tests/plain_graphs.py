"""Sessions in this process that run each graph as it was built.

TensorFlow's optimisation of graphs takes a fifth of the CPU time of a small training, and gains nothing in it. So it is
off in the tests, but for those about what happens to a graph, and some trainings of real tasks: they are marked
`optimised`.
"""

from __future__ import annotations

import functools

import tensorflow.compat.v1 as tf

are_wanted = False


def options(config: tf.ConfigProto | None = None) -> tf.ConfigProto:
    """Returns the options of a session, changed so that TensorFlow optimises nothing."""
    found = tf.ConfigProto()
    if config is not None:
        found.CopyFrom(config)
    found.graph_options.rewrite_options.disable_meta_optimizer = True
    found.graph_options.optimizer_options.opt_level = -1  # L0
    return found


@functools.cache
def install() -> None:
    """Changes the options of the sessions that are made from now on, as long as `are_wanted`."""
    make = tf.Session.__init__

    def make_plain(self, target="", graph=None, config=None):
        make(self, target, graph, options(config) if are_wanted else config)

    tf.Session.__init__ = make_plain
