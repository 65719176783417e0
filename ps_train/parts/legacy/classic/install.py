"""Puts ps_train's classes in the place of TensorFlow's, for a script that imports TensorFlow only."""

from __future__ import annotations

from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.classic import placement, sessions
from ps_train.parts.legacy.classic.server import Server
from ps_train.runtime.waits import Timeouts
from ps_train.updates.sync.sync_replicas import SyncReplicasOptimizer


class ScriptServer(Server):
    """The server of an unchanged script, whose `join` ends the process: code after it was never reached before."""

    exits_after_join = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _servers.append(self)


_servers: list[ScriptServer] = []


def script_server() -> ScriptServer | None:
    """Returns the server that the script has made last, or None."""
    return _servers[-1] if _servers else None


def replace_classes(timeouts: Timeouts) -> type[Server]:
    """Replaces the classes in `tf.compat.v1`; returns the class of the server.

    Args:
      timeouts: the bounds of every wait.
    """
    ScriptServer.default_timeouts = timeouts
    sessions.install_session_manager()
    for module in (tf, tf2.compat.v1):
        module.Session = sessions.Session
        module.InteractiveSession = sessions.InteractiveSession
        module.train.SessionManager = sessions.SessionManager
        module.train.Server = ScriptServer
        module.train.Supervisor = sessions.Supervisor
        module.train.MonitoredTrainingSession = sessions.MonitoredTrainingSession
        module.train.SyncReplicasOptimizer = SyncReplicasOptimizer
        module.train.replica_device_setter = placement.replica_device_setter
        module.distribute.Server = ScriptServer
    tf2.distribute.Server = ScriptServer
    return ScriptServer
