"""What the spine sees of the tables of a graph: its row parameters (graph/extensions.py)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import extensions
from ps_train.graph.extensions import Build, RowParameters
from ps_train.parts.tables import connection, contents, hashing, id_check
from ps_train.parts.tables.connection import Connected
from ps_train.parts.tables.copies import TableCopies
from ps_train.parts.tables.registry import Registry, current_registry, install_registry
from ps_train.parts.tables.rules import Frozen, RowRule, TableSpec
from ps_train.parts.tables.store import Store
from ps_train.parts.tables.table_files import ReadOnlyTables, TableFiles


class TableSettings(NamedTuple):
    """How tables are trained.

    Attributes:
      rule: updates the rows of tables for which the model gives no rule.
      is_exact: whether one update at a time changes a table with a fixed number of rows.
      sums_gradients: in sync, whether a row's gradients are summed over the workers that have it, not averaged.
      delta_secs: time between deltas, 0 for none.
      local_device: the CPU of this task, which saves and restores if it is the chief; "" in a graph of one process.
    """

    rule: RowRule
    is_exact: bool = True
    sums_gradients: bool = False
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
        install_tables(self.registry.devices, self._settings)

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

    def remove_old_deltas(self) -> None:
        """Leaves two deltas to the last checkpoint: the newest may turn out to be damaged."""
        contents.remove_older_deltas(self.files.base, keep=2)

    def newest(self, path: str) -> str:
        return (contents.newest_sound_delta(path) if self.specs else None) or path

    def restore(self, session: tf.Session, path: str, newest: str = "") -> None:
        self.files.restore(session, path, newest if newest and newest != path else None)

    def reset(self, session: tf.Session) -> None:
        self.files.reset(session)

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        id_check.raise_if_bad_id(error, where)

    def fingerprint(self) -> Mapping[str, str]:
        """Returns the spec of each table, and which ps has which rows, which depends on the version."""
        return {**{f"table {name}": str(spec) for name, spec in self.specs.items()},
                **({"rows of tables on the ps": hashing.MIXED} if self.specs else {})}


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
            if any(gradient is not None for gradient, _ in others):
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
    tables = TableParameters(
        install_registry(devices, settings.rule, functools.partial(Store, is_exact=settings.is_exact)), settings)
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
