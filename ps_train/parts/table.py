"""The table of parts: the only place that names them all.

The order counts: parts start in it, and stop in reverse. To leave a part out, delete its folder and its row.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ps_train.part import BoardVariable, Part, Parts


class PartRow(NamedTuple):
    """One part.

    Attributes:
      name: its folder in `parts/`.
      flags: the dataclass in its flags.py that joins the flags of a task, or "".
      part: the subclass of Part in its part.py, or "".
      around: a context, as "module:name", around a task from before it is located to its end, or "": as `located`.
      launch_flags: the dataclass, as "module:Name", that joins the flags of `ps_train launch`, or "".
      launch_part: the subclass of LaunchPart in its part.py, or "".
      has_board: whether its board.py declares variables of the blackboard.
      located: a context, as "module:name", that gives a task its Config with a train_dir on this machine, or "".
      words: a context, as "module:name", that gives a verb its arguments with what the part adds to them, or "".
      read: a context, as "module:name", that gives a verb which reads a train_dir one on this machine, or "".
      for_plugins: a function, as "module:name", that is called before plug-ins are imported, or "".
      cluster: a function, as "module:name", that finds the cluster of a task in its environment, or "": it is called
        with the Config and the variables, and returns the text of TF_CONFIG, "" if the flags do not ask for it. All
        flags of the part then place a task.
      verbs: the verbs that its verb.py defines: the verb `status` as STATUS. That of a later row counts.
      launches: those of which `ps_train launch` runs a whole cluster, `run` as LAUNCH_RUN in verb.py.
      names: the public names of `ps_train` that it provides: name -> module in its folder.
      earlier_name: the folder in `ps_train` that it was, if the docs named it: `ps_train.embeddings`.
    """

    name: str
    flags: str = ""
    part: str = ""
    around: str = ""
    launch_flags: str = ""
    launch_part: str = ""
    has_board: bool = False
    located: str = ""
    words: str = ""
    read: str = ""
    for_plugins: str = ""
    cluster: str = ""
    verbs: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    names: Mapping[str, str] = {}
    earlier_name: str = ""


TABLE = (
    # Only prints; this one and the next two, which only change settings, have no place in the order.
    PartRow("placement_table", flags="PlacementTableFlags", part="PlacementTablePart"),
    PartRow("optimizer_rule", flags="RuleFlags", part="OptimizerRulePart"),
    PartRow("tensorflow_sync", flags="SyncEngineFlags", part="TensorFlowSyncPart"),
    # First: what its rows need is there before anything else of a part reads one.
    PartRow("tables", flags="EmbeddingFlags", part="TablesPart", earlier_name="embeddings", names={
        "embedding_table": "tables", "get_embedding_variable": "tables", "read_table": "contents"}),
    PartRow("readers", names={
        "LineReader": "range_batches", "RecordReader": "range_batches", "file_ranges": "file_ranges",
        "ParquetReader": "range_batches", "negative_samples": "negatives", "range_batches": "range_batches"}),
    # Only the graph, as the next one.
    PartRow("packing", part="PackingPart"),
    PartRow("joined_lookups", part="JoinedLookupsPart"),
    # Only the graph; what it takes apart is there when the model is built.
    PartRow("own_train_op", part="OwnTrainOpPart"),
    # Sets new variables, before anything else of a part reads one.
    PartRow("warm_start", flags="WarmStartFlags", part="WarmStartPart"),
    # Its queue begins before any worker may ask it; after the tables, whose rows a checkpoint has before the position.
    PartRow("sharding", flags="ShardingFlags", part="ShardingPart"),
    # Before control: the journal is kept only while the workers train, not while the chief still evaluates.
    PartRow("selection", flags="SelectionFlags", part="SelectionPart", has_board=True),
    PartRow("evaluation_by_workers", flags="EvaluationFlags", part="EvaluationByWorkersPart", has_board=True),
    # Its flag --train_dir replaces that of the spine; the folder of a task is there before any part is made.
    PartRow("object_store", flags="StoreFlags", part="StorePart", located="part:mirrored_config",
            read="reading:fetched_words"),
    # Before control, whose note of the start is an event; a step that fails or waits is not a step of the parts below.
    PartRow("callbacks", flags="CallbackFlags", part="CallbacksPart", names={
        "CallbackEvent": "thread", "RunningTraining": "thread"}),
    # A part whose `before_server` may refuse stands before this one, which notes the start in the journal.
    PartRow("control", part="ControlPart", has_board=True, verbs=("status", "save", "stop", "resume")),
    PartRow("report", verbs=("report",)),
    PartRow("compare", verbs=("compare",)),
    # After control, whose note of the start it need not count; around profile, as a profiled step is a step.
    PartRow("health", flags="HealthFlags", part="HealthPart", around="part:served_config"),
    # Innermost: what the others do around a step is not part of the step.
    PartRow("profile", flags="ProfileFlags", part="ProfilePart"),
    PartRow("ssh", launch_flags="hosts:RemoteFlags", launch_part="SshPart"),
    PartRow("tmux", launch_flags="part:TmuxFlags", launch_part="TmuxPart"),
    # Before a worker has parts; these and the next two have no place in the order.
    PartRow("schedulers", flags="SchedulerFlags", cluster="sources:scheduled_cluster", verbs=("tf_config",)),
    PartRow("config_file", words="reading:with_file_flags", verbs=("config",)),
    # Verbs only.
    PartRow("inference", verbs=("evaluate", "predict", "export")),
    # After inference, whose verb it replaces by one with more flags.
    PartRow("live", verbs=("export",), names={
        "LiveModel": "model", "predict_client": "predict_calls", "predict_server": "predict_calls"}),
    PartRow("rows", verbs=("rows",)),
    PartRow("publish", verbs=("publish",)),
    PartRow("plan", verbs=("plan",)),
    PartRow("doctor", verbs=("doctor",)),
    PartRow("tune", verbs=("tune",)),
    PartRow("keras", verbs=("keras", "convert"), launches=("keras",), names={"KerasTwin": "plugins"}),
    PartRow("legacy", has_board=True, for_plugins="estimator:offer_estimator", verbs=("run",), launches=("run",),
            names={"MonitoredTrainingSession": "classic.sessions", "Server": "classic.server",
                   "Supervisor": "classic.sessions", "SyncReplicasOptimizer": "classic.sync_replicas",
                   "replica_device_setter": "classic.server"}),
)


def flag_classes(*, is_located: bool = False) -> list[Any]:
    """Returns the dataclasses of flags that join those of a task; with `is_located` only of parts that locate it."""
    return [attribute_of(row, "flags", row.flags) for row in TABLE if row.flags and (row.located or not is_located)]


def board_variables() -> dict[str, BoardVariable]:
    """Returns the variables of all parts on the blackboard.

    Raises:
      ValueError: two parts declare the same name.
    """
    found: dict[str, BoardVariable] = {}
    for row in TABLE:
        declared = attribute_of(row, "board", "VARIABLES") if row.has_board else {}
        if twice := found.keys() & declared.keys():
            raise ValueError(f"parts/{row.name}/board.py declares {', '.join(sorted(twice))}, as another part does")
        found.update(declared)
    return found


@contextlib.contextmanager
def located(config: Any, cluster: Any, stop: Any) -> Iterator[Any]:
    """Yields the Config with which a task runs: its train_dir is a folder on this machine, for as long as it runs.

    Args:
      cluster: the Cluster of the task; None if it only checks the flags.
      stop: a `threading.Event` that ends the task.

    Raises:
      PsTrainError: the train_dir cannot be used, or at the end not be completed.
    """
    with contextlib.ExitStack() as stack:
        for row, place in [(row, row.around) for row in TABLE] + [(row, row.located) for row in TABLE]:
            if place:
                config = stack.enter_context(attribute_of(row, *place.split(":"))(config, cluster, stop))
        yield config


def make_parts(config: Any, cluster: Any) -> Parts:
    """Returns the parts of a task, of a ps none; they take their settings from its Config."""
    rows = [row for row in TABLE if row.part and cluster.job != "ps"]
    classes: list[type[Part]] = [attribute_of(row, "part", row.part) for row in rows]
    return Parts([cls(config, cluster) for cls in classes if cls.is_on(config, cluster)])


def prepare_for_plugins() -> None:
    """Puts in place what the parts offer to plug-ins, before the first of them is imported."""
    for row in TABLE:
        if row.for_plugins:
            attribute_of(row, *row.for_plugins.split(":"))()


def public_names() -> dict[str, str]:
    """Returns the names of the parts in the package's API: name -> module."""
    return {name: module_of(row, place) for row in TABLE for name, place in row.names.items()}


def earlier_names() -> dict[str, str]:
    """Returns the names in `ps_train` of former folders that the docs named -> the package of the part."""
    return {row.earlier_name: f"ps_train.parts.{row.name}" for row in TABLE if row.earlier_name}


class EarlierModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of parts by the names of former folders: `ps_train.embeddings.rules`."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        is_earlier = package == "ps_train" and name.partition(".")[0] in earlier_names()
        return importlib.machinery.ModuleSpec(fullname, self) if is_earlier else None

    def exec_module(self, module: types.ModuleType) -> None:
        _, name, *below = module.__name__.split(".")
        sys.modules[module.__name__] = importlib.import_module(".".join([earlier_names()[name], *below]))


def module_of(row: PartRow, name: str) -> str:
    """Returns the dotted name of a module of a part."""
    return f"ps_train.parts.{row.name}.{name}"


def attribute_of(row: PartRow, module: str, name: str) -> Any:
    """Imports a module of a part, and returns what has this name there."""
    return getattr(importlib.import_module(module_of(row, module)), name)
