"""The verb `run`, one task of an unchanged TensorFlow 1 script, and `launch run`, all of its tasks."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.parts.legacy.flags import ScriptConfig, ScriptLaunchConfig, before_script, split_script
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb


def _run(argv: Sequence[str]) -> None:
    words, script = split_script(argv, "run", ScriptConfig)
    values, _ = fields.parse_flags(words, ScriptConfig, help_command="ps_train run --help")
    script_config = ScriptConfig(**values)
    installed.import_tensorflow(needs_gpu=True, tf_log=script_config.tf_log, needs_keras=True)
    from ps_train.parts.legacy import run  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    run.run_script(script_config, script)


def _launch(argv: Sequence[str]) -> None:
    from ps_train.parts.legacy import launching  # noqa: PLC0415 (the help needs none of it)

    launching.launch_script(argv)


RUN = Verb(
    usage="""\
  ps_train run [flags] script.py [its flags]
           Run one task of an unchanged TensorFlow 1 script, or with -m of a
           module. TF_CONFIG or the script's flags say which task it is.""",
    run=_run, flags_help=lambda _: fields.help_text(ScriptConfig),
    own_arguments=lambda arguments: before_script(arguments, ScriptConfig))
LAUNCH_RUN = Verb(
    usage="""\
  ps_train launch run [--num_ps=1] [--num_workers=2] script.py [its flags]
           Run all tasks of an unchanged TensorFlow 1 script in the same way.""",
    run=_launch, flags_help=lambda _: fields.help_text(ScriptLaunchConfig),
    own_arguments=lambda arguments: before_script(arguments, ScriptLaunchConfig))
