"""Reports to the launcher that a task is not alone, where TensorFlow's own servers and strategies make the cluster.

A script of TensorFlow 1 with a ps reports it by its membership (classic/membership.py).
"""

from __future__ import annotations

import functools
from typing import Any

from tensorflow.python.eager import context  # there is no public name for the server of a strategy
from tensorflow.python.training import server_lib

from ps_train.runtime import reports


def report_servers() -> None:
    """Reports each server that a script of TensorFlow 2 makes; its task may end in `join`. Call it once."""
    make = server_lib.Server.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _report(self.server_def)

    server_lib.Server.__init__ = init


def report_strategy() -> None:
    """Reports the cluster of a `tf.distribute` strategy, if the script has made one."""
    found = context.context_safe()
    for name in ("_server_def", "_collective_ops_server_def"):
        server_def = getattr(found, name, None)
        if server_def is not None:
            _report(server_def)
            return


def _report(server_def: Any) -> None:
    reports.send(reports.Joined(f"{server_def.job_name}:{server_def.task_index}", ""), [])
