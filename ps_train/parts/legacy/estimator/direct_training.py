"""`Estimator.train` called directly in a cluster, as scripts do that were made for one process.

    train_and_evaluate    starts the server of its task by itself
    Estimator.train       the original expects a server that nobody has started: here it starts one
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from ps_train.parts.legacy.estimator import bridge


def start_servers(server_class: Any, has_server: Callable[[], bool]) -> None:
    """Lets `Estimator.train` start the server of its task, if the cluster has several and none is started yet.

    Args:
      server_class: called as `tf.train.Server` is; its `join` ends the process of a ps when training is over.
      has_server: tells whether this process has made a server.
    """
    bridge.install_estimator()
    from tensorflow_estimator.python.estimator import estimator  # noqa: PLC0415 (after `install_estimator`)

    train = estimator.Estimator.train

    @functools.wraps(train)
    def train_with_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = self.config
        jobs = set(config.cluster_spec.jobs) if config.cluster_spec else set()
        if "ps" in jobs and config.task_type in jobs and not has_server():
            server = server_class(config.cluster_spec, job_name=config.task_type, task_index=config.task_id,
                                  config=config.session_config)
            if config.task_type == "ps":
                server.join()
        return train(self, *args, **kwargs)

    estimator.Estimator.train = train_with_server
