"""ps_train's own command line, with a clock in the chief's loop: what each of its parts took is left as JSON.

    python -m benchmarks.harness.timed_task FILE [flags of ps_train]
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import time
from typing import Any

from ps_train import __main__ as command_line
from ps_train.runtime import installed


def put_in(path: pathlib.Path) -> None:
    """Replaces the loop of this process by one that leaves the report at this path when it ends."""
    installed.import_tensorflow_quietly()
    from ps_train.training import loop  # noqa: PLC0415 (TensorFlow takes seconds, and says things while it is imported)

    class Timed(loop.Loop):
        """The loop, with a list of the seconds of each step and of each report."""

        def __init__(self, *arguments: Any, run_step: None, **options: Any) -> None:
            super().__init__(*arguments, run_step=self._timed_step, **options)
            self._write_report = self._reports.report
            self._reports.report = self._timed_report

        def run(self) -> Any:
            self._plain_secs: list[float] = []
            self._summary_secs: list[float] = []
            self._report_secs: list[float] = []
            self._start_secs = 0.0
            outcome = super().run()
            total_secs = time.perf_counter() - self._start_secs
            path.write_text(json.dumps(shares(
                total_secs, self._plain_secs, self._summary_secs, self._report_secs)), encoding="utf-8")
            return outcome

        def _timed_step(self, step: int, held_secs: float, fetches: list, options: Any) -> Any:
            start_secs = time.perf_counter()
            self._start_secs = self._start_secs or start_secs  # with the first step
            values = self._session.run(fetches, options=options)
            (self._summary_secs if len(fetches) > 2 else self._plain_secs).append(time.perf_counter() - start_secs)
            return values

        def _timed_report(self, *arguments: Any, **options: Any) -> None:
            start_secs = time.perf_counter()
            self._write_report(*arguments, **options)
            self._report_secs.append(time.perf_counter() - start_secs)

    loop.Loop = Timed


def shares(
    total_secs: float, plain_secs: list[float], summary_secs: list[float], report_secs: list[float]
) -> dict[str, float]:
    """Returns what part of a worker's time went where.

    Args:
      total_secs: of the loop.
      plain_secs, summary_secs: of each session run without and with a summary.
      report_secs: of each time that a line or a summary was written.

    Returns:
      `summaries`: what the median session run with a summary takes longer than that without; `reports`: lines, and
      handing summaries to their writer; `loop`: all else that is no session run, so what keeps count of the steps.
    """
    # The first one with a summary is another graph, which TensorFlow prepares once: no cost of a step.
    longer_secs = statistics.median(summary_secs[1:] or plain_secs) - statistics.median(plain_secs)
    others_secs = total_secs - sum(plain_secs) - sum(summary_secs) - sum(report_secs)
    return {"summaries": len(summary_secs) * longer_secs / total_secs, "reports": sum(report_secs) / total_secs,
            "loop": others_secs / total_secs}


if __name__ == "__main__":
    own_file, *sys.argv[1:] = sys.argv[1:]
    if {"--job_name=worker", "--task_index=0"} <= set(sys.argv):  # the chief: only it writes summaries
        put_in(pathlib.Path(own_file))
    command_line.console()
