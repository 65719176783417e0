"""Sessions of tasks in this process that run each graph as it was built.

TensorFlow's optimisation of graphs takes a fifth of the CPU time of a small training, and gains nothing in it. In
tests/cluster it is off, but for tests about what happens to a graph, which are marked `optimised`. In tests/system it
is on, but for tests about faults, which are marked `plain_graphs`.
"""

from __future__ import annotations

import functools

from ps_train.coordination import sessions

are_wanted = False


@functools.cache
def install() -> None:
    """Changes the options of the sessions that are made from now on, as long as `are_wanted`."""
    options_of_tasks = sessions.options

    def options(*arguments, **further):
        found = options_of_tasks(*arguments, **further)
        if are_wanted:
            found.graph_options.rewrite_options.disable_meta_optimizer = True
            found.graph_options.optimizer_options.opt_level = -1  # L0
        return found

    sessions.options = options
