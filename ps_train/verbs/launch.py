"""The verb `launch`: a whole cluster, on this machine or on those of --hosts, of `train`, `run` or `keras`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields, launch
from ps_train.config import task as config
from ps_train.launch import launcher
from ps_train.parts.legacy.flags import ScriptLaunchConfig, before_script
from ps_train.verbs.verb import Verb


def _launch(argv: Sequence[str]) -> None:
    if argv[:1] == ["keras"]:
        _keras().launch_keras(argv[1:])
    elif argv[:1] == ["run"]:
        from ps_train.parts.legacy import launching  # noqa: PLC0415 (most launches need no script)

        launching.launch_script(argv[1:])
    else:
        launcher.run(*launch.parse_launch(argv))


def _keras():
    from ps_train.parts.keras import verb  # noqa: PLC0415 (most launches are of `train`)

    return verb


def _flags_help(arguments: Sequence[str]) -> str:
    if arguments[:1] == ["keras"]:
        return _keras().launch_help()
    if arguments[:1] == ["run"]:
        return fields.help_text(ScriptLaunchConfig)
    return fields.help_text(launch.LaunchConfig, config.Config, omit=launch.PLACED_BY_LAUNCH)


def _own_arguments(arguments: Sequence[str]) -> Sequence[str]:
    return before_script(arguments[1:], ScriptLaunchConfig) if arguments[:1] == ["run"] else arguments


LAUNCH = Verb(
    usage="""\
  ps_train launch [--num_ps=2] [--num_workers=2]
           Run a whole cluster on this machine, or on those of --hosts=HOSTS.
  ps_train launch keras --strategy=NAME
           Run all tasks of a Keras training in the same way.
  ps_train launch run [--num_ps=1] [--num_workers=2] script.py [its flags]
           Run all tasks of an unchanged TensorFlow 1 script in the same way.""",
    run=_launch, flags_help=_flags_help, own_arguments=_own_arguments)
