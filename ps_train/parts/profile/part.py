"""The profile of a worker: traces some of its steps, prints a table of their phases and writes a timeline.

    steps that begin in [A, B) --FULL_TRACE--> StepStats --phases--> a table in the worker's log
                                              |
                                              +--> TensorFlow's Timeline --> train_dir/profile/TASK-steps-A-B.json

A step here is one session run. A profile never ends training: a file that cannot be written is only a warning.
docs/decisions/profile.md says more.
"""

from __future__ import annotations

import logging
import os
import re
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.client.timeline import Timeline  # it has no public name

from ps_train.part import Part
from ps_train.parts.profile import phases
from ps_train.parts.profile.flags import parse_steps
from ps_train.parts.profile.phases import Run, Shift
from ps_train.training.loop import RunStep

_MAX_UNTRACED = 100  # the latest steps, with durations to compare
_CHANGES = re.compile("Assign|Apply|Scatter|Enqueue")  # as in ResourceApplyAdam
_log = logging.getLogger(__name__)


class ProfilePart(Part):
    """The profile of one worker's training, across its sessions."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether --profile_steps is given."""
        return bool(config.profile_steps)

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the steps from --profile_steps; the train_dir need not exist yet, and need not be shared."""
        self._steps = parse_steps("--profile_steps", config.profile_steps)
        self._worker = cluster.task.name
        name = f"{self._worker.replace(':', '-')}-steps-{self._steps.start}-{self._steps.stop}.json"
        self._path = os.path.join(config.train_dir, "profile", name)
        self._traced: list[tuple[int, tuple[float, float, float], Any]] = []
        self._untraced_secs: deque[float] = deque(maxlen=_MAX_UNTRACED)
        self._after_updates: set[str] = set()
        self._is_finished = False

    def around_step(self, session: Any, graph: tf.Graph, run_step: RunStep) -> RunStep:
        """Returns a function that traces the steps of the flag, or `run_step` if none is left."""
        if self._is_finished:
            return run_step
        self._after_updates = nodes_after_updates(graph)

        def run(step: int, held_secs: float, fetches: Any, options: tf.RunOptions) -> Any:
            if step >= self._steps.stop:
                self.ended_loop()
            if self._is_finished:
                return run_step(step, held_secs, fetches, options)
            metadata = tf.RunMetadata() if step >= self._steps.start else None
            if metadata:
                tracing = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
                tracing.MergeFrom(options)
                options = tracing
            call_secs = time.time()
            values = session.run(fetches, options=options, run_metadata=metadata)
            start_secs, end_secs = call_secs - held_secs, time.time()
            if metadata:
                # Read when all steps are done: in sync mode the other workers would wait for this one.
                times_us = (start_secs * 1e6, call_secs * 1e6, end_secs * 1e6)
                self._traced.append((step, times_us, metadata.step_stats))
            else:
                self._untraced_secs.append(end_secs - start_secs)
            return values

        return run

    def ended_loop(self) -> None:
        """Prints the table, writes the timeline, and stops tracing."""
        if self._is_finished:
            return
        self._is_finished = True
        if not self._traced:
            _log.warning("profile: no step of %s began at a global step from %d to %d", self._worker,
                         self._steps.start, self._steps.stop - 1)
            return
        runs, shifts = phases.aligned(self._runs())
        for line in _lines(self._worker, runs, list(self._untraced_secs), shifts):
            _log.info("%s", line)
        self._write(runs, shifts)
        self._traced = []

    def _runs(self) -> list[Run]:
        spans_of_runs = [phases.read_spans(stats) for _, _, stats in self._traced]
        # Collected over all runs, as the records of a ps may lack some transfers (master_session.cc).
        sent = {span.node for run_spans in spans_of_runs for span in run_spans
                if span.sender == self._worker and span.num_bytes}
        gradients = sorted(sent - self._after_updates)
        return [Run(step, *times_us, run_spans, gradients)
                for (step, times_us, _), run_spans in zip(self._traced, spans_of_runs)]

    def _write(self, runs: list[Run], shifts: Mapping[str, Shift]) -> None:
        trace = _merged((stats for _, _, stats in self._traced), shifts)
        _add_rows(trace, self._worker, runs)
        chrome_trace = Timeline(trace).generate_chrome_trace_format(show_dataflow=False)
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(self._path, "w", encoding="utf-8") as file:
                file.write(chrome_trace)
        except OSError as error:
            _log.warning("profile: cannot write %s: %s", self._path, error.strerror)
        else:
            _log.info("profile: the timeline is in %s; open it in https://ui.perfetto.dev or chrome://tracing",
                      self._path)


def nodes_after_updates(graph: tf.Graph) -> set[str]:
    """Returns the names of all nodes that depend on a change on a ps, and so run after the gradients."""
    # On any device: TensorFlow runs a node where its resource is.
    after: set[tf.Operation] = set()
    for node in graph.get_operations():  # in the order of their creation: each one after its inputs
        inputs = [*node.control_inputs, *(tensor.op for tensor in node.inputs)]
        changes_ps = phases.task_name(node.device).startswith("ps:") and _CHANGES.search(node.type)
        if changes_ps or not after.isdisjoint(inputs):
            after.add(node)
    return {node.name for node in after}


def _merged(traced: Iterable[Any], shifts: Mapping[str, Shift]) -> Any:
    """Returns the StepStats of all steps as one, with each device once and its nodes by time, as Timeline needs it."""
    nodes: dict[str, list] = {}
    for stats in traced:
        for device in stats.dev_stats:
            nodes.setdefault(device.device, []).extend(device.node_stats)
    merged = tf.RunMetadata().step_stats
    for device in sorted(nodes):
        shift = shifts.get(phases.task_name(device))
        for node in nodes[device]:
            node.all_start_micros += round(shift.added_us) if shift else 0
        merged.dev_stats.add(device=device).node_stats.extend(
            sorted(nodes[device], key=lambda node: node.all_start_micros))
    return merged


def _add_rows(trace: Any, worker: str, runs: list[Run]) -> None:
    """Adds two rows, which Timeline shows like devices: the steps and their phases."""
    rows = {f"{worker} steps": [(f"step {run.global_step}", run.start_us, run.end_us) for run in runs],
            f"{worker} phases": [segment for run in runs for segment in phases.segments(run, worker)]}
    for row, bars in rows.items():
        device = trace.dev_stats.add(device=row)
        for name, start_us, end_us in bars:
            # Ends 1 us early: Timeline would draw bars that touch in different rows.
            device.node_stats.add(node_name=name, timeline_label=f"{name} = {name}()", all_start_micros=round(start_us),
                                  all_end_rel_micros=max(0, round(end_us) - round(start_us) - 1))


def _lines(worker: str, runs: list[Run], untraced_secs: list[float], shifts: Mapping[str, Shift]) -> list[str]:
    """Returns the table of the runs, with the lines before and after it."""
    batches = sorted({phases.num_batches(run, worker) for run in runs})
    each = f" of {'/'.join(map(str, batches))} mini-batches each" if batches[-1] > 1 else ""
    lines = [f"profile of {worker}: {len(runs)} steps{each}, begun at global step {runs[0].global_step} to "
             f"{runs[-1].global_step}; in ms:", *phases.phase_table(runs, worker)]
    if untraced_secs:
        lines.append(f"  a step took {statistics.median(untraced_secs) * 1000:.2f} ms before it was traced, the median "
                     f"of {len(untraced_secs)}")
    lines += [f"  the clock of {task} differs: {shift.added_us / 1000:+.2f} ms were added to its times, which may be "
              f"{shift.error_us / 1000:.2f} ms off" for task, shift in shifts.items()]
    return lines
