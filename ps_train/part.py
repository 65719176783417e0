"""The seam between the spine and its parts: what a part may add to a task. Nothing here knows a part by name.

    parts/table.py --make_parts--> Parts, in the order of the table <-- the spine calls a method, and each part has it

A part is a folder in `parts/`. What it has of these is named in its row of the table:

    flags.py   a dataclass that joins the flags of a task
    board.py   its variables on the blackboard, as VARIABLES
    part.py    a subclass of Part, for a worker, or of launch.part.LaunchPart
    verb.py    its verbs on the command line, with their flags
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple


class BoardVariable(NamedTuple):
    """A variable of the blackboard that belongs to a part; it has no value but zeros, or "", until the part writes one.

    Attributes:
      dtype: the name of its type, such as "int64".
      is_per_worker: whether it has an element for each worker.
      is_on_every_ps: whether each ps has one; otherwise it is on ps 0.
    """

    dtype: str
    is_per_worker: bool = False
    is_on_every_ps: bool = False


class Part:
    """One feature in one worker. Every method does nothing by default.

    `config` is the Config of the task, with the part's own flags in it; `cluster` is its Cluster. A part reads its
    settings there, when it is made: no settings of the spine name them.

    Workers and evaluators have parts, a ps has none. An evaluator calls `around_task`, `around_evaluations`,
    `before_look`, `is_due` and `after_evaluation` only.
    """

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether the part has anything to do in this worker; if not, it is not made."""
        return True

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the part's settings from the flags."""

    def adjust(self, settings: Any) -> Any:
        """Returns the `tasks.setup.WorkerSettings` of this worker, with what the part needs changed in them."""
        return settings

    def around_task(self, stop: Any) -> contextlib.AbstractContextManager:
        """Returns a context around the whole task, which is entered before a socket opens, and may refuse.

        Args:
          stop: the event that ends the task.

        Raises:
          PsTrainError: the part cannot do what the flags ask for; raised when the context is entered.
        """
        return contextlib.nullcontext()

    def begin_graph(self) -> None:
        """Prepares the current graph, which is to be the training graph, before its input and model are built."""

    def update(self, update: Any) -> Any:
        """Returns the `updates.update.Update` of the training graph, with what the part adds to it.

        The model is built, and the graph is the current one.
        """
        return update

    def saved_part(self) -> Any | None:
        """Returns what the part itself writes of each checkpoint, a `storage.merging_saver.SavedPart`, or None.

        The model is built, and the graph is the current one.
        """
        return None

    def before_server(self, task: Any) -> None:
        """Prepares what the part needs, and finds faults, before a socket opens.

        Args:
          task: the `tasks.worker.PreparedWorker`, with the finished graph.

        Raises:
          PsTrainError: the part cannot do what the flags ask for.
        """

    def final_evaluation(self, task: Any) -> Any | None:
        """Returns what evaluates the last checkpoint of this worker in place of the chief alone, or None.

        At most one part may. It is called in every worker. Without such a part, only the chief works after the end.

        Args:
          task: as that of `before_server`.

        Returns:
          an object with the methods and attributes of `tasks.worker.FinalEvaluation`.

        Raises:
          PsTrainError: the model cannot be evaluated that way.
        """
        return None

    def around_evaluations(self, plugins: Any, evaluator: Any | None, stop: Any) -> contextlib.AbstractContextManager:
        """Returns a context that is open for as long as this task, a chief or an evaluator, may evaluate checkpoints.

        It is entered before a socket opens, and may refuse.

        Args:
          plugins: the `tasks.setup.LoadedPlugins`.
          evaluator: the `training.evaluation.Evaluator`; None in a chief whose `final_evaluation` needs none.
          stop: a `threading.Event` that ends the task.

        Raises:
          PsTrainError: the flags do not fit the model; raised when the context is entered.
        """
        return contextlib.nullcontext()

    def before_look(self, listening: Callable[[], contextlib.AbstractContextManager]) -> None:
        """Brings the newest checkpoint to where an evaluator looks. In `listening()` it hears the cluster."""

    def is_due(self, path: str) -> bool:
        """Returns whether an evaluator is to evaluate this new checkpoint; the last one is evaluated in any case."""
        return True

    def after_evaluation(self, evaluation: Any, path: str) -> None:
        """Is called after an evaluation: after each in an evaluator, after that of the last checkpoint in the chief.

        Args:
          evaluation: the `runtime.reports.Evaluation`.
          path: its checkpoint.

        Raises:
          PsTrainError: what the flags ask for after the last evaluation has failed.
        """

    def at_server(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context around all that this worker does at its server: training and the final evaluation.

        Args:
          connected: the `tasks.worker.ConnectedWorker`.
        """
        return contextlib.nullcontext()

    def training(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context around the training of this worker, all its sessions together; see `at_server`."""
        return contextlib.nullcontext()

    def check_origin(self, path: str | None) -> None:
        """Compares what the part has in the training graph with what the training is to begin with; in the chief.

        Args:
          path: the checkpoint; None for new parameters.

        Raises:
          CheckpointError: the checkpoint is of another model.
          ConfigError: it does not fit the flags or the data.
        """

    def after_init(self, session: Any) -> None:
        """Changes new variables before what is computed from them is initialised; by the chief.

        Args:
          session: a `tf.Session`, in which the variables have their initial values; it is closed before training.
        """

    def after_restore(self, session: Any, path: str) -> None:
        """Prepares what the part has on the ps; by the chief, before any worker trains.

        Args:
          session: a `tf.Session`, in which the variables are ready; it is closed before training.
          path: the checkpoint, or delta, that they were restored from; "" if they are new.
        """

    def running(self, session: Any, is_live: bool) -> contextlib.AbstractContextManager:
        """Returns a context around one session, from ready parameters to the last save; an error may end it earlier.

        Args:
          session: the `tf.Session`.
          is_live: whether the parameters were in use before; false if the chief has just prepared them.
        """
        return contextlib.nullcontext()

    def around_step(self, session: Any, graph: Any, run_step: Callable) -> Callable:
        """Returns what runs the training steps of a session in place of `run_step`, a `training.loop.RunStep`.

        It is called with the global step, the seconds for which the staleness bound delayed the worker, the fetches and
        the options. A call is one session run: with --steps_per_execution or --communication_period, of several steps.
        It returns what was fetched: int64 [steps, 6], a row of `training.replica_graph.StepStatus` for each step; the
        loss of the last mini-batch, a float32 scalar; and a serialized summary, if one is due.

        It calls `run_step`, unless it is the innermost part: what the parts before it do is around its own.

        Args:
          session: has the `run` of a `tf.Session`, around which the model's hooks run.
          graph: the `tf.Graph`.
        """
        return run_step

    def around_loop(self, loop: Any, session: Any) -> Any:
        """Returns what trains in a session in place of `loop`, a `training.loop.Loop`: it has a `run`, too."""
        return loop

    def ended_loop(self) -> None:
        """Reports what the part has gathered, after the last step of a session whose loop ended by itself."""

    def status(self) -> Mapping[str, Any]:
        """Returns what `ps_train status` shows of the part, as values that fit into JSON; any thread may ask."""
        return {}


def _each(method: str) -> Any:
    """Returns a method of `Parts` that calls the method of that name of each part."""
    def call(self: Parts, *args: Any) -> None:
        for part in self._parts:
            getattr(part, method)(*args)

    return call


def _within_each(method: str) -> Any:
    """Returns a method of `Parts` that enters the contexts which the method of that name of each part returns."""
    @contextlib.contextmanager
    def call(self: Parts, *args: Any) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for part in self._parts:
                stack.enter_context(getattr(part, method)(*args))
            yield

    return call


class Parts(Part):
    """All parts of a worker, in the order of the table: contexts are left in reverse."""

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self._parts = list(parts)

    begin_graph = _each("begin_graph")
    before_server = _each("before_server")
    before_look = _each("before_look")
    after_evaluation = _each("after_evaluation")
    check_origin = _each("check_origin")
    after_init = _each("after_init")
    after_restore = _each("after_restore")
    ended_loop = _each("ended_loop")
    around_task = _within_each("around_task")
    around_evaluations = _within_each("around_evaluations")
    at_server = _within_each("at_server")
    training = _within_each("training")
    running = _within_each("running")

    def adjust(self, settings: Any) -> Any:
        for part in self._parts:
            settings = part.adjust(settings)
        return settings

    def update(self, update: Any) -> Any:
        for part in self._parts:
            update = part.update(update)
        return update

    def saved_parts(self) -> list[Any]:
        """Returns the `saved_part` of each part that has one."""
        return [saved for part in self._parts if (saved := part.saved_part()) is not None]

    def final_evaluation(self, task: Any) -> Any | None:
        replacements = (part.final_evaluation(task) for part in self._parts)
        return next((replacement for replacement in replacements if replacement is not None), None)

    def is_due(self, path: str) -> bool:
        return all(part.is_due(path) for part in self._parts)

    def around_step(self, session: Any, graph: Any, run_step: Callable) -> Callable:
        for part in reversed(self._parts):  # the last one of the table is next to the step
            run_step = part.around_step(session, graph, run_step)
        return run_step

    def around_loop(self, loop: Any, session: Any) -> Any:
        for part in reversed(self._parts):
            loop = part.around_loop(loop, session)
        return loop

    def status(self) -> Mapping[str, Any]:
        return {name: value for part in self._parts for name, value in part.status().items()}


NO_PARTS = Parts()  # of a graph or a worker that a program or a test makes by itself
