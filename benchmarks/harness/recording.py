"""How far a training was at which time: written while it runs by one process of a peer, read afterwards.

A folder has `samples.jsonl` and `parameters.f32`. The first line of the former names the parameters, every other one is
a sample {"time": seconds since the epoch, "batches": of all workers}. Each sample has its copy of the parameters in the
latter, as raw float32 one after the other; so nothing is evaluated, and next to no memory used, while time is measured.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple

import numpy as np

from benchmarks.harness import measures

_LEAST_PAUSE_SECS = 0.02
_PAUSE_SHARE = 0.04  # of the time so far: as exact for a run that learns in half a second as for one that takes minutes

Parameters = Mapping[str, np.ndarray]


class Limits(NamedTuple):
    """When a run is over: after both of the first two, and never later than the third.

    Attributes:
      batches: mini-batches of all workers.
      min_secs: since the first sample.
      max_secs: since the first sample.
    """

    batches: int
    min_secs: float
    max_secs: float


class Recorder:
    """Writes a recording; its clock starts with the first sample, when the first training call has returned."""

    def __init__(self, folder: str, limits: Limits) -> None:
        """Makes the folder."""
        os.makedirs(folder, exist_ok=True)
        self._samples = open(os.path.join(folder, "samples.jsonl"), "w", encoding="utf-8")  # noqa: SIM115 (a run long)
        self._parameters = open(os.path.join(folder, "parameters.f32"), "wb")  # noqa: SIM115 (the same)
        self._limits = limits
        self._first_secs: float | None = None
        self._due_secs = 0.0
        self._num_samples = 0

    def note(self, batches: int, copy_parameters: Callable[[], Parameters]) -> bool:
        """Takes a sample if one is due; returns whether the run is over, and then the recording is complete.

        Args:
          batches: mini-batches that all workers have trained on so far, at least 1.
          copy_parameters: called where a sample is due; {} where no accuracy is wanted.
        """
        now_secs = time.time()
        is_over = self._is_over(batches, now_secs)
        if now_secs >= self._due_secs or is_over:
            self._write(now_secs, batches, copy_parameters())
            self._due_secs = now_secs + max(_LEAST_PAUSE_SECS, _PAUSE_SHARE * (now_secs - self._first_secs))
        if is_over:
            self._samples.close()
            self._parameters.close()
        return is_over

    def pause_secs(self) -> float:
        """Returns the time until the next sample is due."""
        return max(0.0, self._due_secs - time.time())

    def _is_over(self, batches: int, now_secs: float) -> bool:
        if self._first_secs is None:
            self._first_secs = now_secs
        elapsed_secs = now_secs - self._first_secs
        is_enough = (batches >= self._limits.batches and elapsed_secs >= self._limits.min_secs
                     and self._num_samples + 1 >= measures.FEWEST_SAMPLES)
        return is_enough or elapsed_secs >= self._limits.max_secs

    def _write(self, now_secs: float, batches: int, parameters: Parameters) -> None:
        if self._samples.tell() == 0:
            header = {"parameters": {name: list(np.shape(value)) for name, value in parameters.items()}}
            self._samples.write(json.dumps(header) + "\n")
        self._num_samples += 1
        self._samples.write(json.dumps({"time": now_secs, "batches": int(batches)}) + "\n")
        for value in parameters.values():
            self._parameters.write(np.ascontiguousarray(value, np.float32).tobytes())


class Recording:
    """Reads a recording.

    Attributes:
      times: seconds since the epoch, of each sample.
      batches: mini-batches of all workers, of each sample.
    """

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, "samples.jsonl"), encoding="utf-8") as lines:
            header, *samples = map(json.loads, lines)
        self._shapes: dict[str, list[int]] = header["parameters"]
        self._path = os.path.join(folder, "parameters.f32")
        self.times = [sample["time"] for sample in samples]
        self.batches = [sample["batches"] for sample in samples]

    def snapshots(self) -> Iterator[Parameters]:
        """Yields the parameters of each sample; nothing where none were recorded."""
        if not self._shapes:
            return
        with open(self._path, "rb") as file:
            for _ in self.times:
                yield {name: np.frombuffer(file.read(4 * int(np.prod(shape))), np.float32).reshape(shape)
                       for name, shape in self._shapes.items()}
