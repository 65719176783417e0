"""The flags of `ps_train tune`: those of `launch`, and what trials may change and how long they take."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.launch import PLACED_BY_LAUNCH, LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.parts.selection.flags import Target, parse_target

_TUNE = "The trials"
MAX_PERIOD = 64
REFUSED = {"hosts": "its trials run on this machine", "elastic": "its trials start and end all workers",
            "tmux": "its trials have no window", "download_only": "it trains"}


class MetricBound(NamedTuple):
    """How much worse a metric may be than that of single steps."""

    target: Target
    tolerance: float

    def permits(self, value: float, reference: float) -> bool:
        """Returns whether a value is at most so much worse than the reference; never for NaN."""
        loss = reference - value if self.target.is_max else value - reference
        return loss <= self.tolerance


def parse_metric_bound(flag: str, text: str) -> MetricBound | None:
    """Returns the bound of METRIC[:min|max]:TOLERANCE, None for ""; raises ConfigError for another form."""
    if not text:
        return None
    metric, _, tolerance = text.rpartition(":")
    with contextlib.suppress(ValueError):
        if metric and float(tolerance) >= 0 and (target := parse_target(flag, metric)):
            return MetricBound(target, float(tolerance))
    raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: METRIC:TOLERANCE or METRIC:min|max:TOLERANCE, "
                      "as in auc:0.001")


@dataclasses.dataclass(frozen=True)
class TuneFlags:
    """The flags of `ps_train tune` in addition to those of `launch`."""

    tune_secs: float = field(180.0, _TUNE, "Time for the trials; those of --metric_bound come on top.",
                             unit="seconds", above=0, maximum=86400)
    trial_secs: float = field(5.0, _TUNE, "How long the speed of a trial is measured, once it trains.",
                              unit="seconds", above=0, maximum=3600)
    max_period: int = field(
        1, _TUNE, "The most steps that a worker may take between two exchanges with the ps; 1 keeps single steps.",
        unit="steps", minimum=1, maximum=MAX_PERIOD)
    metric_bound: str = field(
        "", _TUNE, "Take only what leaves this metric at most so much worse than single steps do, after equally many "
        "mini-batches; also tries --wire_dtype=bfloat16.", unit="METRIC[:min|max]:TOLERANCE",
        form=parse_metric_bound, unset="none")
    metric_batches: int = field(2000, _TUNE, "Mini-batches of all workers before the metric is looked at.",
                                unit="mini-batches", minimum=1)
    json: bool = field(False, _TUNE, "Print one JSON object at the end, and nothing else.")


class TuneConfig(NamedTuple):
    """The flags of a command line, checked; `given` has the names of those that are on it."""

    tune: TuneFlags
    task: Config
    launch: LaunchConfig
    given: frozenset[str]


def parse_tune(argv: Sequence[str]) -> TuneConfig:
    """Returns the flags of a command line.

    Raises:
      ConfigError: the command line is wrong, or has flags that a trial cannot have.
    """
    values, given = fields.parse_flags(argv, TuneFlags, LaunchConfig, Config, help_command="ps_train tune --help")
    reasons = {**dict.fromkeys(PLACED_BY_LAUNCH, "its trials place their tasks themselves"), **REFUSED}
    refuse([Problem("flag_of_another_verb", f"--{name}: has no effect in `ps_train tune`, because {reasons[name]}; "
                    "leave it out") for name in sorted(given & reasons.keys())])
    tune = TuneFlags(**{name: values.pop(name) for name in fields.rules(TuneFlags)})
    launch = LaunchConfig(**{name: values.pop(name) for name in fields.rules(LaunchConfig)})
    task = Config(**values, given=given - fields.rules(TuneFlags, LaunchConfig).keys())
    return TuneConfig(tune, task, launch, given)
