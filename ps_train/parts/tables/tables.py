"""Embedding tables for a model_fn: `ps_train.embedding_table`, and `get_embedding_variable` with DeepRec's arguments.

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
import math
import numbers
import re
from typing import Any, NoReturn, Optional

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables import connection, part
from ps_train.parts.tables.hashing import CONSTANT, TRUNCATED_NORMAL, UNIFORM, Initial
from ps_train.parts.tables.registry import Registry
from ps_train.parts.tables.rules import BFLOAT16, FLOAT32, RULES, Adagrad, RowRule, TableSpec

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

    def __init__(self, spec: TableSpec, registry: Registry) -> None:
        self.spec = spec
        self._registry = registry

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
            raise UserCodeError("bad_id_type", f"table {self.spec.name}: lookup got a SparseTensor; give it to "
                                "table.lookup_sparse, which combines the rows of each example")
        ids = tf.convert_to_tensor(ids)
        name = name or self._registry.feature_of(ids)
        row_ids = self._as_int64(ids, name)
        if self.spec.num_hashes:
            hashed = tf.stack([self._hashed(row_ids, number) for number in range(self.spec.num_hashes)], -1)
            return tf.reduce_sum(self._registry.request(self.spec, hashed, name), -2)
        return self._registry.request(self.spec, row_ids, name)

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
          UserCodeError: the combiner is unknown, or there are more or fewer weights than ids; or as `lookup` does.
        """
        if combiner not in _COMBINERS:
            raise UserCodeError("unknown_combiner", f"table {self.spec.name}: got the combiner {combiner!r}; allowed: "
                                f"{', '.join(_COMBINERS)}")
        sp_ids = self._as_sparse(sp_ids, "ids")
        name = name or self._registry.feature_of(sp_ids.values)
        examples = sp_ids.indices[:, 0]
        values = self._rows_to_combine(sp_ids.values, name)
        count = sp_ids.dense_shape[0]
        weights = tf.ones_like(values[:, 0]) if sp_weights is None else connection.check_weights(
            sp_ids, self._as_sparse(sp_weights, "weights"), self.spec.name, name)
        combined = tf.math.unsorted_segment_sum(values * weights[:, tf.newaxis], examples, count)
        if combiner != "sum":
            total = tf.math.unsorted_segment_sum(
                weights if combiner == "mean" else tf.square(weights), examples, count)
            total = total if combiner == "mean" else tf.sqrt(total)
            combined = tf.math.divide_no_nan(combined, total[:, tf.newaxis])
        batch_size = tf.get_static_value(count)
        combined.set_shape([None if batch_size is None else int(batch_size), self.spec.dim])
        return combined

    def _rows_to_combine(self, ids: tf.Tensor, name: str) -> tf.Tensor:
        """Returns the row of each id [n] of a sparse lookup, float32 [n, dim]."""
        return self.lookup(ids, name)

    def _as_sparse(self, sparse: Any, argument: str) -> tf.SparseTensor:
        if isinstance(sparse, _RAGGED):
            return _as_ragged(sparse).to_sparse()
        if isinstance(sparse, _SPARSE):
            return tf.SparseTensor.from_value(sparse)
        advice = "; look dense ids up with table.lookup" if argument == "ids" else ""
        kind = "Tensor" if tf.is_tensor(sparse) else type(sparse).__name__
        raise UserCodeError("bad_sparse_type", f"table {self.spec.name}: lookup_sparse got {argument} of type {kind}; "
                            f"allowed: a SparseTensor or a RaggedTensor{advice}")

    def _as_int64(self, ids: tf.Tensor, name: str) -> tf.Tensor:
        """Returns ids as int64: strings as 63-bit hashes."""
        if ids.dtype == tf.string:
            if not self.spec.is_dynamic and not self.spec.num_hashes:
                raise UserCodeError("bad_id_type", f"table {self.spec.name}: {name} has strings, and a table with "
                                    "num_rows takes row numbers; give num_hashes=1, or leave num_rows out")
            return hash_of_strings(ids)
        if not ids.dtype.is_integer:
            raise UserCodeError("bad_id_type", f"table {self.spec.name}: {name} has {ids.dtype.name}; ids are integers "
                                "or strings")
        return tf.cast(ids, tf.int64)

    def _hashed(self, ids: tf.Tensor, number: int) -> tf.Tensor:
        # Strings cost more than a product, but their hash is a published one that every version of TensorFlow has.
        return tf.strings.to_hash_bucket_strong(tf.as_string(ids), self.spec.num_rows, [number, 0x5eed])


def hash_of_strings(ids: tf.Tensor) -> tf.Tensor:
    """Returns the ids of rows for strings [...], int64 from 0 to 2^63 - 2."""
    return tf.strings.to_hash_bucket_fast(ids, _MAX_HASH)


def _as_ragged(ragged: Any) -> tf.RaggedTensor:
    if isinstance(ragged, tf.RaggedTensor):
        return ragged
    return tf.RaggedTensor.from_nested_row_splits(ragged.flat_values, ragged.nested_row_splits)


def _refuse_conversion(table: Table, *_: Any, **__: Any) -> NoReturn:
    """Is called where TensorFlow needs a tensor and has got a table."""
    raise UserCodeError("table_is_no_tensor", (
        f"table {table.spec.name}: an embedding_table is no tensor, because its rows are on the ps; call "
        "table.lookup(ids) instead of tf.nn.embedding_lookup and tf.gather, and table.lookup_sparse(sp_ids) instead of "
        "tf.nn.embedding_lookup_sparse"))


tf.register_tensor_conversion_function(Table, _refuse_conversion)


def embedding_table(
    name: str, dim: int, num_rows: Optional[int] = None, *, optimizer: str | RowRule | None = None,
    learning_rate: Optional[float] = None, initial_limit: Optional[float] = None, initializer: Any = None,
    l2: float = 0.0, num_hashes: int = 0, min_count: int = 1, ttl_steps: Optional[int] = None,
    ttl_secs: Optional[float] = None, max_rows: Optional[int] = None, expected_rows: Optional[int] = None,
    dtype: Any = tf.float32, history: bool = False,
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
      initial_limit: first values are uniform in [-initial_limit, initial_limit); None for 0.01.
      initializer: another distribution of first values: random_uniform, zeros, ones, constant with one number or
        truncated_normal, of TensorFlow or Keras. Its seed has no effect.
      l2: strength of an L2 penalty: each update adds l2 times the value to the gradient of the rows that it touches.
      num_hashes: fixed tables only: hash each id, which may be a string, to this many rows, and take their sum.
      min_count: dynamic tables only: an id gets a row in the `min_count`-th update that has it.
      ttl_steps: dynamic tables only: drop a row after this many updates of the table that did not touch it.
      ttl_secs: dynamic tables only: drop a row that no update has touched in this many seconds of training.
      max_rows: dynamic tables only: rows on all ps together. A table that is nearly full drops its least recently
        updated rows. None for as many as fit into 4 GB on each ps, 1/32 of which is taken at once.
      expected_rows: dynamic tables only: room in the index, on all ps; None lets it grow, and updates wait meanwhile.
      dtype: of values on the ps, tf.float32 or tf.bfloat16, to which updates round at random. Slots are float32.
      history: keep when a row was updated first, and how often, for `ps_train rows`: 8 bytes more in each row.

    Raises:
      UserCodeError: an argument is wrong, or the model has another table of this name.
    """
    rule = part.tables_of_graph().rules.get(optimizer, optimizer) if isinstance(optimizer, str) else optimizer
    counts = {"dim": dim, "num_rows": num_rows, "min_count": min_count, "ttl_steps": ttl_steps, "max_rows": max_rows,
              "expected_rows": expected_rows, "num_hashes": num_hashes}
    floats = {"learning_rate": learning_rate, "initial_limit": initial_limit, "l2": l2, "ttl_secs": ttl_secs}
    return _new_table(name, rule, counts, floats, initializer, dtype, history)


def _new_table(
    name: Any, rule: Any, counts: dict[str, Any], floats: dict[str, Any], initializer: Any, dtype: Any, history: Any
) -> Table:
    """Checks the arguments of `embedding_table`, and adds the table to those of the graph."""
    initial = None if initializer is None else initial_of(initializer)
    if problem := (_problem_of_numbers(counts, **floats) or _problem(name, rule, {**counts, **floats})
                   or _problem_of_initial(initializer, initial, floats["initial_limit"]) or _problem_of_dtype(dtype)
                   or (None if isinstance(history, bool) else f"got history={history!r}; allowed: True and False")):
        raise UserCodeError("bad_table_argument", f"embedding_table {name!r}: {problem}")
    registry = part.tables_of_graph()
    own = {argument: float(value) for argument, value in floats.items() if value is not None}  # not numpy's
    if "learning_rate" in own:
        rule = dataclasses.replace(rule or registry.default_rule, learning_rate=own.pop("learning_rate"))
    own |= {argument: None if value is None else int(value) for argument, value in counts.items()}
    registry.add(spec := TableSpec(
        name=name, rule=rule, initial=initial, dtype=tf.as_dtype(dtype).name, has_history=history, **own))
    return Table(spec, registry)


def _problem_of_numbers(
    counts: dict[str, Any], *, learning_rate: Any, initial_limit: Any, l2: Any, ttl_secs: Any
) -> str | None:
    """Returns which number is wrong, or None."""
    for argument, value in counts.items():
        least = 0 if argument == "num_hashes" else 1
        is_left_out = value is None and argument in _OPTIONAL
        if not is_left_out and not (isinstance(value, numbers.Integral) and value >= least):
            return f"got {argument}={value!r}; allowed: whole numbers {'above 0' if least else 'from 0'}"
    for argument, value in (("learning_rate", learning_rate), ("ttl_secs", ttl_secs)):
        if value is not None and not (isinstance(value, numbers.Real) and value > 0):
            return f"got {argument}={value!r}; allowed: numbers above 0"
    if initial_limit is not None and not (isinstance(initial_limit, numbers.Real) and initial_limit >= 0):
        return f"got initial_limit={initial_limit!r}; allowed: numbers from 0"
    if not (isinstance(l2, numbers.Real) and 0 <= l2 < math.inf):
        return f"got l2={l2!r}; allowed: numbers from 0"
    return None


def _problem_of_initial(initializer: Any, initial: Initial | None, initial_limit: Any) -> str | None:
    """Returns what is wrong with the first values, or None."""
    if initializer is None:
        return None
    if initial_limit is not None:
        return "got initializer and initial_limit; allowed: one of them"
    kind = initializer if isinstance(initializer, type) else type(initializer)
    return None if initial else f"got an initializer of type {kind.__name__}; allowed: {_INITIALIZERS}"


def _problem_of_dtype(dtype: Any) -> str | None:
    try:
        is_allowed = tf.as_dtype(dtype).name in (FLOAT32, BFLOAT16)
    except TypeError:
        is_allowed = False
    return None if is_allowed else f"got dtype={dtype!r}; allowed: tf.float32 and tf.bfloat16"


def _problem(name: Any, rule: Any, counts: dict[str, Any]) -> str | None:
    """Returns what is wrong with the other arguments of `embedding_table`, or None."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        return "the name must consist of letters, digits and _.-/"
    if rule is not None and not isinstance(rule, RowRule):
        return f"got optimizer={rule!r}; allowed: {', '.join(RULES)}, or a rule of ps_train.parts.tables.rules"
    if rule is not None and (problem := _problem_of_rule(rule)):
        return problem
    if counts["num_rows"] is None and counts["num_hashes"]:
        return "num_hashes is for tables with num_rows; a dynamic table needs no hashing"
    defaults = {"min_count": 1, "ttl_steps": None, "ttl_secs": None, "max_rows": None, "expected_rows": None}
    dynamic = [argument for argument, default in defaults.items() if counts[argument] != default]
    if counts["num_rows"] is not None and dynamic:
        return f"only dynamic tables have {', '.join(dynamic)}, and num_rows makes a fixed table; leave one of them out"
    return None


def _problem_of_rule(rule: RowRule) -> str | None:
    """Returns which constant of a rule is wrong, or None."""
    for name, (is_allowed, allowed) in _CONSTANTS.items():
        value = getattr(rule, name, None)
        if value is not None and not (isinstance(value, numbers.Real) and is_allowed(value)):
            return f"got {type(rule).__name__} with {name}={value!r}; allowed: {allowed}"
    if isinstance(rule, Adagrad) and not rule.initial_accumulator:
        return f"got {type(rule).__name__} with initial_accumulator=0; allowed: numbers above 0"  # it would divide by 0
    return None


_ABOVE = (lambda value: 0 < value < math.inf, "numbers above 0")
_FROM = (lambda value: 0 <= value < math.inf, "numbers from 0")
_BELOW_1 = (lambda value: 0 <= value < 1, "numbers from 0 and below 1")
# Of the rules in rules.py: a constant -> whether a number is allowed, and which are.
_CONSTANTS = {"learning_rate": _ABOVE, "momentum": _FROM, "initial_accumulator": _FROM, "l1": _FROM, "l2": _FROM,
              "beta1": _BELOW_1, "beta2": _BELOW_1, "epsilon": _ABOVE}
_INITIALIZERS = ("tf.random_uniform_initializer(a, b), tf.zeros_initializer(), tf.ones_initializer(), "
                 "tf.constant_initializer(a) and tf.truncated_normal_initializer(mean, stddev)")
_OF_TABLE = ("num_rows", "optimizer", "learning_rate", "initial_limit", "l2", "ttl_secs", "expected_rows",
             "num_hashes", "history")
# They say how a variable is stored. The rows of a table are on all ps in any case.
_WITHOUT_EFFECT = ("caching_device", "partitioner", "use_resource", "validate_shape")
_COLLECTIONS = {tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES}
# Other arguments -> their allowed values, and what does the same.
_ALLOWED = {
    "constraint": ((None,), "None"),
    "custom_getter": ((None,), "None"),
    "dtype": ((None,), "None; it is called value_dtype here"),
    "ev_option": ((None,), "None; give filter_freq, steps_to_live or capacity"),
    "init_data_source": ((None,), "None; a table begins with the rows of the checkpoint in --train_dir"),
    "l2_weight_threshold": ((None, 0, -1), "None; give steps_to_live or capacity"),
    "max_rows": ((None,), "None; it is called capacity here"),
    "min_count": ((None,), "None; it is called filter_freq here"),
    "regularizer": ((None,), "None; give l2, or add a term of the rows that are looked up to the loss"),
    "steps_to_live_l2reg": ((None, 0), "None; give steps_to_live or capacity"),
    "trainable": ((None, True), "True; for rows that are not learned, use tf.stop_gradient(table.lookup(ids)), "
                  "without ftrl and l2, which change rows at a gradient of 0, too"),
    "ttl_steps": ((None,), "None; it is called steps_to_live here"),
}


def get_embedding_variable(
    name: str, embedding_dim: int, capacity: Optional[int] = None, filter_freq: int = 0,
    steps_to_live: Optional[int] = None, initializer: Any = None, **options: Any,
) -> Table:
    """Returns a dynamic table, with the argument names of DeepRec's and PAI's `get_embedding_variable`.

    Args:
      embedding_dim: as `dim` of `embedding_table`.
      capacity: as `max_rows`.
      filter_freq: as `min_count`.
      steps_to_live: as `ttl_steps`; 0 keeps all.
      initializer: as `initializer`. Its seed has no effect: the first value of an id is the same in each run.
      options: further arguments of `embedding_table`, and those of DeepRec and TensorFlow: `key_dtype` (integers or
        strings), `value_dtype` (as `dtype`), `partitioner` and others that have no effect on a table.

    Raises:
      UserCodeError: a table does not support an argument; the text says what is allowed.
    """
    def refuse(argument: str, allowed: str) -> NoReturn:
        raise UserCodeError("bad_table_argument",
                            f"get_embedding_variable {name!r}: got {argument}; allowed: {allowed}")

    of_table = {argument: options.pop(argument) for argument in _OF_TABLE if argument in options}
    for argument, value in options.items():
        if allowed := _allowed_instead(argument, value):
            refuse(f"{argument}={value!r}", allowed)
    for argument, value in (("filter_freq", filter_freq), ("steps_to_live", steps_to_live)):
        if value is not None and not (isinstance(value, numbers.Integral) and value >= 0):
            refuse(f"{argument}={value!r}", "whole numbers from 0")
    return embedding_table(name, embedding_dim, min_count=filter_freq or 1, ttl_steps=steps_to_live or None,
                           max_rows=capacity, initializer=initializer, dtype=options.get("value_dtype") or tf.float32,
                           **of_table)


_INITIAL_KINDS = ("RandomUniform", "TruncatedNormal", "Zeros", "Ones", "Constant")


def initial_of(initializer: Any) -> Initial | None:
    """Returns the first values that an initializer of TensorFlow or Keras stands for; None if a table has no such."""
    try:
        initializer = initializer() if isinstance(initializer, type) else initializer
        names = [kind.__name__ for kind in type(initializer).__mro__]  # `ps_train run` has subclasses
        kind, config = next((name for name in names if name in _INITIAL_KINDS), ""), initializer.get_config()
        if kind == "RandomUniform":
            low, high = float(config["minval"]), float(config["maxval"])
            found = Initial(UNIFORM, (low + high) / 2, (high - low) / 2)
        elif kind == "TruncatedNormal":
            found = Initial(TRUNCATED_NORMAL, float(config["mean"]), float(config["stddev"]))
        elif kind in ("Zeros", "Ones"):
            found = Initial(CONSTANT, float(kind == "Ones"))
        else:
            found = Initial(CONSTANT, float(config["value"])) if kind == "Constant" else None
    except (AttributeError, KeyError, TypeError, ValueError):  # of another kind
        return None
    return found if found and math.isfinite(found.center) and 0 <= found.spread < math.inf else None


def _allowed_instead(argument: str, value: Any) -> str | None:
    """Returns what is allowed for an argument that a table does not have, or None if this value is."""
    if argument in _WITHOUT_EFFECT:
        return None
    if argument == "collections":
        is_allowed = value is None or set(value) <= _COLLECTIONS
        return None if is_allowed else "None; a table is no variable of TensorFlow, and in no collection"
    if argument in ("key_dtype", "value_dtype"):
        return _dtype_instead(argument, value)
    if argument not in _ALLOWED:
        known = ["capacity", "filter_freq", "steps_to_live", "initializer", "key_dtype", "value_dtype", *_OF_TABLE]
        return f"the names {', '.join(known)}"
    values, allowed = _ALLOWED[argument]
    return None if any(value is known or (known is not None and value == known) for known in values) else allowed


def _dtype_instead(argument: str, value: Any) -> str | None:
    try:
        dtype = None if value is None else tf.as_dtype(value)
    except TypeError:
        dtype = tf.variant
    if argument == "key_dtype":
        return None if dtype is None or dtype.is_integer or dtype == tf.string else "integers, or tf.string"
    return None if dtype in (None, tf.float32, tf.bfloat16) else "tf.float32 and tf.bfloat16"
