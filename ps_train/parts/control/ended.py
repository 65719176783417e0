"""How a training that does not answer has ended, by the journal of its train_dir.

    the last line "end", behind the last line "start"
      with a step, all steps taken, or the data at its end --> finished       exit code 0
      with a step before --train_steps                     --> stopped early  0
      "StoppedError: ..."                                  --> stopped        143
      "ClusterLostError: ..."                              --> lost           138
      another error                                        --> failed         1
    no line "end"                                          --> lost           138
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ps_train.errors import TrainingEndedError
from ps_train.storage import journal

FINISHED, STOPPED_EARLY, STOPPED, FAILED, LOST = "finished", "stopped early", "stopped", "failed", "lost"
_EXIT_CODES = {FINISHED: 0, STOPPED_EARLY: 0, STOPPED: 143, FAILED: 1, LOST: 138}
_LOST_ERRORS = ("ClusterLostError", "BlackboardError", "FolderLostError")
_STOP_ERRORS = ("StoppedError", "StopRequestedError")
_NO_END = "its journal has no end: its chief was killed, or it cannot be reached from here"


class Ended(NamedTuple):
    """A training that does not answer any longer.

    Attributes:
      state: one of the states of this module.
      why: the reason, in a line.
      step: the last global step that the journal has, or None.
      metrics: name -> value in the evaluation of the last checkpoint; {} without an evaluation.
    """

    state: str
    why: str
    step: int | None
    metrics: Mapping[str, float]

    @property
    def exit_code(self) -> int:
        """The exit code of `ps_train status`."""
        return _EXIT_CODES[self.state]

    def __str__(self) -> str:
        """Returns a line such as "finished at step 200: the global step reached train_steps; accuracy 0.9579"."""
        at = "" if self.step is None else f" at step {self.step}"
        metrics = "".join(f"; {name} {value:.4g}" for name, value in sorted(self.metrics.items()))
        return f"{self.state}{at}: {self.why}{metrics}"


def read_ended(train_dir: str) -> Ended | None:
    """Returns how the last training in a folder ended; None if its journal has none, or cannot be read."""
    try:
        events = journal.read_journal(train_dir) if train_dir else []
    except OSError:
        return None
    starts = [number for number, event in enumerate(events) if event["event"] == "start"]
    if not starts:
        return None
    of_run = events[starts[-1]:]
    step = next((event["step"] for event in reversed(of_run) if isinstance(event.get("step"), int)), None)
    ends = [event for event in of_run if event["event"] == "end"]
    if not ends:
        return Ended(LOST, _NO_END, step, {})
    why = str(ends[-1].get("why", ""))
    return Ended(_state(ends[-1], of_run[0]), why, step, ends[-1].get("metrics") or {})


def raise_if_failed(ended: Ended, train_dir: str) -> None:
    """Raises an error with the exit code of a training that has neither finished nor was stopped early."""
    if ended.exit_code:
        raise TrainingEndedError(
            "training_ended",
            f"the training in {train_dir} does not run: {ended}; `ps_train resume --train_dir={train_dir}` prints the "
            "command that continues it", ended.exit_code)


def is_lost_end(end: Mapping[str, Any]) -> bool:
    """Returns whether an event "end" says that the cluster was lost: the same command continues the training."""
    return "step" not in end and str(end.get("why", "")).partition(":")[0] in _LOST_ERRORS


def _state(end: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    if "step" not in end:
        kind = str(end.get("why", "")).partition(":")[0]
        return STOPPED if kind in _STOP_ERRORS else LOST if is_lost_end(end) else FAILED
    train_steps = (start.get("run") or {}).get("train_steps")
    is_early = train_steps is not None and end["step"] < train_steps and not end.get("is_data_end")
    return STOPPED_EARLY if is_early else FINISHED
