"""Searches the fastest choice: one setting at a time, up or down its ladder as long as that is faster.

    first choice --> communication_period, steps_per_execution, num_workers, num_ps, wire_dtype --> again, until
    no neighbour is faster --> the fastest ones once more, while there is time

A rate differs between two trials of one choice, so only a choice that is faster by `GAIN` is taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

GAIN = 1.03
_REPEATED, _MOST_REPEATS = 2, 3  # how many of the fastest are tried again, and how often each is tried in all


class Choice(NamedTuple):
    """The flags of `ps_train launch` that are tuned, in the order of the table that is printed."""

    num_ps: int
    num_workers: int
    steps_per_execution: int
    communication_period: int
    wire_dtype: str

    @property
    def is_possible(self) -> bool:
        """Whether the flags do not exclude each other."""
        return self.steps_per_execution == 1 or self.communication_period == 1


Ladders = Mapping[str, Sequence[Any]]  # name of a setting -> its values, in order


class Trials:
    """What was measured.

    Attributes:
      first: the choice to which others are compared.
    """

    def __init__(
        self, first: Choice, measure: Callable[[Choice], float], has_time: Callable[[], bool]
    ) -> None:
        """Measures nothing yet.

        Args:
          measure: returns mini-batches per second of all workers; 0 if the choice cannot be used.
          has_time: whether one more trial may begin.
        """
        self.first = first
        self._measure, self._has_time = measure, has_time
        self._rates: dict[Choice, list[float]] = {}

    def rate(self, choice: Choice) -> float | None:
        """Returns the median rate of a choice, which is tried if it was not yet; None if there is no time for it."""
        if choice not in self._rates and not self._try(choice):
            return None
        return statistics.median(self._rates[choice])

    def _try(self, choice: Choice) -> bool:
        if self._rates and not self._has_time():
            return False
        rate, rates = self._measure(choice), self._rates.setdefault(choice, [])
        if rate or choice != self.first:  # the others are compared to the first one, also if one of its repeats fails
            rates.append(rate)
        return True

    def has_rate(self, choice: Choice) -> bool:
        """Returns whether a choice was tried, and could be used then."""
        return any(self._rates.get(choice, ()))

    def fastest(self) -> list[tuple[Choice, float]]:
        """Returns (choice, median rate) of all that can be used, the fastest first; of equals the earlier one."""
        medians = {choice: statistics.median(rates) for choice, rates in self._rates.items()}
        return sorted(((choice, rate) for choice, rate in medians.items() if rate), key=lambda pair: -pair[1])

    def repeat_fastest(self) -> None:
        """Tries the fastest choices and the first one again, in turn, while there is time."""
        for number in range(1, _MOST_REPEATS):
            for choice in dict.fromkeys([*(choice for choice, _ in self.fastest()[:_REPEATED]), self.first]):
                if len(self._rates[choice]) <= number and not self._try(choice):
                    return


def search(ladders: Ladders, trials: Trials) -> None:
    """Tries choices until no neighbour of the fastest is faster, or there is no time; then the fastest once more."""
    best, reached = trials.first, None
    trials.rate(best)
    while best != reached:
        reached = best
        for name, ladder in ladders.items():
            best = _climb(best, name, ladder, trials)
    trials.repeat_fastest()


def _climb(best: Choice, name: str, ladder: Sequence[Any], trials: Trials) -> Choice:
    """Returns the fastest choice that is found by changing one setting step by step, first up, then down."""
    start = best
    for values in (ladder[ladder.index(getattr(start, name)) + 1:],
                   ladder[:ladder.index(getattr(start, name))][::-1]):
        for value in values:
            choice = best._replace(**{name: value})
            rate, best_rate = trials.rate(choice) if choice.is_possible else None, trials.rate(best)
            if rate is None or best_rate is None or rate < best_rate * GAIN:
                break
            best = choice
        if best != start:
            break
    return best
