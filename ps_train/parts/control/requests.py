"""The requests of clients to a running training, by variables on ps 0, and the chief's answers."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import variables
from ps_train.coordination.sessions import Connection
from ps_train.errors import BlackboardError
from ps_train.runtime import clock, threads

_POLL_SECS = 1.0
_RATE_SAMPLES = 11  # so the rate is that of the last ten seconds
_log = logging.getLogger(__name__)


class ControlValues(NamedTuple):
    """The values on ps 0 by which clients and the chief talk.

    Attributes:
      num_saves: the number of checkpoints that were requested.
      answer: "number" of the last request that has an answer, 0 without one; its "path" and "problem", one of them "".
      about: the chief's description of the training, {} before there is one.
      num_unused_gradients: gradients of sync training that are in no update: dropped, or waiting for theirs.
    """

    num_saves: int
    answer: Mapping[str, Any]
    about: Mapping[str, Any]
    num_unused_gradients: int


class ControlBoard:
    """One process's view of the requests on ps 0, or of a single ps.

    Every method raises BlackboardError if the ps does not answer. Close it.
    """

    def __init__(self, ps: Task, own_task: Task | None = None, *, target: str = "", is_elastic: bool = False) -> None:
        """Builds the operations; nothing is sent yet.

        Args:
          ps: the ps with the variables.
          own_task: the task behind `target`; None for a client, which uses the server of the ps.
          target: address of the server that runs the session.
          is_elastic: see `Cluster`.
        """
        with tf.Graph().as_default() as graph, tf.device(ps.device):
            self._string = tf.placeholder(tf.string, [])
            self._read_stop = variables.read("stop_requested")
            self._stop = variables.write("stop_requested", 1)
            self._read = [variables.read(name) for name in ("save_requested", "save_answer", "about", "unused")]
            self._ask_save = variables.add("save_requested", 1)
            with tf.control_dependencies([self._ask_save]):
                self._read_save_requested = variables.read("save_requested")
            self._write_about = variables.write("about", self._string)
            self._write_answer = variables.write("save_answer", self._string)
            graph.finalize()
        self._connection = Connection(graph, target or f"grpc://{ps.address}", [ps], own_task, is_elastic=is_elastic)
        self._run = self._connection.run

    def ask_to_stop(self) -> None:
        """Asks the tasks that watch this ps to stop."""
        self._run(self._stop)

    def is_stop_requested(self) -> bool:
        """Returns whether a client has asked to stop."""
        return bool(self._run(self._read_stop))

    def ask_to_save(self) -> int:
        """Asks the chief for a checkpoint; returns the number of the request."""
        return int(self._run(self._read_save_requested))

    def read(self) -> ControlValues:
        """Returns the values on ps 0."""
        num_saves, answer, about, num_unused = self._run(self._read)
        return ControlValues(int(num_saves), json.loads(answer or '{"number": 0}'), json.loads(about or "{}"),
                             int(num_unused))

    def answer_save(self, number: int, path: str, problem: str) -> None:
        """Answers the requests up to this number; for the chief."""
        self._run(self._write_answer, {self._string: json.dumps({"number": number, "path": path, "problem": problem})})

    def write_about(self, about: Mapping[str, Any]) -> None:
        """Describes the training for clients; for the chief."""
        self._run(self._write_about, {self._string: json.dumps(about)})

    def close(self) -> None:
        """Closes the session, without waiting for a lost ps."""
        self._connection.close()


SaveNow = Callable[[Callable[[str, str], None]], None]


class ClientService:
    """Answers clients while the chief runs."""

    def __init__(
        self, board: ControlBoard, about: Mapping[str, Any], save_now: SaveNow, global_step: Callable[[], int],
        status: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Prepares it.

        Args:
          board: its view of ps 0.
          about: describes the training.
          save_now: requests a checkpoint; calls its argument with the path and "", or with "" and the problem.
          global_step: returns the step that this worker has seen last.
          status: returns the status of the parts; see `Part.status`.
        """
        self._board, self._about, self._save_now = board, about, save_now
        self._global_step, self._status = global_step, status
        self._num_taken = 0
        self._samples: collections.deque[tuple[float, int]] = collections.deque(maxlen=_RATE_SAMPLES)

    def serve(self) -> None:
        """Reads the requests, answers them, and describes the training."""
        with contextlib.suppress(BlackboardError):  # ps 0 is lost, which the training notices, too
            values = self._board.read()
            if not values.about:  # ps 0 is new, and counts from 0
                self._num_taken = 0
            self._board.write_about({**self._about, "steps_per_sec": self._steps_per_sec(), **self._status()})
            # A client may still wait for a chief that has died, or have asked while no chief trained.
            if values.num_saves > max(values.answer["number"], self._num_taken):
                self._num_taken = values.num_saves
                self._save_now(lambda path, problem, number=values.num_saves: self._answer(number, path, problem))

    def _steps_per_sec(self) -> float | None:
        """Returns the recent global steps per second, None at the start."""
        self._samples.append((clock.now(), self._global_step()))
        (first_secs, first_step), (last_secs, last_step) = self._samples[0], self._samples[-1]
        if not first_step or len(self._samples) < 2:
            return None
        return max(0, last_step - first_step) / (last_secs - first_secs)

    def _answer(self, number: int, path: str, problem: str) -> None:
        try:
            self._board.answer_save(number, path, problem)
        except BlackboardError as error:
            _log.warning("cannot answer `ps_train save`: %s", error)


@contextlib.contextmanager
def answering_clients(
    cluster: Cluster, target: str, about: Mapping[str, Any], save_now: SaveNow, global_step: Callable[[], int],
    status: Callable[[], Mapping[str, Any]],
) -> Iterator[None]:
    """Answers clients while its body runs; for the chief."""
    board = ControlBoard(cluster.ps[0], cluster.task, target=target, is_elastic=cluster.is_elastic)
    service = ClientService(board, about, save_now, global_step, status)
    with contextlib.closing(board), threads.repeating(service.serve, period_secs=_POLL_SECS, name="control"):
        yield
