"""`python -m ps_train [verb] --flags`: turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence

from ps_train import __version__, cluster, config, flagset, logs, stopping
from ps_train.errors import ConfigError, PsTrainError

_USAGE = """\
Parameter-server training for TensorFlow 1 graph code, one process per task.

usage: ps_train [train] --job_name=ps|worker --task_index=N --ps_hosts=... --worker_hosts=... [flags]
       ps_train launch [--num_ps=2] [--num_workers=2] [flags]    a whole cluster on this machine
       ps_train serve --job_name=... --task_index=N ...          a server for --existing_servers

TF_CONFIG, where it is set, takes the place of the four cluster flags. Exit codes: 0 done, 1 a fault in your code
or data, 2 bad configuration, 138 the cluster was lost (run it again), 143 told to stop."""


def _train(argv: Sequence[str]) -> None:
    task_config = config.parse_task(argv)
    if task_config.download_only:
        _import_task(task_config, needs_gpu=False).download(task_config)
        return
    own = _resolve(task_config)
    with stopping.on_signals() as stop:
        _import_task(task_config, needs_gpu=own.job != "ps").run(task_config, own, stop)


def _serve(argv: Sequence[str]) -> None:
    task_config = config.parse_task(argv)
    own = _resolve(task_config)
    with stopping.on_signals() as stop:
        _import_task(task_config, needs_gpu=own.job != "ps").serve(task_config, own, stop)


def _launch(argv: Sequence[str]) -> None:
    from ps_train import launch  # noqa: PLC0415 (a task does not need it)

    launch.run(*config.parse_launch(argv))


_VERBS = {"train": _train, "launch": _launch, "serve": _serve}


def _resolve(task_config: config.Config) -> cluster.Cluster:
    return cluster.resolve(
        task_config.ps_hosts,
        task_config.worker_hosts,
        task_config.job_name,
        task_config.task_index,
        task_config.tf_config,
        task_config.given,
    )


def _import_task(task_config: config.Config, needs_gpu: bool):
    """Imports what needs TensorFlow, which reads its settings while it is imported."""
    if not needs_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if not task_config.tf_log:
        logs.import_tensorflow_quietly()
    from ps_train import task  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    return task


def _help(verb: str) -> str:
    classes = [config.LaunchConfig, config.Config] if verb == "launch" else [config.Config]
    return f"{_USAGE}\n{flagset.help_text(*classes)}"


def _split(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the verb, `train` where none is given, and the flags."""
    if not argv or argv[0].startswith("-"):
        return "train", list(argv)
    if argv[0] not in _VERBS:
        raise ConfigError(f"unknown verb {argv[0]!r}; allowed: {', '.join(_VERBS)}")
    return argv[0], list(argv[1:])


def main(argv: Sequence[str]) -> int:
    """Runs one command line, without the program's name, and returns the exit code."""
    logs.setup()
    try:
        verb, arguments = _split(argv)
        if {"--help", "-help", "-h", "--helpfull"} & set(arguments):
            print(_help(verb))
        elif "--version" in arguments:
            print(__version__)
        else:
            _VERBS[verb](arguments)
    except PsTrainError as error:
        for line in str(error).splitlines():
            print(f"ps_train: {line}", file=sys.stderr)
        return error.exit_code
    except Exception:  # noqa: BLE001 (the user's own code: its traceback is what helps)
        traceback.print_exc()
        return 1
    return 0


def console() -> None:
    """Ends the process with the exit code of its command line.

    It ends with `os._exit`: threads that a lost peer holds inside TensorFlow would otherwise keep the process, or
    write warnings while the interpreter shuts down.
    """
    code = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    console()
