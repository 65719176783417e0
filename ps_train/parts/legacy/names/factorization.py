"""`tf.contrib.factorization.WALSModel`: weighted alternating least squares, with the factors on parameter servers.

    A [rows, columns], sparse, is about U V^T; each sweep solves U for the V of the sweep before, or V for U.
    An entry that A has weighs unobserved_weight + row weight * column weight; another one unobserved_weight.

    prep_gramian      V^T V, once in a sweep
    initialize_..._op copies V, its weights and V^T V to local variables
    update_..._op     solves some of the rows of U, and writes them to their shards

A replica_device_setter puts local variables on the ps, too, as in TensorFlow 1: then all workers share one copy, which
the local_variables_initializer of a worker that starts later clears for the others. Without one, each has its own.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf


class _Side(NamedTuple):
    """What an update takes: `left` is solved for, of `size` rows; `right` is given."""

    left: list
    left_weights: Any
    size: int
    right: Any
    right_weights: Any
    gramian: Any


class WALSModel:
    """A model of weighted alternating least squares."""

    def __init__(self, input_rows: int, input_cols: int, n_components: int, unobserved_weight: float = 0.1,
                 regularization: float | None = None, row_init: Any = "random", col_init: Any = "random",
                 num_row_shards: int = 1, num_col_shards: int = 1, row_weights: Any = 1, col_weights: Any = 1,
                 use_factors_weights_cache: bool = True, use_gramian_cache: bool = True,
                 use_scoped_vars: bool = False) -> None:
        """Makes its variables.

        Args:
          input_rows: rows of the matrix.
          input_cols: its columns.
          n_components: columns of the factors.
          unobserved_weight: of each entry of the matrix.
          regularization: factor of the sum of the squares of the factors; none by default.
          row_init: "random", an array or tensor [rows, n_components], a list of one for each shard, or a function that
            returns it.
          col_init: the same of the columns.
          num_row_shards: variables into which the factors of the rows are divided.
          num_col_shards: those of the columns.
          row_weights: a number for all, a list of [rows of the shard] for each shard, or None for no weights at all.
          col_weights: the same of the columns.
          use_factors_weights_cache: whether local variables have a copy of the factors and weights (see above).
          use_gramian_cache: whether they have one of the Gramians.
          use_scoped_vars: whether the names of the variables begin with those of their kind, as "row_factors/".

        Raises:
          ValueError: only one of the weights is None, or a list has not one entry for each shard.
        """
        if (row_weights is None) != (col_weights is None):
            raise ValueError("WALSModel: row_weights and col_weights must both be None, or neither")
        self._input_rows, self._input_cols = input_rows, input_cols
        self._n_components, self._unobserved_weight = n_components, unobserved_weight
        self._regularization = regularization

        with_scope = functools.partial(_made, is_scoped=use_scoped_vars)
        # In this order they are distributed over the ps.
        self._row_weights = with_scope("row_weights", _weights, row_weights, input_rows, num_row_shards)
        self._col_weights = with_scope("col_weights", _weights, col_weights, input_cols, num_col_shards)
        self._row_factors = with_scope("row_factors", _factors, row_init, input_rows, num_row_shards, n_components)
        self._col_factors = with_scope("col_factors", _factors, col_init, input_cols, num_col_shards, n_components)
        self._make_others(use_factors_weights_cache, use_gramian_cache)

    def _make_others(self, has_copies: bool, has_gramian_copies: bool) -> None:
        """Makes what follows from the factors."""
        n_components = self._n_components
        self._row_gramian, self._col_gramian = (
            tf.Variable(tf.zeros([n_components, n_components]), dtype=tf.float32, name=name)
            for name in ("row_gramian", "col_gramian"))
        with tf.name_scope("row_prepare_gramian"):
            self._row_update_prep_gramian = _prepare_gramian(self._col_factors, self._col_gramian)
        with tf.name_scope("col_prepare_gramian"):
            self._col_update_prep_gramian = _prepare_gramian(self._row_factors, self._row_gramian)
        with tf.name_scope("transient_vars"):
            self._make_copies(has_copies, has_gramian_copies)

    def _make_copies(self, of_factors: bool, of_gramians: bool) -> None:
        """Makes the copies of a worker, and the operations that fill them."""
        rows, cols = (_Copy(factors, name, of_factors) for factors, name in (
            (self._row_factors, "row_factors_cache"), (self._col_factors, "col_factors_cache")))
        row_weights, col_weights = (weights and _Copy(weights, name, of_factors) for weights, name in (
            (self._row_weights, "row_wt_cache"), (self._col_weights, "col_wt_cache")))
        row_gramian, col_gramian = (_Copy([gramian], name, of_gramians, is_one=True) for gramian, name in (
            (self._row_gramian, "row_gramian_cache"), (self._col_gramian, "col_gramian_cache")))
        # What the other sweep needs is given up meanwhile.
        self._row_updates_init = tf.group(cols.fill, rows.clear, col_gramian.fill, row_gramian.clear)
        self._col_updates_init = tf.group(rows.fill, cols.clear, row_gramian.fill, col_gramian.clear)
        copies = [] if row_weights is None else [row_weights.fill, col_weights.fill]
        self._worker_init = tf.group(*copies, name="worker_init")
        weights = [copy and copy.variables for copy in (row_weights, col_weights)]
        self._of_rows = _Side(self._row_factors, weights[0], self._input_rows, cols.variables, weights[1],
                              col_gramian.variables[0])
        self._of_cols = _Side(self._col_factors, weights[1], self._input_cols, rows.variables, weights[0],
                              row_gramian.variables[0])

    row_factors = property(lambda self: self._row_factors, doc="The shards of the factors of the rows.")
    col_factors = property(lambda self: self._col_factors, doc="The shards of the factors of the columns.")
    row_weights = property(lambda self: self._row_weights, doc="The shards of the weights of the rows, or None.")
    col_weights = property(lambda self: self._col_weights, doc="The shards of the weights of the columns, or None.")
    worker_init = property(lambda self: self._worker_init, doc="Copies the weights: once on each worker.")
    row_update_prep_gramian_op = property(
        lambda self: self._row_update_prep_gramian, doc="Before each sweep of the rows, on one worker.")
    col_update_prep_gramian_op = property(
        lambda self: self._col_update_prep_gramian, doc="Before each sweep of the columns, on one worker.")
    initialize_row_update_op = property(
        lambda self: self._row_updates_init, doc="Before each sweep of the rows, then on each worker.")
    initialize_col_update_op = property(
        lambda self: self._col_updates_init, doc="Before each sweep of the columns, then on each worker.")

    @property
    def initialize_op(self) -> tf.Operation:
        """Initializes the variables that are not copies."""
        return tf.variables_initializer([
            *self._row_factors, *self._col_factors, self._row_gramian, self._col_gramian,
            *(self._row_weights or ()), *(self._col_weights or ())])

    def update_row_factors(self, sp_input: tf.SparseTensor = None, transpose_input: bool = False) -> tuple:
        """Solves for the rows that a sparse matrix has entries in; their numbers are those of the whole matrix.

        Args:
          sp_input: float32 [rows, columns], some rows of the matrix, all of each.
          transpose_input: whether it is [columns, rows].

        Returns:
          The new factors [rows that have entries, n_components], the operation that writes them, and, float32 [], the
          loss, its regularization, and the sum of the weights, each for as many rows as the whole matrix has.
        """
        return self._solve(self._of_rows, sp_input, transpose_input, None, "row_update")

    def update_col_factors(self, sp_input: tf.SparseTensor = None, transpose_input: bool = False) -> tuple:
        """Solves for columns, as `update_row_factors` does for rows."""
        return self._solve(self._of_cols, sp_input, not transpose_input, None, "col_update")

    def project_row_factors(self, sp_input: tf.SparseTensor = None, transpose_input: bool = False,
                            projection_weights: Any = None) -> tf.Tensor:
        """Returns the factors of new rows, float32 [rows, n_components], in the order in which they appear.

        Args:
          sp_input: float32 [rows, columns], with the columns of the model.
          transpose_input: whether it is [columns, rows].
          projection_weights: of the rows, [rows] or a number; 1 by default.
        """
        weights = 1 if projection_weights is None else projection_weights
        return self._solve(self._of_rows, sp_input, transpose_input, weights, "row_update")[0]

    def project_col_factors(self, sp_input: tf.SparseTensor = None, transpose_input: bool = False,
                            projection_weights: Any = None) -> tf.Tensor:
        """Returns the factors of new columns, as `project_row_factors` does for rows."""
        weights = 1 if projection_weights is None else projection_weights
        return self._solve(self._of_cols, sp_input, not transpose_input, weights, "col_update")[0]

    def _solve(self, side: _Side, matrix: tf.SparseTensor, is_transposed: bool, weights: Any, name: str) -> tuple:
        """Returns what `update_row_factors` does, of either side; `weights` are instead of the model's."""
        rows, columns = tf.unstack(matrix.indices, num=2, axis=1)[::-1 if is_transposed else 1]
        # Numbers among those that appear, so that nothing is as large as the whole matrix.
        rows, row_places = tf.unique(rows, tf.int64)
        columns, column_places = tf.unique(columns, tf.int64)
        right = _rows_of(side.right, columns)
        right.set_shape([None, self._n_components])
        entries = _Entries(tf.stack([row_places, column_places], 1), matrix.values, tf.stack([
            tf.size(rows, out_type=tf.int64), tf.size(columns, out_type=tf.int64)]))
        entry_weights = None
        if side.left_weights is not None:
            of_rows = _rows_of(side.left_weights, rows) if weights is None else _each_row(weights, tf.size(rows))
            entry_weights = tf.gather(of_rows, row_places) * tf.gather(
                _rows_of(side.right_weights, columns), column_places)
        gramian = tf.convert_to_tensor(side.gramian)
        gramian.set_shape([self._n_components] * 2)
        left = self._least_squares(entries, right, entry_weights, gramian)
        update_op = WALSModel.scatter_update(
            side.left, rows, left, _sharding(side.size, len(side.left)), name=name)
        factor = side.size / tf.cast(tf.size(rows), tf.float32)
        loss, sum_weights = self._loss(entries, left, right, entry_weights, gramian)
        regularization = tf.constant(0.0) if self._regularization is None else self._regularization * (
            tf.reduce_sum(tf.square(left)) * factor + tf.linalg.trace(gramian))
        all_weights = self._unobserved_weight * float(self._input_rows * self._input_cols)
        return left, update_op, loss * factor, regularization, all_weights + sum_weights * factor

    def _least_squares(self, entries: _Entries, right: tf.Tensor, weights: tf.Tensor | None,
                       gramian: tf.Tensor) -> tf.Tensor:
        """Returns the rows u [rows, n] of the least squares, by the normal equations of each.

        (unobserved_weight V^T V + regularization I + sum w v v^T) u = sum (unobserved_weight + w) a v
        """
        common = self._unobserved_weight * gramian
        if self._regularization is not None:
            common += self._regularization * tf.eye(self._n_components)
        if weights is None:
            sums = self._unobserved_weight * entries.matmul(entries.values, right)
            return tf.transpose(tf.linalg.solve(common, tf.transpose(sums)))
        sums = entries.matmul((self._unobserved_weight + weights) * entries.values, right)
        # One column of v v^T at a time: all of them would be n_components times as large as `right`.
        own = tf.map_fn(lambda column: entries.matmul(weights, right * column[:, tf.newaxis]), tf.transpose(right))
        return tf.squeeze(tf.linalg.solve(common + tf.transpose(own, [1, 0, 2]), sums[:, :, tf.newaxis]), 2)

    def _loss(self, entries: _Entries, left: tf.Tensor, right: tf.Tensor, weights: tf.Tensor | None,
              gramian: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weighted sum of the squared errors of these rows, and the sum of the entries' own weights."""
        guesses = tf.reduce_sum(tf.gather(left, entries.places[:, 0]) * tf.gather(right, entries.places[:, 1]), 1)
        errors = tf.square(entries.values - guesses)
        of_all = tf.linalg.trace(tf.matmul(tf.matmul(left, left, transpose_a=True), gramian))
        loss = self._unobserved_weight * (tf.reduce_sum(errors) - tf.reduce_sum(tf.square(guesses)) + of_all)
        if weights is None:
            return loss, tf.constant(0.0)
        return loss + tf.reduce_sum(weights * errors), tf.reduce_sum(weights)

    @classmethod
    def scatter_update(cls, factor: list, indices: tf.Tensor, values: tf.Tensor, sharding_func: Callable,
                       name: str | None = None) -> tf.Operation:
        """Writes rows to the shards that have them.

        Args:
          factor: the shards, [rows of the shard, n_components] each.
          indices: rows of all shards together, int64 [n].
          values: their values [n, n_components].
          sharding_func: takes `indices`; returns the shard, and the row in it, of each.
          name: of the operation.
        """
        if len(factor) == 1:
            with _beside(factor[0]):
                return tf.scatter_update(factor[0], indices, values, name=name).op
        shards, rows = sharding_func(indices)
        shards = tf.cast(shards, tf.int32)
        parts = zip(factor, tf.dynamic_partition(rows, shards, len(factor)),
                    tf.dynamic_partition(values, shards, len(factor)))
        updates = []
        for shard, rows_of_shard, values_of_shard in parts:
            with _beside(shard):
                updates.append(tf.scatter_update(shard, rows_of_shard, values_of_shard).op)
        return tf.group(*updates, name=name)


class _Entries(NamedTuple):
    """The entries of a sparse matrix of `shape` int64 [2]: places int64 [n, 2], and values float32 [n]."""

    places: tf.Tensor
    values: tf.Tensor
    shape: tf.Tensor

    def matmul(self, values: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
        """Returns the product of such a matrix, with other values, and a dense one."""
        return tf.sparse.sparse_dense_matmul(tf.SparseTensor(self.places, values, self.shape), dense)


class _Copy:
    """Copies of variables on a worker, with the operations that fill and clear them; or the variables themselves."""

    def __init__(self, originals: list, name: str, is_copied: bool, *, is_one: bool = False) -> None:
        self.variables, self.fill, self.clear = originals, tf.no_op(), tf.no_op()
        if not is_copied:
            return
        self.variables = [tf.Variable(
            1.0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], validate_shape=False,
            shape=tf.TensorShape(None), name=name if is_one else f"{name}_shard_{index}")
            for index in range(len(originals))]
        fills: list[tf.Operation] = []
        clears = []
        for copy, original in zip(self.variables, originals):
            # One after the other: two shards on their way at once take more memory.
            with _beside(copy), tf.control_dependencies(fills[-1:]):
                fills.append(tf.assign(copy, original, validate_shape=False).op)
            with _beside(copy):
                clears.append(tf.assign(copy, 1.0, validate_shape=False).op)
        self.fill, self.clear = fills[-1], tf.group(*clears)


def _shard_sizes(size: int, num_shards: int) -> list[int]:
    """Returns the rows of each shard; the first ones may have one more."""
    least, more = divmod(size, num_shards)
    return [least + 1] * more + [least] * (num_shards - more)


def _sharding(size: int, num_shards: int) -> Callable:
    """Returns a function of rows, int64 [n], that returns the shard of each, and the row in it."""
    least, more = divmod(size, num_shards)

    def shards_of(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shards = tf.maximum(rows // (least + 1), (rows - more) // least)
        return shards, tf.where(shards < more, rows % (least + 1), (rows - more) % least)
    return shards_of


def _variables(parts: Sequence[Any], name: str) -> list:
    """Returns a variable of each part, a tensor or array, or a function that returns it."""
    return [tf.Variable(part if callable(part) else lambda part=part: part, dtype=tf.float32,
                        name=f"{name}_shard_{index}") for index, part in enumerate(parts)]


def _factors(start: Any, size: int, num_shards: int, n_components: int, name: str) -> list:
    """Returns the variables of factors."""
    start = start() if callable(start) else start
    if isinstance(start, str) and start == "random":
        return _variables([lambda rows=rows: tf.random_normal([rows, n_components])
                           for rows in _shard_sizes(size, num_shards)], name)
    return _variables(_of_shards(start if isinstance(start, list) or num_shards > 1 else [start], num_shards, name),
                      name)


def _weights(start: Any, size: int, num_shards: int, name: str) -> list | None:
    """Returns the variables of weights, of a number or of a list for each shard.

    Raises:
      ValueError: the weights are something else.
    """
    if start is None:
        return None
    if isinstance(start, Iterable):
        start = [start] if num_shards == 1 and len(start) == size else start
        return _variables(_of_shards(start, num_shards, name), name)
    if not isinstance(start, numbers.Real) or start < 0:
        raise ValueError(f"{name} must be None, a number that is not negative, or a list of weights for each shard; "
                         f"got {start!r}")
    return _variables([lambda rows=rows: start * tf.ones([rows]) for rows in _shard_sizes(size, num_shards)], name)


def _made(name: str, make: Callable, *args: Any, is_scoped: bool) -> Any:
    """Returns variables of a name, in a scope of that name or in none."""
    if not is_scoped:
        return make(*args, name)
    with tf.name_scope(name):
        return make(*args, name)


def _of_shards(parts: Any, num_shards: int, name: str) -> Any:
    if len(parts) != num_shards:
        raise ValueError(f"{name}: got {len(parts)} parts for {num_shards} shards")
    return parts


def _prepare_gramian(factors: list, gramian: tf.Variable) -> tf.Operation:
    """Returns what writes V^T V; each ps adds what its own shards make."""
    parts = []
    for shard in factors:
        with _beside(shard):
            parts.append(tf.matmul(shard, shard, transpose_a=True))
    with _beside(gramian):
        return tf.assign(gramian, tf.add_n(parts)).op


def _beside(variable: tf.Variable) -> Any:
    """Places operations on the device of a variable."""
    return tf.get_default_graph().colocate_with(variable)


def _rows_of(shards: list, rows: tf.Tensor) -> tf.Tensor:
    return tf.nn.embedding_lookup(shards, rows, partition_strategy="div")


def _each_row(weights: Any, count: tf.Tensor) -> tf.Tensor:
    """Returns weights [count] of one number, or of as many."""
    weights = tf.cast(weights, tf.float32)
    return tf.ones([count]) * weights
