"""The verb `launch`: a whole cluster, on this machine or on those of --hosts, of `train` or of a part such as `run`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import flag_help, launch
from ps_train.config import task as config
from ps_train.launch.training import ParsedTraining
from ps_train.parts import table as parts
from ps_train.verbs.verb import Verb

_OF_PARTS: dict[str, Verb] = {verb: parts.attribute_of(row, "verb", f"LAUNCH_{verb.upper()}")
                              for row in parts.TABLE for verb in row.launches}


def _part_of(arguments: Sequence[str]) -> Verb | None:
    """Returns what a part launches, if the first word after `launch` names it."""
    return _OF_PARTS.get(arguments[0]) if arguments else None


def _launch(argv: Sequence[str]) -> None:
    if part := _part_of(argv):
        part.run(argv[1:])
    else:
        ParsedTraining(*launch.parse_launch(argv)).run()


def _flags_help(arguments: Sequence[str]) -> str:
    if part := _part_of(arguments):
        return part.flags_help(arguments[1:])
    return flag_help.help_text(launch.LaunchConfig, config.Config, omit=launch.PLACED_BY_LAUNCH)


def _own_arguments(arguments: Sequence[str]) -> Sequence[str]:
    part = _part_of(arguments)
    return part.own_arguments(arguments[1:]) if part else arguments


LAUNCH = Verb(
    usage="\n".join(["""\
  ps_train launch [--num_ps=2] [--num_workers=2]
           Run a whole cluster on this machine, or on those of --hosts=HOSTS.""",
                     *(verb.usage for verb in _OF_PARTS.values())]),
    run=_launch, flags_help=_flags_help, own_arguments=_own_arguments, has_log=True)
