"""The part of embedding tables: what the spine sees of the tables of a graph, and what a worker does for them.

    TableParameters   the row parameters of a graph (graph/extensions.py)
    TablesPart        how they are trained, and the thread of the chief that drops old rows (upkeep.py)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import ClusterLostError
from ps_train.graph import extensions
from ps_train.graph.extensions import Build, RowParameters
from ps_train.part import Part
from ps_train.parts.tables import connection, contents, hashing, upkeep
from ps_train.parts.tables.connection import Connected
from ps_train.parts.tables.copies import TableCopies
from ps_train.parts.tables.registry import Registry, current_registry, install_registry
from ps_train.parts.tables.rules import RULES, Frozen, RowRule, TableSpec
from ps_train.parts.tables.store import Store
from ps_train.parts.tables.table_files import ReadOnlyTables, TableFiles
from ps_train.runtime import tensorflow_errors, waits
from ps_train.storage.merging_saver import SavedPart
from ps_train.updates.local_steps import ChangeOptimizer

UPKEEP_SECS = 5.0  # between two checks of the tables
_log = logging.getLogger(__name__)


class TableSettings(NamedTuple):
    """How tables are trained.

    Attributes:
      rule: updates the rows of tables for which the model gives no rule.
      rules: name -> the rule that the model means by it; None for those with the constants by default.
      is_exact: whether one update at a time changes a table with a fixed number of rows.
      sums_gradients: in sync, whether a row's gradients are summed over the workers that have it, not averaged.
      is_async: in sync, whether each worker updates its rows by itself, and nothing of them is aggregated.
      wire_dtype: see `Registry`.
      delta_secs: time between deltas, 0 for none.
      local_device: the CPU of this task, which saves and restores if it is the chief; "" in a graph of one process.
    """

    rule: RowRule
    rules: Mapping[str, RowRule] | None = None
    is_exact: bool = True
    sums_gradients: bool = False
    is_async: bool = False
    wire_dtype: tf.DType | None = None
    delta_secs: float = 0.0
    local_device: str = ""


class TableParameters(RowParameters):
    """The tables of one graph; see `RowParameters` for the methods.

    Attributes:
      registry: the tables and lookups of the model.
      files: makes, saves and restores the tables; after `add_saving`.
    """

    def __init__(self, registry: Registry, settings: TableSettings) -> None:
        self.registry = registry
        self.files: TableFiles | None = None
        self._settings = settings

    @property
    def specs(self) -> Mapping[str, TableSpec]:
        return self.registry.specs

    @property
    def delta_secs(self) -> float:
        return self._settings.delta_secs if self.specs else 0.0

    def begin_build(self, build: Build) -> None:
        self.registry.begin_build(*build)

    def renew(self) -> None:
        # An evaluation has the rows of the checkpoint: they travel as they are.
        install_tables(self.registry.devices, self._settings._replace(wire_dtype=None))

    def connect(self, *, sorts_ids: bool = False) -> Connected | None:
        return connection.connect_lookups(sorts_ids=sorts_ids)

    def applied_by(
        self, optimizer: tf.train.Optimizer, *, is_change: bool = False, factor: tf.Tensor | None = None
    ) -> tf.train.Optimizer:
        stores = self.registry.all_stores()
        apply = Store.merge if is_change else functools.partial(Store.update, factor=factor)
        return TableOptimizer(optimizer, stores, apply) if stores else optimizer

    def summed(self) -> list[tf.Variable]:
        return [store.rows for store in self.registry.all_stores()] if self._settings.sums_gradients else []

    def copies(self, names: Sequence[str], source: Any, *, sorts_ids: bool) -> TableCopies | None:
        return TableCopies(names, source, sorts_ids=sorts_ids) if names else None

    def add_saving(self) -> None:
        """Adds the operations of `files`, and the summaries of tables that are trained."""
        is_read_only = isinstance(self.registry.default_rule, Frozen)
        self.files = (ReadOnlyTables if is_read_only else TableFiles)(self.registry, self._settings.local_device)
        if not is_read_only:
            self.files.add_summaries()

    def check_fits(self, path: str) -> None:
        contents.check_tables_fit(path, self.specs)

    def delta_path_of(self) -> Callable[[int], str] | None:
        return self.files.delta_path_of()

    def remove_old_deltas(self, newest: str) -> None:
        """Leaves two deltas: this one may turn out to be damaged."""
        contents.remove_older_deltas(newest, keep=2)

    def newest(self, path: str) -> str:
        return (contents.newest_sound_delta(path) if self.specs else None) or path

    def restore(self, session: tf.Session, path: str, newest: str = "") -> None:
        self.files.restore(session, path, newest if newest and newest != path else None)

    def reset(self, session: tf.Session) -> None:
        self.files.reset(session)

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        connection.raise_if_bad_id(error, where)

    def fingerprint(self) -> Mapping[str, str]:
        """Returns the spec of each table, and which ps has which rows, which depends on the version."""
        return {**{f"table {name}": str(spec) for name, spec in self.specs.items()},
                **({"rows of tables on the ps": hashing.MIXED} if self.specs else {})}


class AsyncTableParameters(TableParameters):
    """The tables of a graph in sync with --async_embeddings: a worker's step updates its rows, as in async.

    The gradients of rows are not among those that sync aggregates. So no accumulator has them, and no row waits for the
    gradients of another worker.
    """

    def __init__(self, registry: Registry, settings: TableSettings) -> None:
        super().__init__(registry, settings)
        self._updates: list[tf.Operation] = []
        self._factor: tf.Tensor | None = None

    def connect(self, *, sorts_ids: bool = False) -> Connected | None:
        connected = super().connect()  # only accumulators need ids in order
        if connected:
            connected.push = functools.partial(self._update, connected.push)
        return connected

    def applied_by(
        self, optimizer: tf.train.Optimizer, *, is_change: bool = False, factor: tf.Tensor | None = None
    ) -> tf.train.Optimizer:
        self._factor = factor
        return super().applied_by(optimizer, is_change=is_change, factor=factor)

    def updates_in_step(self) -> list[tf.Operation]:
        return self._updates

    def _update(self, push: Callable, gradients: Mapping[str, tf.Tensor]) -> list:
        """Sends gradients to the ps, adds the updates by them, and returns no pair that would be aggregated."""
        stores = {store.rows.ref(): store for store in self.registry.all_stores()}
        self._updates += [stores[rows.ref()].update(gradient.indices, gradient.values, self._factor)
                         for gradient, rows in push(gradients)]
        return []


class TableOptimizer(tf.train.GradientDescentOptimizer):
    """Applies pairs of tables, (gradient by id, rows of a store), by their rules, and others by another optimizer."""

    def __init__(self, dense: tf.train.Optimizer, stores: Sequence[Store], apply: Callable[..., Any]) -> None:
        """Prepares it; nothing is added to the graph yet.

        Args:
          dense: updates everything that is not a table.
          apply: `Store.update`, or `Store.merge` for the changes of local steps.
        """
        super().__init__(learning_rate=1.0)  # not used
        self._dense, self._apply = dense, apply
        self._stores = {store.rows.ref(): store for store in stores}

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple[Any, tf.Variable]], global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        pairs = list(grads_and_vars)
        tables = [self._apply(self._stores[variable.ref()], gradient.indices, gradient.values)
                  for gradient, variable in pairs if variable.ref() in self._stores]
        others = [pair for pair in pairs if pair[1].ref() not in self._stores]
        # The global step rises after both. The dense optimizer raises it, because it may do more after an update.
        with tf.control_dependencies(tables):
            # A round without a dense variable has its number of steps, too.
            if any(gradient is not None for gradient, _ in others) or isinstance(self._dense, ChangeOptimizer):
                return self._dense.apply_gradients(others, global_step, name=name)
            return tf.no_op(name) if global_step is None else global_step.assign_add(1, read_value=False)

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        return self._dense.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        return self._dense.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        return self._dense.variables()


def install_tables(devices: Sequence[str], settings: TableSettings) -> TableParameters:
    """Gives the current graph tables on the devices of the ps, before its model is built."""
    parameters = AsyncTableParameters if settings.is_async else TableParameters
    registry = install_registry(devices, settings.rule, functools.partial(Store, is_exact=settings.is_exact),
                                wire_dtype=settings.wire_dtype, rules=settings.rules)
    tables = parameters(registry, settings)
    extensions.set_row_parameters(tables)
    return tables


def tables_of_graph() -> Registry:
    """Returns the registry of the current graph, whose tables are its row parameters from then on.

    Without one, the graph is that of an evaluation or of a model that a user builds by hand: its rows are in this
    process, and are only read.
    """
    registry = current_registry()
    if not isinstance(extensions.row_parameters(), TableParameters):
        extensions.set_row_parameters(TableParameters(registry, TableSettings(registry.default_rule)))
    return registry


class TablesPart(Part):
    """The tables of the training graph of one worker."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the rule and the other settings from the flags."""
        self._cluster, self._save_timeout_secs = cluster, config.save_timeout_secs
        self._settings = TableSettings(
            rule=table_rule(config), rules=rules_by_name(config), is_exact=config.exact_embedding_updates,
            sums_gradients=config.sum_embedding_gradients, is_async=config.async_embeddings,
            wire_dtype=tf.bfloat16 if config.embedding_wire_dtype == "bfloat16" else None,
            delta_secs=config.save_delta_secs,
            local_device=f"{cluster.task.device}/cpu:0" if cluster.is_chief else "")
        self._tables: TableParameters | None = None
        self._shares: list[dict[str, Any]] = []  # of the latest check

    def begin_graph(self) -> None:
        """Gives the graph a registry of tables."""
        self._tables = install_tables([ps.device + "/cpu:0" for ps in self._cluster.ps], self._settings)

    def saved_part(self) -> SavedPart | None:
        """Returns what writes the rows; None if the model has no tables."""
        self._tables.add_saving()
        return self._tables.files.begin_save if self._tables.specs else None

    @contextlib.contextmanager
    def running(self, session: Any, is_live: bool) -> Iterator[None]:
        """Returns a context in which the chief drops old rows; after the last save, it logs how each table was used."""
        if not (self._cluster.is_chief and self._tables and self._tables.specs):
            yield
            return
        stop = threading.Event()
        # Nothing waits for its last call to a ps, which may hang.
        threading.Thread(target=self._drop_regularly, args=(session, self._tables.files, stop), daemon=True,
                         name="table upkeep").start()
        try:
            yield
        finally:
            stop.set()
        try:
            waits.bounded(lambda: upkeep.log_use(session, self._tables.files), self._save_timeout_secs,
                          "the counts of the tables")
        except (tf.errors.OpError, RuntimeError, ClusterLostError) as error:  # everything important is saved
            _log.warning("cannot log how the tables were used: %s", error)

    def _drop_regularly(self, session: tf.Session, files: TableFiles, stop: threading.Event) -> None:
        """Counts rows at once, then drops old ones regularly, until the session ends."""
        look, has_warned = (lambda: files.counts(session)), False
        while True:
            try:
                counts = waits.bounded(look, self._save_timeout_secs, "the ps to count and drop rows of tables")
                self._shares = upkeep.shares_of(files, counts)
                upkeep.warn_of_age(counts)
            except (tf.errors.OpError, RuntimeError, ClusterLostError) as error:
                if _ends_session(error):  # the next one has a thread
                    _log.debug("no more upkeep of tables in this session: %s", error)
                    return
                if not has_warned:
                    _log.warning("cannot drop old rows of tables: %s; trying again every %g s, and until then tables "
                                 "grow", tensorflow_errors.reason(error), UPKEEP_SECS)
                has_warned = True
            if stop.wait(UPKEEP_SECS):
                return
            look = functools.partial(upkeep.drop_old_rows, session, files)

    def status(self) -> Mapping[str, Any]:
        """Returns the rows of each table on each ps; see `upkeep.shares_of`."""
        return {"tables": self._shares}


def _ends_session(error: Exception) -> bool:
    """Returns whether an error means that the session is closed or lost."""
    return (sessions.is_lost(error) or isinstance(error, tf.errors.CancelledError)
            if isinstance(error, tf.errors.OpError) else "closed Session" in str(error))


def table_rule(config: Any) -> RowRule:
    """Returns the rule of embedding tables for which the model gives none."""
    name = config.embedding_optimizer or ("adagrad" if config.optimizer == "rmsprop" else config.optimizer)
    return rules_by_name(config)[name].with_defaults(config.embedding_learning_rate or config.learning_rate)


def rules_by_name(config: Any) -> dict[str, RowRule]:
    """Returns the rules that a model may name; that of --optimizer has the constants of the flags."""
    rules = {name: kind() for name, kind in RULES.items()}
    if rule := rules.get(config.optimizer):
        known = {field.name for field in dataclasses.fields(rule)}
        options = getattr(config, "optimizer_options", {})
        rules[config.optimizer] = dataclasses.replace(
            rule, **{option: value for option, value in options.items() if option in known})
    return rules
