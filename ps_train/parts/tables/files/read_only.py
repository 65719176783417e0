"""Tables that a process only reads from checkpoints, as an evaluation does."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.tables.files import contents
from ps_train.parts.tables.files.table_files import TableFiles
from ps_train.parts.tables.spec import MAX_ROWS_PER_PS


class ReadOnlyTables(TableFiles):
    """Tables whose rule is `Frozen`: they have room for the rows of a checkpoint, on however many ps it was trained."""

    def restore(self, session: tf.Session, path: str, delta: str | None = None) -> None:
        """Empties all tables, then reads their rows from a checkpoint; what is only read has no delta.

        Raises:
          CheckpointError: the checkpoint cannot be read, or has more rows of a table than one process can hold.
        """
        num_rows = contents.most_rows(path) if self.specs else {}
        for name, stores in self.stores.items():
            if num_rows[name] > MAX_ROWS_PER_PS:
                raise CheckpointError(f"table {name}: {path} has {num_rows[name]} rows; allowed: at most "
                                      f"{MAX_ROWS_PER_PS} in one process; evaluate with --evaluate_with=workers, or "
                                      "train with a smaller max_rows")
            for store in stores:
                store.num_saved = num_rows[name]
        super().restore(session, path, delta)
