"""Rows that TF1 spread over the parts of a variable by the partition strategy "mod".

    ids 0 to 9 in 3 parts    by "div"   0 1 2 3 | 4 5 6 | 7 8 9    row i of the whole variable is that of the id i
                             by "mod"   0 3 6 9 | 1 4 7 | 2 5 8    it is not

A checkpoint says how many rows each part has, and not how they were looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# An entry of `debug_string()`: "\0NAME\0", the place of the part as bytes, its dtype and its shape.
_PART = re.compile(rb"^\x00([^\x00]+)\x00.+? \(DT_\w+\) \[(\d+(?:,\d+)*)\]$", re.MULTILINE | re.DOTALL)


def rows_of_parts(reader: Any) -> dict[str, list[int]]:
    """Returns name -> the number of rows of each part, for each variable that is cut into parts of whole rows.

    Args:
      reader: of a checkpoint, by `tf.train.load_checkpoint`.
    """
    shapes: dict[str, list[list[int]]] = {}
    for name, shape in _PART.findall(reader.debug_string()):
        shapes.setdefault(name.decode(), []).append([int(size) for size in shape.split(b",")])
    whole = reader.get_variable_to_shape_map()
    rows = {name: [part[0] for part in parts] for name, parts in shapes.items()}
    return {name: sizes for name, sizes in rows.items() if len(sizes) > 1 and sum(sizes) == whole[name][0]}


def ids_by_modulo(rows: Sequence[int]) -> np.ndarray | None:
    """Returns the id int64 [n] of each row of the whole variable; None if "mod" does not make parts of these sizes."""
    size, extras = divmod(sum(rows), len(rows))
    if list(rows) != [size + (part < extras) for part in range(len(rows))]:
        return None
    return np.concatenate([np.arange(part, sum(rows), len(rows)) for part in range(len(rows))])
