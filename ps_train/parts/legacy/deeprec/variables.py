"""`get_embedding_variable`: an embedding variable of a script is a dynamic table of parts/tables.

    script:   lookup --> a stand-in for the rows ... optimizer.minimize
    here:                                            connect: the rule of the optimizer says how wide a row is;
                                                     the lookups of all its variables are one transfer each way per ps

A variable that no optimizer has updated when the script makes its Saver or initializer is only read from then on.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn, Optional

import tensorflow.compat.v1 as tf
from tensorflow.python.training.saving.saveable_object import SaveableObject

from ps_train.errors import UserCodeError
from ps_train.parts.legacy.classic import membership
from ps_train.parts.legacy.deeprec import layout, options, saving
from ps_train.parts.legacy.deeprec.functions import SharedStore
from ps_train.parts.legacy.deeprec.options import EmbeddingVariableOption
from ps_train.parts.tables import connection
from ps_train.parts.tables.connection import RowExchange
from ps_train.parts.tables.registry import Lookup, Registry
from ps_train.parts.tables.rules import Frozen, RowRule
from ps_train.parts.tables.store_ops import RowOps, StoreOps
from ps_train.parts.tables.tables import Table

_COLLECTION = "ps_train/embedding_variables"
_registries: weakref.WeakKeyDictionary[tf.Graph, Registry] = weakref.WeakKeyDictionary()
_MANY_ROWS = 2**40  # of a shape that a partitioner sees: a table has no number of rows
# Arguments of tf.get_variable and of DeepRec that change nothing here: a table has no shape, and is on all ps.
_WITHOUT_EFFECT = ("collections", "caching_device", "validate_shape", "use_resource", "synchronization", "aggregation",
                   "ht_partition_num")


class _VariableTable(Table):
    """The table behind an embedding variable."""

    def _rows_to_combine(self, ids: tf.Tensor, name: str) -> tf.Tensor:
        # Each id once, as in TensorFlow: its row in the gradient is a sum, of which `tf.global_norm` takes the square.
        unique, places = tf.unique(ids)
        return tf.gather(self.lookup(unique, name), places)


class EmbeddingVariable(SaveableObject):
    """An embedding variable in one graph. It is in the collections in which a variable is, and a Saver saves it.

    Attributes:
      spec: the table without its rule.
      lookups: those of the script, in their order.
      exchange: transfers the rows of `lookups`; None before `connect_variables`, and without lookups.
      num_parts: parts of the variable in a checkpoint, `NAME/part_0` and so on; None for a single one, `NAME`.
      l2_threshold: the norm below which a row is dropped at a save; 0 keeps all.
    """

    dtype = tf.float32

    def __init__(self, spec: Any, num_parts: Optional[int], l2_threshold: float, trainable: bool) -> None:
        """Adds it to the current graph; it has no rows on a ps before `connect_variables`."""
        self.spec, self.num_parts, self.l2_threshold, self.trainable = spec, num_parts, l2_threshold, trainable
        self.lookups: list[Lookup] = []
        self.exchange: RowExchange | None = None
        self.slots: Sequence[layout.Slot] = ()
        self._registry = graph_registry()
        self._table = _VariableTable(spec, self._registry)
        self._stores: list[RowOps] = []
        self._initializer: tf.Operation | None = None
        self._specs: list | None = None
        with tf.name_scope(None), tf.control_dependencies(None), tf.device(None), tf.device(saving.ps_device()):
            self.op = tf.no_op(spec.name)
        self.name = f"{spec.name}:0"

    @property
    def shape(self) -> tf.TensorShape:
        """[any number of rows, dim]."""
        return tf.TensorShape([None, self.spec.dim])

    def get_shape(self) -> tf.TensorShape:
        return self.shape

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def graph(self) -> tf.Graph:
        return self.op.graph

    @property
    def evicts(self) -> bool:
        """Whether a save drops rows."""
        return bool(self.spec.ttl_steps or self.l2_threshold)

    @property
    def is_connected(self) -> bool:
        """Whether the width of a row is known, and the rows are on the ps."""
        return bool(self._stores)

    @property
    def rule(self) -> RowRule:
        """How its rows are updated; after `connect_variables`."""
        return self._registry.specs[self.spec.name].rule  # not the current graph's: a Saver's restore has another

    @property
    def stores(self) -> list[RowOps]:
        """The rows on each ps; an unconnected variable is only read from now on."""
        if not self.is_connected:
            connect_variables([self], Frozen(learning_rate=0.0), ())
        return self._stores

    def lookup(self, ids: Any) -> tf.Tensor:
        """Returns the rows of ids, float32 [..., dim]."""
        rows = self._table.lookup(ids)
        self._take_lookups()
        return rows

    def lookup_sparse(self, sp_ids: Any, sp_weights: Any = None, combiner: Optional[str] = None) -> tf.Tensor:
        """Returns the combined rows of each example, float32 [batch, dim]; zeros where it has no id."""
        rows = self._table.lookup_sparse(sp_ids, sp_weights, combiner or "mean")
        self._take_lookups()
        return rows

    def without_invalid(
        self, ids: tf.SparseTensor, weights: tf.SparseTensor | None, combiner: Optional[str]
    ) -> tuple[tf.SparseTensor, tf.SparseTensor | None]:
        """Returns ids, and their weights, without those that `tf.nn.safe_embedding_lookup_sparse` leaves out.

        These are ids below 0, and but for sums those with a weight that is not above 0.
        """
        is_valid = tf.ones_like(ids.values, tf.bool) if ids.values.dtype == tf.string else ids.values >= 0
        of_ids = None if weights is None else connection.check_weights(
            ids, weights, self.spec.name, self._registry.feature_of(ids.values))
        if of_ids is not None and combiner != "sum":
            is_valid &= of_ids > 0
        places = tf.squeeze(tf.where(is_valid), 1)
        indices = tf.gather(ids.indices, places)
        return tuple(None if values is None else tf.SparseTensor(indices, tf.gather(values, places), ids.dense_shape)
                     for values in (ids.values, of_ids))

    def _take_lookups(self) -> None:
        lookups = self._registry.take_pending().get(self.spec.name, [])
        if self.is_connected:  # after the optimizer: it is only read
            _connect_lookups({self: lookups})
        else:
            self.lookups += lookups

    def take_stores(self, slots: Sequence[layout.Slot]) -> None:
        """Makes the variables on the ps; the spec in the registry has its rule."""
        self.slots = slots
        kind = StoreOps if self.evicts else RowOps  # few operations, as a model may have hundreds of variables
        self._stores = [kind(store) for store in self._registry.stores(self.spec.name)]

    @property
    def initializer(self) -> tf.Operation:
        """The operation that empties the table."""
        if self._initializer is None:
            with tf.control_dependencies(None):
                self._initializer = tf.group(*[saving.reset_rows(store) for store in self.stores])
        return self._initializer

    def is_initialized(self, name: Optional[str] = None) -> tf.Tensor:
        """Returns whether the table is there, a bool scalar."""
        stores = [ops.store for ops in self.stores]
        variables = [variable for store in stores for variable in (store.rows, store.marks, store.counts)]
        return tf.reduce_all(tf.stack([variable.is_initialized() for variable in variables]), name=name)

    @property
    def specs(self) -> list:
        """What a Saver writes: the tensors of DeepRec's layout."""
        if self._specs is None:
            self._specs = saving.save_specs(self)
        return self._specs

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> tf.Operation:
        """Returns the operation that reads the table; `installation.py` passes the path of the checkpoint."""
        del restored_shapes  # a table has none
        return saving.restore_rows(self, restored_tensors[0])

    def to_proto(self, export_scope: Optional[str] = None) -> None:
        """Leaves the table out of a MetaGraphDef, from which a program could not make it again."""


def _refuse_conversion(variable: EmbeddingVariable, *_: Any, **__: Any) -> NoReturn:
    raise UserCodeError("table_is_no_tensor", (
        f"embedding variable {variable.spec.name}: it is no tensor, because its rows are on the ps; use "
        "tf.nn.embedding_lookup, and make a term of the loss from the rows that are looked up"))


tf.register_tensor_conversion_function(EmbeddingVariable, _refuse_conversion)


def graph_registry() -> Registry:
    """Returns the registry of the tables behind the embedding variables of the current graph."""
    graph = tf.get_default_graph()
    if graph not in _registries:
        member = membership.current()
        devices = [f"{ps.device}/cpu:0" for ps in member.cluster.ps] if member else [""]
        # A registry of its own: that of the graph is for model functions, which ps_train trains.
        _registries[graph] = Registry(devices, Frozen(learning_rate=0.0), SharedStore)
    return _registries[graph]


def variables_of_graph(graph: Optional[tf.Graph] = None) -> list[EmbeddingVariable]:
    """Returns the embedding variables of a graph, by default of the current one."""
    return (graph or tf.get_default_graph()).get_collection(_COLLECTION)


def embedding_variable(
    name: str, embedding_dim: int, key_dtype: Any = tf.int64, value_dtype: Any = None, initializer: Any = None,
    regularizer: Any = None, trainable: bool = True, collections: Any = None, caching_device: Any = None,
    partitioner: Any = None, validate_shape: bool = True, custom_getter: Any = None, constraint: Any = None,
    init_data_source: Any = None, ev_option: Optional[EmbeddingVariableOption] = None,
    steps_to_live: Optional[int] = None, **others: Any,
) -> EmbeddingVariable:
    """Returns the embedding variable of this name in the current variable scope, with DeepRec's arguments.

    Raises:
      UserCodeError: a table does not support an argument; the text says what is allowed.
      ValueError: the scope does not reuse variables and has one of this name, or it reuses them and has none.
    """
    del collections, caching_device, validate_shape
    unmet = {"regularizer": regularizer, "custom_getter": custom_getter, "constraint": constraint,
             "init_data_source": init_data_source,
             **{argument: value for argument, value in others.items() if argument not in _WITHOUT_EFFECT}}
    for argument, value in unmet.items():
        if value is not None:
            raise UserCodeError("bad_embedding_option", f"embedding variable {name!r}: got {argument}={value!r}; "
                                "a table has no such argument; leave it out")
    if value_dtype not in (None, tf.float32) or not tf.as_dtype(key_dtype).is_integer:
        raise UserCodeError("bad_embedding_option", f"embedding variable {name!r}: got key_dtype={key_dtype} and "
                            f"value_dtype={value_dtype}; allowed: integers and tf.float32")
    scope = tf.get_variable_scope()
    full_name = f"{scope.name}/{name}" if scope.name else name
    found = next((variable for variable in variables_of_graph() if variable.spec.name == full_name), None)
    _check_reuse(scope.reuse, found, full_name, embedding_dim)
    return found or _new_variable(
        full_name, embedding_dim, ev_option or EmbeddingVariableOption(), initializer or scope.initializer,
        partitioner or scope.partitioner, trainable, steps_to_live)


def _check_reuse(reuse: Any, found: EmbeddingVariable | None, name: str, dim: int) -> None:
    if found and reuse is not tf.AUTO_REUSE and not reuse:
        raise ValueError(f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or "
                         "reuse=tf.AUTO_REUSE in VarScope?")
    if not found and reuse is True:
        raise ValueError(f"Variable {name} does not exist, or was not created with tf.get_embedding_variable().")
    if found and found.spec.dim != dim:
        raise ValueError(f"Trying to share variable {name}, but specified dimension {dim} and found {found.spec.dim}.")


def _new_variable(
    name: str, dim: int, option: EmbeddingVariableOption, initializer: Any, partitioner: Any, trainable: bool,
    steps_to_live: Optional[int],
) -> EmbeddingVariable:
    num_parts = None
    if partitioner is not None:
        counts = partitioner(shape=tf.TensorShape([_MANY_ROWS, dim]), dtype=tf.float32)
        num_parts = max(1, *counts)
    spec = options.table_spec(name, dim, option, initializer, steps_to_live)
    variable = EmbeddingVariable(spec, num_parts, options.l2_threshold(option), trainable)
    names = [_COLLECTION, tf.GraphKeys.GLOBAL_VARIABLES, *([tf.GraphKeys.TRAINABLE_VARIABLES] if trainable else [])]
    for collection in names:
        tf.add_to_collection(collection, variable)
    return variable


def connect_variables(variables: Sequence[EmbeddingVariable], rule: RowRule, slots: Sequence[layout.Slot]) -> None:
    """Puts the rows of variables on the ps, and connects their lookups with them."""
    for variable in variables:
        spec = dataclasses.replace(variable.spec, rule=variable_rule(variable, rule))
        graph_registry().specs[spec.name] = spec
        with tf.control_dependencies(None):
            variable.take_stores(slots)
    exchange = _connect_lookups({variable: variable.lookups for variable in variables if variable.lookups})
    for variable in variables:
        variable.exchange = exchange if variable.lookups else None


def variable_rule(variable: EmbeddingVariable, rule: RowRule) -> RowRule:
    """Returns the rule of a variable: that of its optimizer, and with a filter one that also counts updates."""
    counts = variable.spec.min_count > 1 and not isinstance(rule, Frozen)
    return layout.Counted(learning_rate=0.0, rule=rule, first=variable.spec.min_count - 1) if counts else rule


def _connect_lookups(lookups: dict[EmbeddingVariable, list[Lookup]]) -> RowExchange | None:
    if not lookups:
        return None
    tables = graph_registry()
    # Outside the control dependencies of `minimize`, which may wait for operations that need the rows.
    with tf.control_dependencies(None), tf.device(None), tf.device(saving.own_device()):
        ids = {variable.spec.name: connection.flat_ids(of_variable, tables.specs[variable.spec.name])
               for variable, of_variable in lookups.items()}
        exchange = RowExchange(tables, ids, sorts_ids=False)
        pulled = exchange.pull()
        for variable, of_variable in lookups.items():
            name = variable.spec.name
            connection.put_rows(of_variable, tf.gather(pulled[name], exchange.places[name]))
    return exchange
