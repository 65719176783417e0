"""`ps_train run script.py`: one task, whose code is an unchanged TensorFlow 1 script.

    the mode of TensorFlow --> TF1's names --> ps_train's classes in the place of TensorFlow's --> the script --> leave

A script for TensorFlow 2 (Keras under `tf.distribute`) keeps TensorFlow as it is, with Keras 2.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pathlib
import re
import runpy
import sys
from typing import NoReturn

import tensorflow.compat.v1 as tf

from ps_train.config.script import Script, ScriptConfig
from ps_train.errors import ConfigError
from ps_train.legacy.classic import ending, install

_LOG = logging.getLogger(__name__)
# What only TensorFlow 1 code has.
_TF1 = re.compile(
    r"\btf\.(compat\.v1\b|Session\b|InteractiveSession\b|placeholder\b|app\b|flags\b|contrib\b|estimator\b|layers\b|"
    r"get_variable\b|ConfigProto\b|global_variables|initialize_|logging\b|train\.(Server|Supervisor|Monitored|"
    r"SyncReplicas|replica_device_setter|Saver|get_or_create|string_input|\w*Optimizer))|"
    r"tensorflow\.(contrib|examples|compat\.v1|python)\b|disable_v2_behavior|\btf_slim\b")
_TF2 = re.compile(r"\bkeras\b|tf\.function|MultiWorkerMirroredStrategy|tf\.distribute\.|GradientTape")


def source_of(script: Script) -> pathlib.Path:
    """Returns the file of a script.

    Raises:
      ConfigError: there is no such file or module.
    """
    if not script.is_module:
        path = pathlib.Path(script.name)
        if not path.is_file():
            raise ConfigError(f"ps_train run: no file {script.name!r} in {pathlib.Path.cwd()}; give the path of a "
                              "Python script, or -m and the name of a module")
        return path
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(script.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{script.name}.__main__")
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise ConfigError(f"ps_train run: no module {script.name!r} from the working directory {pathlib.Path.cwd()}")
    return pathlib.Path(spec.origin)


def uses_tensorflow_1(text: str) -> bool:
    """Tells whether a script is for TensorFlow 1; if nothing shows it, it is, unless it uses what only 2 has."""
    return bool(_TF1.search(text)) or not _TF2.search(text)


def run_script(config: ScriptConfig, script: Script) -> NoReturn:
    """Runs a script as one task, in the main thread, and ends the process with its exit code.

    Raises:
      ConfigError: there is no such script.
    """
    path = source_of(script)
    is_tf1 = config.tf_mode == "1" or (
        config.tf_mode == "auto" and uses_tensorflow_1(path.read_text(encoding="utf-8", errors="replace")))
    if is_tf1:
        _prepare_tensorflow_1(config)
    ending.SignalWatch(config.stop_timeout_secs)
    code = _run(script)
    ending.note_script_end()
    server = install.script_server()
    if server is not None and server.cluster.job == "ps" and code == 0:
        server.leave()
    ending.leave(ending.finish(code))


def _prepare_tensorflow_1(config: ScriptConfig) -> None:
    from ps_train.legacy import names  # noqa: PLC0415 (patches TensorFlow)

    tf.disable_v2_behavior()
    if config.reference_variables:
        tf.disable_resource_variables()
    else:
        tf.enable_resource_variables()
    _prepare_estimator()
    install.install(config.timeouts)
    names.install()


def _prepare_estimator() -> None:
    """Puts `tf.estimator` there, if the package is installed."""


def _run(script: Script) -> int:
    """Returns the exit code of a script."""
    sys.argv = [script.name, *script.arguments]
    try:
        if script.is_module:
            sys.path[:] = [os.getcwd(), *(place for place in sys.path if place != "")]
            runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        else:
            sys.path[:] = [str(pathlib.Path(script.name).resolve().parent), *(
                place for place in sys.path if place not in ("", os.getcwd()))]
            runpy.run_path(script.name, run_name="__main__")
    except SystemExit as error:
        return _code_of(error)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # noqa: BLE001 (whatever the script raised)
        if not ending.is_stopping():
            ending.report(error)
        return ending.exit_code_of(error)
    return 0


def _code_of(error: SystemExit) -> int:
    """Returns the exit code of `sys.exit(x)`, as Python computes it."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


