"""Copies one model's weights and optimizer variables to another; --variable_partitioner may have cut those of either.

    hidden/kernel/part_0 [400, 256], hidden/kernel/part_1 [384, 256]  <-->  hidden/kernel [784, 256]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tf_keras

from ps_train.errors import CheckpointError

_PART = re.compile(r"(.*)/part_(\d+)(?::0)?")  # as ShardedVariable's creator names them (sharded_variable.py)
_MOST_SHOWN = 8


def fill(made: tf_keras.Model, source: tf_keras.Model, what: str) -> None:
    """Copies the weights and the optimizer's variables of `source` to `made`.

    Raises:
      CheckpointError: they have different shapes; the text names the source as `what`.
    """
    for kind, mine, theirs in (("weights", made.weights, source.weights),
                               ("optimizer", made.optimizer.variables, source.optimizer.variables)):
        targets, values = _join_parts(mine), _join_parts(theirs)
        differing = _differences(targets, values)
        if differing:
            more = f" and {len(differing) - _MOST_SHOWN} more" if len(differing) > _MOST_SHOWN else ""
            raise CheckpointError(f"{what} is of another model: {kind}: "
                                  f"{'; '.join(differing[:_MOST_SHOWN])}{more}; give another --train_dir, or the "
                                  "--model, --params and --hidden_units that it was trained with")
        for target, value in zip(targets, values):
            target.assign(value.numpy())


class _WholeVariable(NamedTuple):
    """A variable with all of its parts, which follow each other along its first dimension."""

    name: str
    parts: list[Any]

    @property
    def shape(self) -> list[int]:
        first = self.parts[0].shape.as_list()
        return first if len(self.parts) == 1 else [sum(part.shape[0] for part in self.parts), *first[1:]]

    def numpy(self) -> np.ndarray:
        values = [part.numpy() for part in self.parts]
        return values[0] if len(values) == 1 else np.concatenate(values)

    def assign(self, value: np.ndarray) -> None:
        if len(self.parts) == 1:  # it may be a scalar
            self.parts[0].assign(value)
            return
        ends = np.cumsum([part.shape[0] for part in self.parts])
        for part, rows in zip(self.parts, np.split(value, ends[:-1])):
            part.assign(rows)


def _join_parts(variables: Iterable[Any]) -> list[_WholeVariable]:
    """Joins the parts of each variable: Keras lists those of a weight one by one, those of an optimizer as one."""
    found: list[_WholeVariable] = []
    for variable in variables:
        parts = list(getattr(variable, "variables", [variable]))
        match = _PART.fullmatch(parts[0].name)
        if match and int(match[2]) and found:
            found[-1].parts.extend(parts)
        else:
            found.append(_WholeVariable(match[1] if match else parts[0].name, parts))
    return found


def _differences(mine: list[_WholeVariable], theirs: list[_WholeVariable]) -> list[str]:
    if len(mine) != len(theirs):
        return [f"{len(theirs)} variables instead of {len(mine)}"]
    return [f"{variable.name} has shape {value.shape} instead of {variable.shape}"
            for variable, value in zip(mine, theirs) if variable.shape != value.shape]
