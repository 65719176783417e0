"""What a model says about a table, as a value."""

from __future__ import annotations

import dataclasses
from typing import Optional

from ps_train.parts.tables.rules import RowRule

# Keys that a hash table on the ps reserves: no id may have them.
EMPTY_KEY, DELETED_KEY = -2**63, -2**63 + 1
MAX_ROWS_PER_PS = 2**31 - 1  # TensorFlow's `Empty` takes a shape of int32


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """What a model says about a table.

    Attributes:
      name: unique in the model; part of the names in a checkpoint.
      dim: floats in the value of a row.
      num_rows: of a fixed table; None for a dynamic one.
      rule: how rows are updated; None for --embedding_optimizer.
      initial_limit: first values are uniform in [-initial_limit, initial_limit).
      num_hashes: how many rows of a fixed table an id is hashed to; its value is their sum. 0: an id is a row number.
      min_count: the update with an id, counted from 1, in which a dynamic table makes its row.
      ttl_steps: updates of the table without the id after which a dynamic table drops its row; None keeps all.
      max_rows: rows of a dynamic table on all ps together; None for as many as 4 GB on each ps hold.
      expected_rows: rows for which the index of a dynamic table has room from the start, on all ps together; None for
        the least, from which it grows.
    """

    name: str
    dim: int
    num_rows: Optional[int] = None
    rule: Optional[RowRule] = None
    initial_limit: float = 0.01
    num_hashes: int = 0
    min_count: int = 1
    ttl_steps: Optional[int] = None
    max_rows: Optional[int] = None
    expected_rows: Optional[int] = None

    @property
    def is_dynamic(self) -> bool:
        """Whether rows are made as ids come."""
        return self.num_rows is None

    def rows_on_each(self, num_ps: int) -> Optional[int]:
        """Returns the rows that each ps must have room for; None for a dynamic table without max_rows."""
        limit = self.max_rows if self.is_dynamic else self.num_rows
        return None if limit is None else -(-limit // num_ps)
