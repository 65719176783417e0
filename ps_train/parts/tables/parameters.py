"""What the spine sees of the tables of a graph: its row parameters (graph/row_parameters.py)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import row_parameters
from ps_train.graph.row_parameters import Build, RowParameters
from ps_train.parts.tables import connection, deltas, id_check, registry
from ps_train.parts.tables.connection import Connected
from ps_train.parts.tables.copies import TableCopies
from ps_train.parts.tables.files import contents
from ps_train.parts.tables.files.table_files import ReadOnlyTables, TableFiles
from ps_train.parts.tables.optimizer import TableOptimizer
from ps_train.parts.tables.registry import Registry
from ps_train.parts.tables.rows import dealing
from ps_train.parts.tables.rows.store import Store
from ps_train.parts.tables.rules import Frozen, RowRule
from ps_train.parts.tables.spec import TableSpec


class TableSettings(NamedTuple):
    """How tables are trained.

    Attributes:
      rule: updates the rows of tables that have no rule of their own.
      is_exact: whether one update at a time changes a table with a fixed number of rows.
      sums_gradients: in sync, whether a row's gradients are summed over the workers that have it, not averaged.
      delta_secs: time between deltas, 0 for none.
    """

    rule: RowRule
    is_exact: bool = True
    sums_gradients: bool = False
    delta_secs: float = 0.0


class TableParameters(RowParameters):
    """The tables of one graph.

    Attributes:
      registry: what the model has asked for.
      files: makes, saves and restores the tables; after `add_saving`.
    """

    def __init__(self, found: Registry, settings: TableSettings) -> None:
        self.registry = found
        self.files: TableFiles | None = None
        self._settings = settings

    @property
    def specs(self) -> Mapping[str, TableSpec]:
        """Name of a table -> what the model says about it."""
        return self.registry.specs

    @property
    def delta_secs(self) -> float:
        """The time between deltas, 0 for none."""
        return self._settings.delta_secs if self.specs else 0.0

    def begin_build(self, build: Build) -> None:
        """Forgets the names and lookups of an earlier call of model_fn."""
        self.registry.begin_build(*build)

    def renew(self) -> None:
        """Gives the current graph tables on the same ps, with rows of the same width."""
        install_tables(self.registry.devices, self._settings)

    def connect(self, *, sorts_ids: bool = False) -> Connected | None:
        """Connects the lookups that the model has asked for since the last call."""
        return connection.connect_lookups(sorts_ids=sorts_ids)

    def applied_by(
        self, optimizer: tf.train.Optimizer, *, is_change: bool = False, factor: tf.Tensor | None = None
    ) -> tf.train.Optimizer:
        """Returns an optimizer that applies what concerns tables by `Store.update`, changes by `Store.merge`."""
        stores = connection.stores_of(self.registry)
        return TableOptimizer(optimizer, stores, Store.merge if is_change else Store.update, factor) if stores \
            else optimizer

    def summed(self) -> list[tf.Variable]:
        """Returns the rows of all stores if --sum_embedding_gradients is on."""
        return [store.rows for store in connection.stores_of(self.registry)] if self._settings.sums_gradients else []

    def copies(self, names: Sequence[str], source: Any, *, sorts_ids: bool) -> TableCopies | None:
        """Returns the worker's copies of the rows of these tables in a round; None without any."""
        return TableCopies(names, source, sorts_ids=sorts_ids) if names else None

    def add_saving(self) -> None:
        """Adds the operations of `files`, and the summaries of tables that are trained."""
        is_read_only = isinstance(self.registry.default_rule, Frozen)
        self.files = (ReadOnlyTables if is_read_only else TableFiles)(self.registry)
        if not is_read_only:
            self.files.add_summaries()

    def check_fits(self, path: str) -> None:
        """Compares the tables with those in a checkpoint; see `contents.check_tables_fit`."""
        contents.check_tables_fit(path, self.specs)

    def delta_path_of(self) -> Callable[[int], str] | None:
        """Returns what names a delta by its global step; see `TableFiles.delta_path_of`."""
        return self.files.delta_path_of()

    def remove_old_deltas(self) -> None:
        """Leaves two deltas to the last checkpoint: the newest may turn out to be damaged."""
        deltas.remove_older_deltas(self.files.base, keep=2)

    def newest(self, path: str) -> str:
        """Returns the newest sound delta to a checkpoint, or its own path."""
        return (deltas.newest_sound_delta(path) if self.specs else None) or path

    def restore(self, session: tf.Session, path: str, newest: str = "") -> None:
        """Restores the rows from a checkpoint, and from its delta if `newest` is one."""
        self.files.restore(session, path, newest if newest and newest != path else None)

    def reset(self, session: tf.Session) -> None:
        """Empties all tables."""
        self.files.reset(session)

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        """Raises UserCodeError if an id, or weights of ids, have stopped a session run."""
        id_check.raise_if_bad_id(error, where)

    def fingerprint(self) -> Mapping[str, str]:
        """Returns what the model says of each table, and which ps has which rows, which depends on the version."""
        return {**{f"table {name}": str(spec) for name, spec in self.specs.items()},
                **({"rows of tables on the ps": dealing.MIXED} if self.specs else {})}


def install_tables(devices: Sequence[str], settings: TableSettings) -> TableParameters:
    """Gives the current graph tables, before its model is built.

    Args:
      devices: that of each ps.
    """
    found = TableParameters(registry.install_registry(
        devices, settings.rule, functools.partial(Store, is_exact=settings.is_exact)), settings)
    row_parameters.set_for_graph(found)
    return found


def tables_of_graph() -> Registry:
    """Returns the registry of the current graph, with which the spine reckons from then on.

    Without one, it is that of an evaluation or of a model that somebody builds by hand: its rows are in this process,
    and are only read.
    """
    if not isinstance(row_parameters.of_graph(), TableParameters):
        found = registry.current_registry()
        row_parameters.set_for_graph(TableParameters(found, TableSettings(found.default_rule)))
    return registry.current_registry()
