"""The part of embedding tables in a worker: how they are trained, what drops old rows, and how they are used."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import ClusterLostError
from ps_train.part import Part
from ps_train.parts.tables import parameters
from ps_train.parts.tables.files import upkeep
from ps_train.parts.tables.files.upkeep import TableUpkeep
from ps_train.parts.tables.parameters import TableParameters, TableSettings
from ps_train.parts.tables.rules import RowRule, make_rule
from ps_train.runtime import waits
from ps_train.storage.merging_saver import SavedPart

_log = logging.getLogger(__name__)


class TablesPart(Part):
    """The tables of the training graph of one worker."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the rule and the other settings from the flags."""
        self._cluster, self._save_timeout_secs = cluster, config.save_timeout_secs
        self._settings = TableSettings(
            rule=table_rule(config), is_exact=config.exact_embedding_updates,
            sums_gradients=config.sum_embedding_gradients, delta_secs=config.save_delta_secs)
        self._tables: TableParameters | None = None
        self._upkeep = TableUpkeep()

    def begin_graph(self) -> None:
        """Gives the graph a registry of tables."""
        self._tables = parameters.install_tables([ps.device + "/cpu:0" for ps in self._cluster.ps], self._settings)

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
        with self._upkeep.running(session, self._tables.files):
            yield
        try:
            waits.bounded(lambda: upkeep.log_use(session, self._tables.files), self._save_timeout_secs,
                          "the counts of the tables")
        except (tf.errors.OpError, RuntimeError, ClusterLostError) as error:  # all that matters is saved
            _log.warning("cannot say how the tables were used: %s", error)

    def status(self) -> Mapping[str, Any]:
        """Returns the rows of each table on each ps; see `upkeep.shares_of`."""
        return {"tables": self._upkeep.shares}


def table_rule(config: Any) -> RowRule:
    """Returns the rule of embedding tables that have none of their own; it has the constants of --optimizer."""
    name = config.embedding_optimizer or ("adagrad" if config.optimizer == "rmsprop" else config.optimizer)
    rule = make_rule(name)
    if name == config.optimizer:
        known = {field.name for field in dataclasses.fields(rule)}
        rule = dataclasses.replace(
            rule, **{option: value for option, value in config.optimizer_options.items() if option in known})
    return rule.with_defaults(config.embedding_learning_rate or config.learning_rate)
