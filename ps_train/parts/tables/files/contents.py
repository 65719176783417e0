"""What a checkpoint says about its tables: a text in the checkpoint, beside the rows.

    ps_train/tables                          the text, JSON
    items/ps_0_of_2/000012/ids               int64 [n]                    the rows of a piece
    items/ps_0_of_2/000012/marks             int32 [n]
    items/ps_0_of_2/000012/values            float32 [n, dim]
    items/ps_0_of_2/000012/slots             float32 [n, number of slots]
    items/ps_0_of_2/seen                     uint16 [2^22]                how often ids without a row came, by hash
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.tables.rows import dealing
from ps_train.parts.tables.rules import FROZEN
from ps_train.parts.tables.spec import TableSpec

KEY = "ps_train/tables"
PARTS = ("ids", "marks", "values", "slots")


@dataclasses.dataclass(frozen=True)
class SavedTable:
    """A table as it is in a checkpoint.

    Attributes:
      dim, num_slots: floats of a row.
      num_rows: of a fixed table, None for a dynamic one.
      rule: the name of its rule.
      updates: the updates that it has had.
      pieces: for each ps that it was on, the names of its pieces.
      later: likewise, the pieces of rows that were touched after they were saved first, in the order in which they were
        written; of an id, the last row holds.
      seen: likewise, the name of its counts of ids without a row; none if all ids are admitted at once.
      dealt: which ps had which ids, see `dealing`; those of before this was noted had `id % num_ps`.
    """

    dim: int
    num_slots: int
    num_rows: Optional[int]
    rule: str
    updates: int
    pieces: list[list[str]]
    later: list[list[str]] = dataclasses.field(default_factory=list)
    seen: list[str] = dataclasses.field(default_factory=list)
    dealt: str = dealing.MODULO

    def newest_first(self, ps: int) -> list[str]:
        """Returns the pieces of one ps, in the order in which the first row of an id is the one that holds."""
        return [*(self.later[ps][::-1] if self.later else []), *self.pieces[ps]]

    @property
    def has_repeated(self) -> bool:
        """Whether an id may have several rows."""
        return any(self.later)

    def problem(self, spec: TableSpec) -> str | None:
        """Returns why these rows do not fit a model's table, or None."""
        rule = spec.rule.name if spec.rule.name != FROZEN else self.rule  # an evaluation needs the values only
        for what, saved, own in (("dim", self.dim, spec.dim), ("num_rows", self.num_rows, spec.num_rows),
                                 ("optimizer", self.rule, rule)):
            if saved != own:
                return f"table {spec.name} has {what} {saved} there, and {own} in the model"
        return None


def describe_table(
    spec: TableSpec, *, updates: int, pieces: list[list[str]], later: list[list[str]], seen: list[str]
) -> SavedTable:
    """Returns what a checkpoint says about a table."""
    return SavedTable(dim=spec.dim, num_slots=spec.rule.num_slots(spec.dim), num_rows=spec.num_rows,
                      rule=spec.rule.name, updates=updates, pieces=pieces, later=later, seen=seen,
                      dealt=dealing.MIXED)


def to_text(tables: Mapping[str, SavedTable]) -> str:
    """Returns the text of a checkpoint."""
    return json.dumps({"tables": {name: dataclasses.asdict(saved) for name, saved in tables.items()}})


def read_text(path: str) -> dict[str, Any]:
    """Returns what a checkpoint says about its tables, as a dict with the key "tables"; none if it has no text.

    Raises:
      CheckpointError: it cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        text = reader.get_tensor(KEY) if reader.has_tensor(KEY) else b'{"tables": {}}'
        return json.loads(text)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise CheckpointError(f"checkpoint {path}: cannot read the description of its tables: {error}") from None


def read_tables(path: str) -> dict[str, SavedTable]:
    """Returns name -> table of a checkpoint.

    Raises:
      CheckpointError: it cannot be read.
    """
    return {name: SavedTable(**saved) for name, saved in read_text(path)["tables"].items()}


def most_rows(path: str) -> dict[str, int]:
    """Returns name -> how many rows each table in a checkpoint has at most: exactly so many if no id is repeated.

    Raises:
      CheckpointError: it cannot be read.
    """
    saved = read_tables(path)
    try:
        shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise CheckpointError(f"checkpoint {path}: cannot read the shapes of its tables: {error}") from None
    return {name: sum(shapes[f"{piece}/ids"][0] for ps in range(len(table.pieces)) for piece in table.newest_first(ps))
            for name, table in saved.items()}


def check_tables_fit(path: str, specs: Mapping[str, TableSpec]) -> None:
    """Compares the tables of a model with those in a checkpoint.

    Raises:
      CheckpointError: a table is missing there, or has another shape or rule; the error says which.
    """
    saved = read_tables(path) if specs else {}
    problems = [f"table {name} is missing" if name not in saved else saved[name].problem(spec)
                for name, spec in specs.items()]
    found = [problem for problem in problems if problem]
    if found:
        raise CheckpointError(f"checkpoint {path} is of another model: {'; '.join(found)}; give another --train_dir, "
                              "or the --model, --params and --embedding_optimizer that it was trained with")
