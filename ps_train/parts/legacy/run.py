"""`ps_train run script.py`: one task, whose code is an unchanged TensorFlow 1 script.

    the mode of TensorFlow --> TF1's names --> ps_train's classes for TensorFlow's --> the script --> leave

A script for TensorFlow 2 (Keras under `tf.distribute`) keeps TensorFlow as it is, with Keras 2, or with Keras 3 if it
imports that; the launcher learns from TensorFlow's own server or strategy that its task is not alone. The decision:
docs/decisions/scripts.md.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import logging
import multiprocessing.spawn
import os
import pathlib
import runpy
import sys
import types
import warnings
from typing import Any, Callable

import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context  # no public name for the server of a strategy
from tensorflow.python.training import monitored_session, server_lib, supervisor, sync_replicas_optimizer  # as below
from tensorflow.python.util import deprecation

from ps_train.cluster import ports
from ps_train.graph import batches
from ps_train.parts.legacy import (
    autograph_rules,
    children,
    conversion,
    mode_advice,
    session_strings,
    source,
    strategy_ends,
)
from ps_train.parts.legacy.classic import ending, membership, script_cluster, session_repairs, sessions
from ps_train.parts.legacy.classic.server import Server, replica_device_setter
from ps_train.parts.legacy.classic.sync_replicas import SyncReplicasOptimizer
from ps_train.parts.legacy.conversion import Conversion
from ps_train.parts.legacy.flags import Script, ScriptConfig, parse_mapped
from ps_train.parts.legacy.horovod import imports as horovod_imports
from ps_train.parts.legacy.names import datasets
from ps_train.runtime import reports
from ps_train.runtime.waits import Timeouts


def run_script(config: ScriptConfig, script: Script) -> None:
    """Runs a script as one task, in the main thread, and ends the process with its exit code.

    Raises:
      ConfigError: the script does not exist.
    """
    path = source.find(script)
    if not config.tf_log:
        let_script_show_tensorflow_log()
    is_tensorflow_1 = source.is_script_tensorflow_1(config.tf_mode, path, script)
    if config.tf_mode == "auto":
        mode_advice.set_guess(1 if is_tensorflow_1 else 2)
    if is_tensorflow_1:
        _prepare_tensorflow_1(config)
    else:
        ports.release_held_port()  # its strategy starts the server
        _join_servers()
        horovod_imports.refuse_in_tensorflow_2()
    ending.SignalWatch(config.stop_timeout_secs)
    ending.report_hard_end(_leave_cluster, is_ps=lambda: _own_ps() is not None)
    words = " ".join(Script(script.name, script.is_module, ()).words)
    changes = _conversion_of(config, str(path), is_tensorflow_1)
    if is_tensorflow_1:
        children.adopt_spawned(dataclasses.replace(config, python2=changes.is_python2))
    if changes.is_python2:
        session_strings.let_sessions_return_text()
    ending.set_python2_advice("" if changes.is_python2 else f"run it with `ps_train run --python2 {words}`, which "
                              "converts a copy (docs/migrate.md)")
    code = _run(script, changes)
    _report_strategy()
    if code == 0 and not _serves_only():  # a failed script ends at once, as the other tasks wait for it
        _wait_and_announce_end()
    ending.leave(_leave_cluster(code))


def _own_ps() -> ScriptServer | None:
    return next((server for server in _servers if server.cluster.job == "ps"), None)


def _serves_only() -> bool:
    return _own_ps() is not None and membership.current() is None


def _leave_cluster(code: int) -> int:
    """Leaves the cluster after the script; returns the exit code of the process, which a ps ends by itself."""
    ps, serves_only = _own_ps(), _serves_only()
    ending.script_ended.set()
    if code == 0 and serves_only:
        ps.leave()
    code = ending.finish(code)
    if code == 0 and ps is not None:  # its workers in this process have ended; there may be others
        ps.leave()
    return code


def prepare_spawned_child(config: ScriptConfig) -> None:
    """Prepares this process, which a TensorFlow 1 script has started by `multiprocessing`, before it loads its file."""
    if not config.tf_log:
        let_script_show_tensorflow_log()
    _prepare_tensorflow_1(config)
    changes = Conversion(config.python2, parse_mapped("--map_path", config.map_path), finds_python2=True)
    if changes.is_python2:
        session_strings.let_sessions_return_text()
    changes.install()
    children.adopt_spawned(config)
    multiprocessing.spawn.runpy = types.SimpleNamespace(  # type: ignore[attr-defined]
        run_path=changes.run, run_module=runpy.run_module)


def _conversion_of(config: ScriptConfig, path: str, is_tensorflow_1: bool) -> Conversion:
    """Returns how the code changes. A TensorFlow 1 script that only Python 2 can read is converted without a flag."""
    is_python2 = config.python2
    if is_tensorflow_1 and not is_python2 and conversion.is_text_python2(conversion.decoded_text(path), path):
        print(f"ps_train run: {path} is Python 2: a converted copy runs, as with --python2", file=sys.stderr)
        is_python2 = True
    return Conversion(is_python2, parse_mapped("--map_path", config.map_path), finds_python2=is_tensorflow_1)


def let_script_show_tensorflow_log() -> None:
    """Shows TensorFlow's log from INFO on once the script has set the root logger to INFO, for example the losses.

    So it is in plain Python. Here TensorFlow was imported before the script, and shows nothing but errors.
    """
    logger, root = logging.getLogger("tensorflow"), logging.getLogger()
    logger.setLevel(logging.NOTSET)
    logger.addFilter(lambda record: (
        record.levelno >= logging.ERROR or root.level <= logging.INFO or logger.level != logging.NOTSET))
    for handler in logger.handlers:  # TensorFlow adds one if the root logger has none yet
        handler.addFilter(lambda record: not root.handlers)


def _prepare_tensorflow_1(config: ScriptConfig) -> None:
    from ps_train.parts.legacy.names import installation  # noqa: PLC0415 (most of TensorFlow, which 2 does not need)

    tf.disable_v2_behavior()
    if not config.tf_log:  # most calls of such a script are deprecated
        deprecation._PRINT_DEPRECATION_WARNINGS = False  # noqa: SLF001 (it has no public name)
        warnings.filterwarnings("ignore", message=".* is deprecated and will be removed in a future version")
        warnings.filterwarnings("ignore", message=r"`Model\.state_updates` will be removed")  # Keras reads it itself
    if config.reference_variables:
        tf.disable_resource_variables()
    else:
        tf.enable_resource_variables()
    replace_classes(config.timeouts)
    children.adopt_children(config)
    _prepare_estimator(config.timeouts)
    installation.install()
    horovod_imports.offer(ScriptServer)
    autograph_rules.leave_python2_alone()


def _prepare_estimator(timeouts: Timeouts) -> None:
    """Provides `tf.estimator`, with ps_train's server and sessions, if the package is installed."""
    if importlib.util.find_spec("tensorflow_estimator") is None or importlib.util.find_spec("tf_keras") is None:
        return
    from ps_train.parts.legacy import estimator, observer  # noqa: PLC0415 (most scripts have none)

    def find_end(run_config: Any) -> Callable[[bool], bool] | None:
        # No earlier: some scripts set TF_CONFIG themselves.
        watching = strategy_ends.chief_watch(run_config, timeouts) or observer.observer_from_environment(timeouts)
        return watching.is_over if watching else None

    estimator.replace(ScriptServer, sessions.MonitoredTrainingSession, find_end, script_server)
    from ps_train.parts.legacy.names import run_config  # noqa: PLC0415 (it needs the Estimator)

    run_config.know_chief_as_worker_0()


def _run(script: Script, changes: Conversion) -> int:
    """Returns the exit code of a script."""
    sys.argv = [script.name, *script.arguments]
    if changes:
        changes.install()
    try:
        if script.is_module:
            sys.path[:] = [os.getcwd(), *(place for place in sys.path if place)]
            runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        else:
            # `python -m ps_train` put the working directory first; PYTHONPATH may name it as well, and that stays.
            others = sys.path[1:] if sys.path[:1] in ([""], [os.getcwd()]) else sys.path
            sys.path[:] = [str(pathlib.Path(script.name).resolve().parent), *others]
            if changes:
                changes.run(script.name)
            else:
                runpy.run_path(script.name, run_name="__main__")
    except SystemExit as error:  # the exit code is the one that Python would compute
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 (the script's own error)
        if not ending.is_stopping():
            ending.report_failure(error)
        return ending.exit_code_of(error)
    return 0


def _join_servers() -> None:
    """Reports each server that a script of TensorFlow 2 creates, and lets its `join` end with the coordinator."""
    make = server_lib.Server.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _report_joined(self.server_def)

    server_lib.Server.__init__ = init
    server_lib.Server.join = lambda self: strategy_ends.join_server(self.server_def)


def _report_strategy() -> None:
    """Reports the cluster of a `tf.distribute` strategy, if the script has created one."""
    strategy_context = context.context_safe()
    for name in ("_server_def", "_collective_ops_server_def"):
        server_def = getattr(strategy_context, name, None)
        if server_def is not None:
            _report_joined(server_def)
            return


def _wait_and_announce_end() -> None:
    """Waits for the script's threads; then tells the servers of a ParameterServerStrategy that it has ended well."""
    ending.wait_for_threads()
    server_def = getattr(context.context_safe(), "_server_def", None)
    if server_def is not None:
        strategy_ends.announce_to_servers(server_def)


def _report_joined(server_def: Any) -> None:
    reports.send(reports.Joined(f"{server_def.job_name}:{server_def.task_index}", ""), [])


class ScriptServer(Server):
    """The server of an unchanged script, whose `join` ends the process: TensorFlow's never returns."""

    exits_after_join = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _servers.append(self)


_servers: list[ScriptServer] = []


def script_server() -> ScriptServer | None:
    """Returns the server that the script has created last, or None."""
    return _servers[-1] if _servers else None


def replace_classes(timeouts: Timeouts) -> None:
    """Replaces the classes in `tf.compat.v1` by those of ps_train, whose waits have these bounds."""
    ScriptServer.default_timeouts = timeouts
    sessions.install_session_manager()
    session_repairs.end_blocks_at_a_late_run()
    session_repairs.stop_sessions_that_save()
    session_repairs.leave_waiting_queue_runners()
    session_repairs.place_softly_without_gpus()
    script_cluster.note_mapped_jobs()
    for module in (tf, tf2.compat.v1):
        module.Session = sessions.Session
        module.InteractiveSession = sessions.InteractiveSession
        module.train.SessionManager = sessions.SessionManager
        module.train.Server = ScriptServer
        module.train.Supervisor = sessions.Supervisor
        module.train.MonitoredTrainingSession = sessions.MonitoredTrainingSession
        module.train.SyncReplicasOptimizer = SyncReplicasOptimizer
        module.train.replica_device_setter = replica_device_setter
        module.distribute.Server = ScriptServer
    tf2.distribute.Server = ScriptServer
    # No public places to set these: the training loops of TF-Slim take them from here.
    supervisor.Supervisor = sessions.Supervisor
    sync_replicas_optimizer.SyncReplicasOptimizer = SyncReplicasOptimizer
    monitored_session.MonitoredTrainingSession = sessions.MonitoredTrainingSession
    for owner in (tf.data, tf.data.Dataset):
        owner.make_one_shot_iterator = _of_untuned(owner.make_one_shot_iterator, datasets.in_default_graph)
        owner.make_initializable_iterator = _of_untuned(owner.make_initializable_iterator, datasets.in_default_graph)


def _of_untuned(make: Callable[..., Any], change: Callable[[Any], Any] = lambda dataset: dataset) -> Callable[..., Any]:
    """Returns a function that makes an iterator of a dataset, as `make` does, with tf.data's autotuning off.

    Args:
      change: is done to the dataset before.
    """
    @functools.wraps(make)
    def of_untuned(dataset: tf.data.Dataset, *args: Any, **kwargs: Any) -> Any:
        return make(batches.untuned(change(dataset)), *args, **kwargs)

    return of_untuned
