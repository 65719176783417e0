"""The evaluations of a training as events, and which of them was the best.

They come from the event files, which an evaluator and the chief write; the journal is the chief's alone.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence

from ps_train.parts.report.history import Point, TrainingEvent
from ps_train.parts.selection.flags import Target
from ps_train.parts.selection.record import SELECTION_RECORD


def read_target(train_dir: str) -> Target | None:
    """Returns the metric by which the best checkpoint of a folder was chosen, None if none was."""
    try:
        with open(os.path.join(train_dir, SELECTION_RECORD), encoding="utf-8") as file:
            record = json.load(file)
        standing = record.get("keep_best") or record["early_stopping"]
        return Target(str(standing["metric"]), bool(standing["is_max"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none, or of another version
        return None


def evaluation_events(evaluations: Mapping[str, Sequence[Point]], target: Target | None) -> list[TrainingEvent]:
    """Returns the evaluations in the order of time, each with all its metrics; only the best so far are no routine."""
    by_place: dict[tuple[float, int], dict[str, float]] = {}
    for tag, points in sorted(evaluations.items()):
        for point in points:
            by_place.setdefault((point.time, point.step), {})[tag] = point.value
    best = _best_so_far(evaluations, target)
    events = []
    for (time, step), values in sorted(by_place.items()):
        description, is_best = ", ".join(f"{tag} {value:.4g}" for tag, value in values.items()), (time, step) in best
        if target and is_best:
            description += f"; the best {target.metric} so far"
        events.append(TrainingEvent(time, step, "evaluation", description, is_fault=False, is_routine=not is_best))
    return events


def best_figure(evaluations: Mapping[str, Sequence[Point]], target: Target | None) -> Iterator[tuple[str, str]]:
    """Yields the best value of the folder, if one was chosen."""
    if target and (best := _best_so_far(evaluations, target)):
        _, step = list(best)[-1]
        yield f"{list(best.values())[-1]:.4g}", f"best {target.metric}, at step {step:,}"


def _best_so_far(
    evaluations: Mapping[str, Sequence[Point]], target: Target | None
) -> dict[tuple[float, int], float]:
    """Returns (time, step) -> value of each evaluation that was better than all before it."""
    best: dict[tuple[float, int], float] = {}
    if target is None:
        return best
    last = -math.inf if target.is_max else math.inf
    for point in sorted(evaluations.get(target.metric, ())):
        if point.value > last if target.is_max else point.value < last:
            best[point.time, point.step] = last = point.value
    return best
