"""The verb `run`: one task of an unchanged TensorFlow 1 script."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.parts.legacy.flags import ScriptConfig, before_script, split_script
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb


def _run(argv: Sequence[str]) -> None:
    words, script = split_script(argv, "run", ScriptConfig)
    values, _ = fields.parse_flags(words, ScriptConfig, help_command="ps_train run --help")
    script_config = ScriptConfig(**values)
    installed.import_tensorflow(needs_gpu=True, tf_log=script_config.tf_log, needs_keras=True)
    from ps_train.parts.legacy import run  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    run.run_script(script_config, script)


def _flags_help(_: Sequence[str]) -> str:
    return fields.help_text(ScriptConfig)


def _own_arguments(arguments: Sequence[str]) -> Sequence[str]:
    return before_script(arguments, ScriptConfig)


RUN = Verb(
    usage="""\
  ps_train run [flags] script.py [its flags]
           Run one task whose code is an unchanged TensorFlow 1 script, or with
           -m a module. TF_CONFIG or the script's flags say which task it is.""",
    run=_run, flags_help=_flags_help, own_arguments=_own_arguments)
