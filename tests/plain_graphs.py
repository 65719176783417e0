"""Sessions of tasks in this process that run each graph as it was built.

TensorFlow's optimisation of graphs takes a fifth of the CPU time of a small training, and gains nothing in it. Tests
about what happens to a graph are marked `optimised`; tests/system trains with it always.
"""

from __future__ import annotations

from ps_train.coordination import sessions

are_wanted = False


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
