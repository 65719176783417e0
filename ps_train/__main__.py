"""The command line, `python -m ps_train [verb] --flags`: runs a verb and turns its errors into lines and exit codes.

    argv --> verb --> Config --> the cluster --> tasks/run.py, launch/launcher.py or keras/verbs.py --> exit code

Nothing here imports TensorFlow before the flags are checked.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import os
import signal
import sys
import threading
from collections.abc import Sequence

from ps_train import __version__
from ps_train.cluster import resolve, spec
from ps_train.config import fields, launch
from ps_train.config import script as config_script
from ps_train.config import task as config
from ps_train.errors import ConfigError, MissingDataError, PsTrainError
from ps_train.runtime import installed, logs, reports, signals, tracebacks

_CLEAN_UP_SECS = 1.0
_USAGE = """\
Parameter-server training for TensorFlow 1 graph code, one process per task.

Usage (the default verb is train):
  ps_train train --job_name=JOB --task_index=N --ps_hosts=... --worker_hosts=...
           Run one task of a cluster: a ps serves, a worker trains.
  ps_train launch [--num_ps=2] [--num_workers=2]
           Run a whole cluster on this machine.
  ps_train serve --job_name=JOB --task_index=N --ps_hosts=... --worker_hosts=...
           Run a server for workers that use --existing_servers.
  ps_train keras --strategy=NAME
           Train a Keras model under a tf.distribute strategy, or run one task
           of such a training.
  ps_train launch keras --strategy=NAME
           Run all tasks of a Keras training on this machine.
  ps_train run [flags] script.py [its flags]
           Run one task whose code is an unchanged TensorFlow 1 script, or with
           -m a module. TF_CONFIG or the script's flags say which task it is.
  ps_train launch run [--num_ps=1] [--num_workers=2] script.py [its flags]
           Run all tasks of such a script on this machine.
  ps_train convert --to=keras|graph --train_dir=DIR --output_dir=DIR
           Convert a checkpoint of `train` into one of `keras`, or back.

If TF_CONFIG is set, it replaces the four cluster flags.
--flagfile=FILE reads further flags from a file, one per line.
Exit codes: 0 done, 1 a fault in your code or data, 2 bad configuration,
138 the cluster was lost (run the same command again), 143 told to stop."""


def _train(argv: Sequence[str]) -> None:
    task_config = config.parse_task(argv)
    if task_config.download_only:
        own = _resolve(task_config) if "job_name" in task_config.given else None
        _import_task(task_config, needs_gpu=False).download(task_config, own)
        return
    own = _resolve(task_config)
    with signals.on_signals() as stop:
        task = _import_task(task_config, needs_gpu=own.job != "ps")
        signals.run_until_stopped(lambda: task.run_task(task_config, own, stop), stop, task_config.stop_timeout_secs)


def _serve(argv: Sequence[str]) -> None:
    task_config = config.parse_serve(argv)
    own = _resolve(task_config)
    if own.job == "evaluator":
        raise ConfigError(f"{own.task.name} has no server; start it without `serve`")
    with signals.on_signals() as stop:
        task = _import_task(task_config, needs_gpu=own.job != "ps")
        signals.run_until_stopped(lambda: task.serve(task_config, own, stop), stop, task_config.stop_timeout_secs)


def _run(argv: Sequence[str]) -> None:
    words, script = config_script.split_script(argv, "run", config_script.ScriptConfig)
    values, _ = fields.parse_flags(words, config_script.ScriptConfig, help_command="ps_train run --help")
    script_config = config_script.ScriptConfig(**values)
    installed.prepare_import(needs_gpu=True, tf_log=script_config.tf_log)
    from ps_train.legacy import run  # noqa: PLC0415 (TensorFlow takes seconds)

    run.run_script(script_config, script)


def _launch(argv: Sequence[str]) -> None:
    from ps_train.launch import launcher  # noqa: PLC0415 (a task does not need it)

    if argv[:1] == ["keras"]:
        _keras_verbs().launch_keras(argv[1:])
    elif argv[:1] == ["run"]:
        from ps_train.legacy import launching  # noqa: PLC0415 (most launches need no script)

        launching.launch_script(argv[1:])
    else:
        launcher.run(*launch.parse_launch(argv))


def _keras(argv: Sequence[str]) -> None:
    _keras_verbs().run_keras(argv)


def _convert(argv: Sequence[str]) -> None:
    _keras_verbs().run_convert(argv)


def _keras_verbs():
    from ps_train.keras import verbs  # noqa: PLC0415 (graph training does not need it)

    return verbs


_VERBS = {"train": _train, "launch": _launch, "run": _run, "serve": _serve, "keras": _keras, "convert": _convert}


def _resolve(task_config: config.Config) -> spec.Cluster:
    return resolve.find_cluster(
        ps_hosts=task_config.ps_hosts,
        worker_hosts=task_config.worker_hosts,
        job_name=task_config.job_name,
        task_index=task_config.task_index,
        tf_config=task_config.tf_config,
        given=task_config.given,
        elastic=task_config.elastic,
    )


def _import_task(task_config: config.Config, needs_gpu: bool):
    """Imports and returns tasks/run.py, and with it TensorFlow."""
    installed.prepare_import(needs_gpu, task_config.tf_log)
    from ps_train.tasks import run  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    return run


def _help(verb: str, arguments: Sequence[str]) -> str:
    if flags_class := _flags_of_script(verb, arguments):
        return f"{_USAGE}\n{fields.help_text(flags_class)}"
    if verb in ("keras", "convert") or (verb == "launch" and arguments[:1] == ["keras"]):
        return f"{_USAGE}\n{_keras_verbs().keras_help(verb)}"
    if verb == "launch":
        return f"{_USAGE}\n{fields.help_text(launch.LaunchConfig, config.Config, omit=launch.PLACED_BY_LAUNCH)}"
    return f"{_USAGE}\n{fields.help_text(config.Config)}"


def _split(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the verb, which is `train` by default, and the flags."""
    if not argv or argv[0].startswith("-"):
        return "train", list(argv)
    if argv[0] not in _VERBS:
        near = difflib.get_close_matches(argv[0], _VERBS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown verb {argv[0]!r}; {hint}allowed: {', '.join(_VERBS)}")
    return argv[0], list(argv[1:])


def _flags_of_script(verb: str, arguments: Sequence[str]) -> type | None:
    """Returns the class of the flags that stand before a script; None if the verb runs none."""
    if verb == "run":
        return config_script.ScriptConfig
    return config_script.ScriptLaunchConfig if verb == "launch" and arguments[:1] == ["run"] else None


def _own_arguments(verb: str, arguments: Sequence[str]) -> Sequence[str]:
    """Returns the arguments of ps_train: those behind the script of `run` are the script's own."""
    flags_class = _flags_of_script(verb, arguments)
    if flags_class is None:
        return arguments
    return config_script.before_script(arguments if verb == "run" else arguments[1:], flags_class)


def main(argv: Sequence[str]) -> int:
    """Runs one command line, without the program's name, and returns the exit code."""
    logs.setup()
    try:
        verb, arguments = _split(argv)
        own_arguments = _own_arguments(verb, arguments)
        if {"--help", "-help", "-h", "--helpfull"} & set(own_arguments):
            with contextlib.suppress(BrokenPipeError):  # a pager that was closed
                print(_help(verb, arguments), flush=True)
        elif "--version" in own_arguments:
            print(__version__)
        else:
            _VERBS[verb](arguments)
    except PsTrainError as error:
        missing_data = error.fault if isinstance(error, MissingDataError) else ""
        _print_failure([], reports.Failure(str(error).splitlines(), missing_data))
        return error.exit_code
    except KeyboardInterrupt:  # before a task or a launcher handles signals itself
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 (from the user's code: its traceback is what helps)
        trace, message = (tracebacks.whole(error), []) if "--tf_log" in argv else tracebacks.report(error)
        _print_failure(trace, reports.Failure(message, is_in_user_code=bool(message)))
        return 1
    return 0


def _print_failure(trace: list[str], failure: reports.Failure) -> None:
    """Prints why this process fails, and reports it to the launcher, if one has started this process."""
    lines = [*trace, *failure.lines()]
    reports.send(failure, lines)
    logs.complain("".join(f"{line}\n" for line in lines))


def console() -> None:
    """Runs the command line of this process, and ends the process with its exit code."""
    reports.connect()
    logs.open_closed_streams()
    code = main(sys.argv[1:])
    # What was registered to run at exit runs now, in bounded time: TensorFlow removes temporary files there.
    clean_up = threading.Thread(target=atexit._run_exitfuncs, daemon=True)  # noqa: SLF001 (there is no public name)
    clean_up.start()
    clean_up.join(_CLEAN_UP_SECS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a closed pipe or a full disk: the exit code still counts
            stream.flush()
    # Not `sys.exit`: threads that a lost peer holds inside TensorFlow would keep the process alive, or write warnings
    # while the interpreter shuts down.
    os._exit(code)


if __name__ == "__main__":
    console()
