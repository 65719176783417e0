"""The flags of how the optimizer of graph training works: its rate, its clipping, its decay, its constants."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Optional

from ps_train.config import fields
from ps_train.config.groups import OPTIMIZER
from ps_train.errors import ConfigError, Problem

SCHEDULES = ("constant", "exponential", "cosine", "piecewise", "polynomial")
_field = functools.partial(fields.field, is_shared=True)
_rule_field = functools.partial(_field, is_of_optimizer=True)
# Flag -> the schedules that use it.
_NEEDED_BY = {"decay_steps": ("exponential", "cosine", "polynomial"), "decay_rate": ("exponential",),
              "decay_power": ("polynomial",), "end_learning_rate": ("cosine", "polynomial"),
              "learning_rate_boundaries": ("piecewise",), "learning_rate_values": ("piecewise",)}
# Flag -> the argument of the optimizers in TensorFlow, and the values of --optimizer that have it.
_OPTIONS = {"momentum": ("momentum", ("momentum", "rmsprop")), "nesterov": ("use_nesterov", ("momentum",)),
            "adam_beta1": ("beta1", ("adam",)), "adam_beta2": ("beta2", ("adam",)),
            "epsilon": ("epsilon", ("adam", "rmsprop"))}


def parse_numbers(flag: str, text: str) -> tuple[float, ...]:
    """Returns the numbers of a text such as "0.1,0.01"; none of an empty one.

    Raises:
      ConfigError: the text has another form; the error names `flag`.
    """
    try:
        numbers = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        numbers = (math.nan,)
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: numbers above 0 with commas between them, "
                          "as in 0.1,0.01")
    return numbers


def parse_boundaries(flag: str, text: str) -> tuple[int, ...]:
    """Returns the global steps of a text such as "1000,2000"; none of an empty one.

    Raises:
      ConfigError: the text has another form, or the steps do not rise; the error names `flag`.
    """
    parts = text.split(",") if text else []
    steps = tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 19)
    if len(steps) < len(parts) or any(step >= following for step, following in zip(steps, steps[1:])):
        raise ConfigError("flag_malformed",
                          f"{flag}: got {text!r}; allowed: global steps that rise, with commas, as in 1000,2000")
    return steps


@dataclasses.dataclass(frozen=True)
class RuleFlags:
    """The rule by which the optimizer updates; docs/optimizers.md explains them together."""

    learning_rate_schedule: str = _rule_field(
        "constant", OPTIMIZER, "The learning rate as a function of the global step, from --learning_rate on.",
        choices=SCHEDULES)
    warmup_steps: int = _rule_field(
        0, OPTIMIZER, "Global steps in which the learning rate rises to its value, linearly.", unit="global steps",
        minimum=0, maximum=10**12)
    decay_steps: Optional[int] = _rule_field(
        None, OPTIMIZER, "exponential: global steps per factor --decay_rate; cosine and polynomial: the global step "
        "at which the learning rate is at its end.", unit="global steps", minimum=1, maximum=10**12,
        unset="--train_steps; exponential needs it")
    decay_rate: Optional[float] = _rule_field(
        None, OPTIMIZER, "Factor of the learning rate per --decay_steps (exponential).", above=0, maximum=1,
        unset="none; exponential needs it")
    decay_power: Optional[float] = _rule_field(None, OPTIMIZER, "Power of polynomial.", above=0, unset="1, linear")
    end_learning_rate: Optional[float] = _rule_field(
        None, OPTIMIZER, "Learning rate at the end of cosine and polynomial.", minimum=0, unset="0")
    learning_rate_boundaries: str = _rule_field(
        "", OPTIMIZER, "Global steps up to which the values of piecewise hold.", unit="step,...",
        form=parse_boundaries, unset="none; piecewise needs them")
    learning_rate_values: str = _rule_field(
        "", OPTIMIZER, "Learning rates of piecewise, one more than boundaries; the first is --learning_rate.",
        unit="rate,...", form=parse_numbers, unset="none; piecewise needs them")
    clip_norm: Optional[float] = _field(
        None, OPTIMIZER, "Scale the gradients of a step down to this global norm, over all variables and tables.",
        above=0, unset="none")
    weight_decay: float = _rule_field(
        0.0, OPTIMIZER, "Decoupled weight decay, as AdamW's: an update takes the learning rate times this from each "
        "dense variable. Not with ftrl.", minimum=0)
    momentum: Optional[float] = _rule_field(
        None, OPTIMIZER, "Momentum of momentum and rmsprop.", minimum=0, maximum=1, unset="0.9; rmsprop 0")
    nesterov: bool = _rule_field(False, OPTIMIZER, "Nesterov's momentum (with --optimizer=momentum).")
    adam_beta1: Optional[float] = _rule_field(
        None, OPTIMIZER, "Decay of Adam's mean.", minimum=0, below=1, unset="0.9")
    adam_beta2: Optional[float] = _rule_field(
        None, OPTIMIZER, "Decay of Adam's mean square.", minimum=0, below=1, unset="0.999")
    epsilon: Optional[float] = _rule_field(
        None, OPTIMIZER, "Constant that adam and rmsprop add to the divisor.", above=0, unset="1e-8; rmsprop 1e-10")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a problem for each flag that does not fit the others; their values are well-formed."""
        kind = self.learning_rate_schedule
        lines: list[Problem] = []
        for name, kinds in _NEEDED_BY.items():
            if getattr(self, name) not in (None, "") and kind not in kinds:
                lines.append(Problem("flag_without_effect", f"--{name}: has an effect only with "
                                     f"--learning_rate_schedule={' or '.join(kinds)}, and it is {kind}; add that flag, "
                                     "or leave this one out"))
        for name, (_, names) in _OPTIONS.items():
            if _is_chosen(self, name) and config.optimizer not in names:
                lines.append(Problem("flag_without_effect", f"--{name}: has an effect only with --optimizer="
                                     f"{' or '.join(names)}, and it is {config.optimizer}; leave one of them out"))
        if self.weight_decay and config.optimizer == "ftrl":
            lines.append(Problem("flags_conflict", "--weight_decay: given with --optimizer=ftrl, which computes each "
                                 "variable from its sums, without the decay; leave one of them out"))
        return lines + _schedule_problems(config)

    def part_defaults(self) -> dict[str, Any]:
        """Returns the learning rate from which piecewise starts."""
        return {"learning_rate": self.rates[0]} if self.learning_rate_schedule == "piecewise" else {}

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """The arguments of the optimizer's class that were chosen."""
        return {argument: getattr(self, name) for name, (argument, _) in _OPTIONS.items() if _is_chosen(self, name)}

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The boundaries of piecewise."""
        return parse_boundaries("--learning_rate_boundaries", self.learning_rate_boundaries)

    @property
    def rates(self) -> tuple[float, ...]:
        """The values of piecewise."""
        return parse_numbers("--learning_rate_values", self.learning_rate_values)


def _is_chosen(flags: Any, name: str) -> bool:
    value = getattr(flags, name)
    return value is not None and value is not False  # `--momentum=0` is a choice, and 0.0 == False


def _schedule_problems(flags: Any) -> list[Problem]:
    kind = flags.learning_rate_schedule
    lines: list[Problem] = []
    if kind == "exponential":
        lines += [Problem("flag_missing", f"--{name}: not given; --learning_rate_schedule=exponential needs it")
                  for name in ("decay_steps", "decay_rate") if getattr(flags, name) is None]
    if kind in ("cosine", "polynomial") and (flags.end_learning_rate or 0) > flags.learning_rate:
        lines.append(Problem("flags_conflict", f"--end_learning_rate: got {flags.end_learning_rate!r}; allowed: at "
                             f"most --learning_rate, {flags.learning_rate!r}"))
    if kind == "piecewise":
        lines += _piecewise_problems(flags)
    return lines


def _piecewise_problems(flags: Any) -> list[Problem]:
    boundaries, rates = flags.boundaries, flags.rates
    if not boundaries or len(rates) != len(boundaries) + 1:
        return [Problem("flags_conflict", f"--learning_rate_values: got {len(rates)} for {len(boundaries)} "
                        "--learning_rate_boundaries; piecewise needs at least one boundary, and one value more than "
                        "boundaries")]
    if "learning_rate" in flags.given and flags.learning_rate != rates[0]:
        return [Problem("flags_conflict", f"--learning_rate: got {flags.learning_rate!r}, and --learning_rate_values "
                        f"begins with {rates[0]!r}; leave --learning_rate out")]
    return []
