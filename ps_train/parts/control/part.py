"""The part of the chief in `ps_train status`, `save`, `stop` and `report`: it describes the training, and answers."""

from __future__ import annotations

import contextlib
from typing import Any

from ps_train.part import Part
from ps_train.parts.control import chief_service, description, diary
from ps_train.storage import run_record
from ps_train.storage.journal import Journal


class ControlPart(Part):
    """What the chief does for clients; nothing in another worker."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Has no settings."""
        self._cluster = cluster
        self._run: dict[str, Any] = {}
        self._journal = Journal("")

    def prepare(self, task: Any) -> None:
        """Writes where the training runs to cluster.json and to the journal."""
        if not self._cluster.is_chief:
            return
        self._journal = task.journal
        self._run = description.describe_run(task.settings, self._cluster)
        run_record.write_run(task.settings.train_dir, self._run)
        self._journal.note("start", run=self._run,
                           placed=description.describe_placement(task.graph, len(self._cluster.ps)))

    def at_server(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context in which the chief answers `ps_train status` and `ps_train save`."""
        if not self._cluster.is_chief:
            return contextlib.nullcontext()
        return chief_service.answering_clients(
            self._cluster, connected.target, self._run, connected.supervised.request_save,
            lambda: connected.progress.step, connected.supervised.table_shares)

    def training(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context in which the chief notes in the journal which workers come and go, and how far they are."""
        if not self._cluster.is_chief:
            return contextlib.nullcontext()
        return diary.keeping_diary(self._journal, connected.board, self._cluster, lambda: connected.progress.step)
