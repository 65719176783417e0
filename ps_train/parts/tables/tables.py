"""Embedding tables for a model_fn: `ps_train.embedding_table`.

    def model_fn(features, labels, mode, params):
        items = ps_train.embedding_table("items", dim=16)          # any int64 or string id; rows are made as they come
        users = ps_train.embedding_table("users", dim=16, num_rows=1_000_000)      # ids 0 to 999,999
        rows = items.lookup(features["items"])                     # [batch, ...] --> float32 [batch, ..., 16]
        bags = users.lookup_sparse(features["friends"], combiner="mean")           # SparseTensor --> [batch, 16]

A lookup only records a request. When the model is complete, `connection.py` serves all lookups with one transfer each
way per ps.
"""

from __future__ import annotations

import dataclasses
import numbers
import re
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables import id_check, parameters, registry
from ps_train.parts.tables.rules import RULES, RowRule, make_rule
from ps_train.parts.tables.spec import TableSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-/]*")
_COMBINERS = ("sum", "mean", "sqrtn")
_OPTIONAL = ("num_rows", "ttl_steps", "max_rows", "expected_rows")
_MAX_HASH = 2**63 - 1
_SPARSE = (tf.SparseTensor, tf.SparseTensorValue)
_RAGGED = (tf.RaggedTensor, tf.ragged.RaggedTensorValue)


class Table:
    """A table of one model, in one graph.

    Attributes:
      spec: what the model says about it.
    """

    def __init__(self, spec: TableSpec, found: registry.Registry) -> None:
        self.spec = spec
        self._registry = found

    def lookup(self, ids: Any, name: str = "") -> Any:
        """Returns the value of each id, float32 [..., dim]; of a RaggedTensor, a RaggedTensor.

        Args:
          ids: integers or strings [...]. A fixed table without `num_hashes` takes row numbers only. A dynamic table
            takes every int64 but the two smallest.
          name: of the feature, for messages; by default its key in `features`.

        Raises:
          UserCodeError: the ids have another type, or the lookup is in a tf.cond, a loop or a function.
        """
        if isinstance(ids, _RAGGED):
            ids = _as_ragged(ids)
            return ids.with_flat_values(self.lookup(ids.flat_values, name))
        if isinstance(ids, _SPARSE):
            raise UserCodeError(f"table {self.spec.name}: lookup got a SparseTensor; give it to table.lookup_sparse, "
                                "which combines the rows of each example")
        ids = tf.convert_to_tensor(ids)
        name = name or self._registry.feature_of(ids)
        numbers = self._numbers(ids, name)
        if self.spec.num_hashes:
            hashed = tf.stack([self._hashed(numbers, number) for number in range(self.spec.num_hashes)], -1)
            return tf.reduce_sum(self._registry.request(self.spec, hashed, name), -2)
        return self._registry.request(self.spec, numbers, name)

    def lookup_sparse(
        self, sp_ids: tf.SparseTensor | tf.RaggedTensor, sp_weights: tf.SparseTensor | tf.RaggedTensor | None = None,
        combiner: str = "mean", name: str = "",
    ) -> tf.Tensor:
        """Returns the combined values of each row's ids, float32 [batch, dim]; zeros where a row has none.

        Args:
          sp_ids: integers or strings [batch, ...], as in `tf.nn.embedding_lookup_sparse`.
          sp_weights: a float weight for each id, with the same indices; None weighs each id by 1.
          combiner: "sum", "mean", or "sqrtn": the sum divided by the root of the sum of squared weights.
          name: of the feature, for messages; by default its key in `features`.

        Raises:
          UserCodeError: there is no such combiner, or there are more or fewer weights than ids; or as `lookup` does.
        """
        if combiner not in _COMBINERS:
            raise UserCodeError(f"table {self.spec.name}: got the combiner {combiner!r}; allowed: "
                                f"{', '.join(_COMBINERS)}")
        sp_ids = self._as_sparse(sp_ids, "ids")
        name = name or self._registry.feature_of(sp_ids.values)
        examples = sp_ids.indices[:, 0]
        values = self.lookup(sp_ids.values, name)
        count = sp_ids.dense_shape[0]
        weights = tf.ones_like(values[:, 0]) if sp_weights is None else id_check.check_weights(
            sp_ids, self._as_sparse(sp_weights, "weights"), self.spec.name, name)
        summed = tf.math.unsorted_segment_sum(values * weights[:, tf.newaxis], examples, count)
        if combiner != "sum":
            squared = weights if combiner == "mean" else tf.square(weights)
            total = tf.math.unsorted_segment_sum(squared, examples, count)
            total = total if combiner == "mean" else tf.sqrt(total)
            summed = tf.math.divide_no_nan(summed, total[:, tf.newaxis])
        batch_size = tf.get_static_value(count)
        summed.set_shape([None if batch_size is None else int(batch_size), self.spec.dim])
        return summed

    def _as_sparse(self, given: Any, what: str) -> tf.SparseTensor:
        if isinstance(given, _RAGGED):
            return _as_ragged(given).to_sparse()
        if isinstance(given, _SPARSE):
            return tf.SparseTensor.from_value(given)
        advice = "; look dense ids up with table.lookup" if what == "ids" else ""
        kind = "Tensor" if tf.is_tensor(given) else type(given).__name__
        raise UserCodeError(f"table {self.spec.name}: lookup_sparse got {what} of type {kind}; allowed: a SparseTensor "
                            f"or a RaggedTensor{advice}")

    def _numbers(self, ids: tf.Tensor, name: str) -> tf.Tensor:
        """Returns ids as int64: strings as 63-bit hashes."""
        if ids.dtype == tf.string:
            if not self.spec.is_dynamic and not self.spec.num_hashes:
                raise UserCodeError(f"table {self.spec.name}: {name} has strings, and a table with num_rows takes row "
                                    "numbers; give num_hashes=1, or leave num_rows out")
            return tf.strings.to_hash_bucket_fast(ids, _MAX_HASH)
        if not ids.dtype.is_integer:
            raise UserCodeError(f"table {self.spec.name}: {name} has {ids.dtype.name}; ids are integers or strings")
        return tf.cast(ids, tf.int64)

    def _hashed(self, numbers: tf.Tensor, number: int) -> tf.Tensor:
        # Strings cost more than a product, but their hash is a published one that every version of TensorFlow has.
        return tf.strings.to_hash_bucket_strong(tf.as_string(numbers), self.spec.num_rows, [number, 0x5eed])


def _as_ragged(given: Any) -> tf.RaggedTensor:
    if isinstance(given, tf.RaggedTensor):
        return given
    return tf.RaggedTensor.from_nested_row_splits(given.flat_values, given.nested_row_splits)


def _refuse_conversion(table: Table, *_: Any, **__: Any) -> Any:
    """Is called where TensorFlow needs a tensor and has got a table."""
    raise UserCodeError(f"table {table.spec.name}: an embedding_table is no tensor, because its rows are on the ps; "
                        "call table.lookup(ids) in place of tf.nn.embedding_lookup and tf.gather, and "
                        "table.lookup_sparse(sp_ids) in place of tf.nn.embedding_lookup_sparse")


tf.register_tensor_conversion_function(Table, _refuse_conversion)


def embedding_table(
    name: str, dim: int, num_rows: Optional[int] = None, *, optimizer: str | RowRule | None = None,
    learning_rate: Optional[float] = None, initial_limit: float = 0.01, num_hashes: int = 0, min_count: int = 1,
    ttl_steps: Optional[int] = None, max_rows: Optional[int] = None, expected_rows: Optional[int] = None,
) -> Table:
    """Returns a table of the model that is being built, with its rows spread over all ps.

    In a dynamic table any int64 or string is an id, and a row is made at the first update of its id.

    Args:
      name: unique in the model. To share a table between features, look both up in the same one.
      dim: floats in the value of a row.
      num_rows: rows of a *fixed* table, whose ids are row numbers; None for a *dynamic* table (`TableSpec`).
      optimizer: "sgd", "momentum", "adagrad", "rowwise_adagrad", "ftrl", "adam", or a rule of
        `ps_train.parts.tables.rules`; None for --embedding_optimizer.
      learning_rate: of the rule; None for --embedding_learning_rate.
      initial_limit: first values are uniform in [-initial_limit, initial_limit).
      num_hashes: fixed tables only: hash each id, which may be a string, to this many rows, and take their sum.
      min_count: dynamic tables only: an id gets a row in the `min_count`-th update that has it.
      ttl_steps: dynamic tables only: drop a row after this many updates of the table that did not touch it.
      max_rows: dynamic tables only: rows on all ps together. A table that is nearly full drops its least recently
        updated rows. None for as many as fit into 4 GB on each ps; memory is used only as rows are made.
      expected_rows: dynamic tables only: make the index for so many rows on all ps; None lets it grow, in which updates
        of the table wait.

    Raises:
      UserCodeError: an argument is wrong, or the model has another table of this name.
    """
    rule = make_rule(optimizer) if isinstance(optimizer, str) and optimizer in RULES else optimizer
    counts = {"dim": dim, "num_rows": num_rows, "min_count": min_count, "ttl_steps": ttl_steps, "max_rows": max_rows,
              "expected_rows": expected_rows, "num_hashes": num_hashes}
    if problem := (_problem_of_numbers(counts, learning_rate=learning_rate, initial_limit=initial_limit)
                   or _problem(name, rule, **counts)):
        raise UserCodeError(f"embedding_table {name!r}: {problem}")
    found = parameters.tables_of_graph()
    if learning_rate is not None:
        rule = dataclasses.replace(rule or found.default_rule, learning_rate=float(learning_rate))
    own = {what: None if value is None else int(value) for what, value in counts.items()}  # no numbers of numpy
    found.add(spec := TableSpec(name=name, rule=rule, initial_limit=float(initial_limit), **own))
    return Table(spec, found)


def _problem_of_numbers(counts: dict[str, Any], *, learning_rate: Any, initial_limit: Any) -> str | None:
    """Returns which number is wrong, or None."""
    for what, value in counts.items():
        least = 0 if what == "num_hashes" else 1
        is_left_out = value is None and what in _OPTIONAL
        if not is_left_out and not (isinstance(value, numbers.Integral) and value >= least):
            return f"got {what}={value!r}; allowed: whole numbers {'above 0' if least else 'from 0'}"
    if learning_rate is not None and not (isinstance(learning_rate, numbers.Real) and learning_rate > 0):
        return f"got learning_rate={learning_rate!r}; allowed: numbers above 0"
    if not (isinstance(initial_limit, numbers.Real) and initial_limit >= 0):
        return f"got initial_limit={initial_limit!r}; allowed: numbers from 0"
    return None


def _problem(
    name: Any, rule: Any, *, dim: int, num_rows: Optional[int], num_hashes: int, min_count: int,
    ttl_steps: Optional[int], max_rows: Optional[int], expected_rows: Optional[int],
) -> str | None:
    """Returns what is wrong with the other arguments of `embedding_table`, or None."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        return "the name must consist of letters, digits and _.-/"
    del dim  # a number like any other
    if rule is not None and not isinstance(rule, RowRule):
        return f"got optimizer={rule!r}; allowed: {', '.join(RULES)}, or a rule of ps_train.parts.tables.rules"
    if num_rows is None and num_hashes:
        return "num_hashes is for tables with num_rows; a dynamic table needs no hashing"
    dynamic = {"min_count": min_count > 1, "ttl_steps": ttl_steps is not None, "max_rows": max_rows is not None,
               "expected_rows": expected_rows is not None}
    given = [what for what, is_given in dynamic.items() if is_given]
    if num_rows is not None and given:
        return f"only dynamic tables have {', '.join(given)}, and num_rows makes a fixed table; leave one of them out"
    return None
