"""A reader that follows a folder of pushes without a SavedModel: what it has is compared with the training."""

from __future__ import annotations

import os

from ps_train.parts.live import pushes


class PushReader:
    """Follows a folder as a server does: it loads a model only if it cannot go on with what it has.

    Attributes:
      tables: name of a table -> id -> row, a list of floats.
      dense: the bytes of all dense variables.
      step: the global step of the last push.
      num_loads: how often it has loaded a model.
    """

    def __init__(self, folder):
        """Has read nothing yet."""
        self.folder, self.training, self.number, self.num_loads = str(folder), "", -1, 0
        self.tables, self.dense, self.step = {}, b"", -1

    def follow(self):
        """Reads what is new; raises OSError if files were removed meanwhile, after which it can be called again."""
        current = pushes.read_current(self.folder)
        paths = [pushes.push_path(self.folder, number) for number in range(self.number + 1, current.last + 1)]
        if self.training != current.training or not all(map(os.path.exists, paths)):
            self.load(current)
        while self.number < current.last:
            self._take(pushes.push_path(self.folder, self.number + 1), previous=self.number)
        return self

    def load(self, current):
        """Takes the model that `CURRENT` names; returns itself."""
        self.tables, self.num_loads = {}, self.num_loads + 1
        path = os.path.join(self.folder, current.model, "assets.extra")
        self._take(pushes.push_path(path, current.model_number), previous=0)
        self.training = current.training
        return self

    def _take(self, path, previous):
        begin, records = pushes.read_push(path)
        records = list(records)  # all or nothing
        assert begin.previous == previous
        for record in records:
            if isinstance(record, bytes):
                self.dense = record
                continue
            table = self.tables.setdefault(record.table, {})
            table.update(zip(record.ids.tolist(), record.rows.tolist()))
            for key in record.dropped.tolist():
                del table[key]
        self.number, self.step = begin.number, begin.step
