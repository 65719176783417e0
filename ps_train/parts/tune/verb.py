"""The verb `tune`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from ps_train.config import flag_help
from ps_train.config.folders import check_data_dir
from ps_train.config.launch import PLACED_BY_LAUNCH, LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import PsTrainError
from ps_train.launch import supervision
from ps_train.parts.tune.flags import REFUSED, TuneFlags, parse_tune
from ps_train.parts.tune.tuning import Tuning
from ps_train.runtime import logs
from ps_train.verbs.verb import Verb


def _tune(argv: Sequence[str]) -> None:
    config = parse_tune(argv)
    check_data_dir(config.task)
    with supervision.noted_signals() as signals, tempfile.TemporaryDirectory(prefix="ps_train-tune-") as folder:
        os.environ["XDG_STATE_HOME"] = folder  # so that no trial becomes the newest run of this folder
        try:
            Tuning(config, signals, folder).run()
        except PsTrainError as error:
            # The output of a trial is not shown: the traceback of the user's code is in the error only.
            shown = {line for problem in error.problems for line in problem.splitlines()}
            logs.complain("".join(f"{line}\n" for line in str(error).splitlines() if line not in shown))
            raise


TUNE = Verb(
    usage="""\
  ps_train tune [flags of launch]
           Find the fastest number of tasks and of steps by short trials.""",
    run=_tune,
    flags_help=lambda _: flag_help.help_text(TuneFlags, LaunchConfig, Config, omit={*PLACED_BY_LAUNCH, *REFUSED}))
