"""A live model that notes which rows it has, and predictions of events before they are trained on.

    event --probe's id--> its row is served: seconds from event to served
    events of the last seconds --live model, fixed export--> AUC
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import ps_train
from benchmarks.drift.events import Append
from data.click_model import scores
from ps_train.parts.live import pushes


class Window(NamedTuple):
    """The AUC of the events of some seconds, by the live and the fixed model, and the best possible.

    Attributes:
      secs: their end, since the first event.
      best: that of the true probabilities.
    """

    secs: float
    live: float
    fixed: float
    best: float


class WatchedModel(ps_train.LiveModel):
    """A live model that knows when each awaited id got its row.

    Attributes:
      loads: (seconds since 1970, how long it took) of each version.
    """

    def __init__(self, folder: str) -> None:
        """Loads the model."""
        self._awaited: dict[int, float] = {}
        self.served: list[tuple[float, float]] = []  # (time of the event, until it was served)
        self.loads: list[tuple[float, float]] = []
        super().__init__(folder)

    def await_id(self, key: int, secs: float) -> None:
        """Notes an event of this id."""
        self._awaited[key] = secs

    @property
    def num_awaited(self) -> int:
        """How many ids have no row yet."""
        return len(self._awaited)

    def apply(self, path: str) -> None:
        """Applies a push."""
        super().apply(path)
        self._note(path)

    def _load(self, folder: str) -> None:
        start_secs = time.time()
        super()._load(folder)
        self.loads.append((start_secs, time.time() - start_secs))
        number = pushes.number_in(os.path.basename(folder))
        self._note(pushes.push_path(os.path.join(folder, "assets.extra"), number))

    def _note(self, path: str) -> None:
        now_secs, awaited = time.time(), np.array(list(self._awaited), np.int64)
        for record in pushes.read_push(path)[1]:
            if isinstance(record, pushes.Rows):
                for key in awaited[np.isin(awaited, record.ids)].tolist():
                    secs = self._awaited.pop(key)
                    self.served.append((secs, now_secs - secs))


def predict(model: ps_train.LiveModel, append: Append) -> np.ndarray:
    """Returns the probabilities of the events, float32 [n]."""
    predictions = model.predict({"ids": append.events.ids, "numbers": append.events.numbers})
    return predictions["probabilities"].reshape([-1])


def window_of(predicted: Sequence[tuple[Append, np.ndarray, np.ndarray]], end_secs: float) -> Window:
    """Returns the AUC of events with the probabilities by the live and by the fixed model."""
    events = [append.events for append, _, _ in predicted]
    labels = np.concatenate([one.labels for one in events])
    live, fixed = (np.concatenate([each[place] for each in predicted]) for place in (1, 2))
    logits = np.concatenate([one.logits for one in events])
    return Window(end_secs, *(float(scores.auc(values, labels)) for values in (live, fixed, logits)))


class Figures(NamedTuple):
    """What was seen.

    Attributes:
      windows: the AUC over time.
      served: (seconds of the event since the first one, seconds until it was served), in the order of the events.
      drift_secs: when the ids changed their meaning.
      cores: process -> cores that it took.
      late_secs: how late the last event was.
      num_loads: versions of the model that were loaded.
      num_rows: of the table at the end.
    """

    windows: Sequence[Window]
    served: Sequence[tuple[float, float]]
    drift_secs: float
    cores: Mapping[str, float]
    late_secs: float
    num_loads: int
    num_rows: int

    def lines(self) -> list[str]:
        """Returns tables in Markdown: the seconds from event to served, and the AUC in parts of the time."""
        ages = np.array([age for _, age in self.served])
        cores = ", ".join(f"{name} {value:.2f}" for name, value in self.cores.items())
        ends = (0, 10, 30, 60, 120, 180, 240, 300)
        parts = [("before the drift", -np.inf, 0.0), *((f"{begin} to {end} s after it", begin, end)
                                                       for begin, end in zip(ends, ends[1:]))]
        rows = [f"| {name} | " + " | ".join(f"{np.mean(values):.3f}" for values in zip(*inside)) + " |"
                for name, begin, end in parts
                if (inside := [window[1:] for window in self.windows if begin < window.secs - self.drift_secs <= end])]
        return [f"Event to served, of {len(ages)} events: {np.quantile(ages, 0.5):.1f} s in the median, "
                f"{np.quantile(ages, 0.99):.1f} s at 99 %, {ages.max():.1f} s at most. Versions loaded: "
                f"{self.num_loads}. Cores: {cores}. The last event came {self.late_secs:.1f} s late.",
                "\n".join(["| AUC | live | fixed | best possible |", "|---|---|---|---|", *rows])]
