"""The tables and lookups of a graph that its model has requested so far.

    model_fn --> embedding_table --> add      the table's stores, one on each ps
             --> lookup          --> request  a stand-in for the values, which `connection.py` connects
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph.transfer import upstream
from ps_train.parts.tables.row_history import WithHistory
from ps_train.parts.tables.rules import RULES, Frozen, RowRule, TableSpec
from ps_train.parts.tables.store import Store

_COLLECTION = "ps_train/embedding_tables"
_MAX_NAMES = 4  # in the name of ids of many features
# Their other inputs say which elements or what shape, and may come from another feature.
_FIRST_INPUT_ONLY = {"GatherNd", "GatherV2", "Reshape", "Slice", "StridedSlice", "Tile"}
_SHAPE_ONLY = {"Rank", "Shape", "ShapeN", "Size"}


class Lookup(NamedTuple):
    """A lookup that a model has requested.

    Attributes:
      table: the name of the table.
      ids: int64 [...].
      stand_in: float32 [..., dim], which `connection.py` connects with the values.
      feature: the name of the ids in messages.
    """

    table: str
    ids: tf.Tensor
    stand_in: tf.Tensor
    feature: str


class Registry:
    """The tables of one graph.

    Attributes:
      devices: the device of each ps; [""] where the graph runs in one process.
      default_rule: of tables without a rule; `Frozen` where tables are only read.
      rules: name -> the rule that a model means by it.
      refuses_ids: whether an id that its table cannot have stops the step; otherwise it has a first value.
      wire_dtype: the type in which values and gradients travel; None for float32.
      specs: name -> table.
    """

    def __init__(
        self, devices: Sequence[str], default_rule: RowRule, make_store: Callable[..., Any] = Store,
        refuses_ids: bool = True, wire_dtype: tf.DType | None = None, rules: Mapping[str, RowRule] | None = None,
    ) -> None:
        self.devices, self.default_rule, self.refuses_ids = list(devices), default_rule, refuses_ids
        self.rules = {name: kind() for name, kind in RULES.items()} if rules is None else rules
        self.wire_dtype = wire_dtype
        self.specs: dict[str, TableSpec] = {}
        self._make_store = make_store
        self._stores: dict[str, list[Store]] = {}
        self._graph = tf.get_default_graph()
        self.begin_build()

    def begin_build(self, features: Any = None, labels: Any = None, context: Any = None) -> None:
        """Prepares for a call of model_fn with these arguments, in a control flow; a graph may have several."""
        self._named: set[str] = set()  # in this build of the model
        self._pending: list[Lookup] = []
        self._features = names_of(features, labels)
        self._context = context

    def add(self, spec: TableSpec) -> None:
        """Adds a table; a second build of the model must name the same ones.

        Raises:
          UserCodeError: the model has named this table before, or with other arguments in an earlier build.
        """
        if spec.name in self._named:
            raise UserCodeError("table_named_twice", f"embedding_table {spec.name!r}: the model has a table of this "
                                "name; to share it, look both features up in that one")
        is_frozen = isinstance(self.default_rule, Frozen)
        rule = self.default_rule if is_frozen or spec.rule is None else spec.rule.with_defaults(
            self.default_rule.learning_rate)
        if spec.has_history and not is_frozen:
            rule = WithHistory(rule.learning_rate, rule)
        spec = dataclasses.replace(spec, rule=rule)
        if spec != self.specs.setdefault(spec.name, spec):
            raise UserCodeError("table_differs", f"embedding_table {spec.name!r}: an earlier call of model_fn has made "
                                "it with other arguments")
        self._named.add(spec.name)

    def feature_of(self, ids: tf.Tensor) -> str:
        """Returns the name of ids in messages; see the function `feature_of`."""
        return feature_of(ids, self._features)

    def request(self, spec: TableSpec, ids: tf.Tensor, feature: str) -> tf.Tensor:
        """Returns a stand-in for the values of int64 ids [...]: float32 [..., dim].

        Raises:
          UserCodeError: the lookup is in a branch, a loop or a function of the model, or needs rows of another lookup;
            or the table was made for another graph.
        """
        graph = tf.get_default_graph()
        if _outermost(graph) is not _outermost(self._graph):
            raise UserCodeError("table_of_another_graph", f"table {spec.name}: embedding_table was not called for the "
                                f"graph in which {feature} is looked up, but at import or for another model, and "
                                "ps_train builds a model several times; call it in model_fn")
        context = graph._get_control_flow_context()  # noqa: SLF001 (it has no public name)
        if context is not self._context or graph is not self._graph:
            raise UserCodeError("lookup_in_control_flow", (
                f"table {spec.name}: {feature} is looked up in a tf.cond, a loop or a function, whose operations may "
                "run any number of times; look it up outside, once"))
        self._refuse_chained(spec.name, ids, feature)
        shape = ids.shape.concatenate([spec.dim]) if ids.shape.rank is not None else None
        # An identity, whose input `connection.py` replaces: the operations that read the stand-in stay as they are.
        stand_in = tf.identity(tf.placeholder(tf.float32, shape), f"{spec.name.replace('/', '_')}_rows")
        self._pending.append(Lookup(spec.name, ids, stand_in, feature))
        return stand_in

    def _refuse_chained(self, table: str, ids: tf.Tensor, feature: str) -> None:
        """Refuses ids that depend on the rows of an earlier lookup: those of all lookups are sent at once."""
        by_stand_in = {lookup.stand_in.op: lookup for lookup in self._pending}
        earlier = next((by_stand_in[op] for op in upstream([ids]) if op in by_stand_in), None) if by_stand_in else None
        if earlier:
            raise UserCodeError("ids_from_rows", (
                f"table {table}: the ids of {feature} depend on the rows of {earlier.feature} in table "
                f"{earlier.table}, and all rows of a step are fetched at once, by their ids; compute these ids in "
                "input_fn, or from ordinary variables"))

    def stores(self, name: str) -> list[Store]:
        """Returns the store of a table on each ps."""
        if name not in self._stores:
            # The stores are in no loop or scope of model_fn.
            with tf.control_dependencies(None):
                self._stores[name] = [
                    self._make_store(self.specs[name], ps=number, num_ps=len(self.devices), device=device)
                    for number, device in enumerate(self.devices)]
        return self._stores[name]

    def all_stores(self) -> list[Store]:
        """Returns all stores of the graph, those of one table together."""
        return [store for name in self.specs for store in self.stores(name)]

    def take_pending(self) -> dict[str, list[Lookup]]:
        """Returns the lookups since the last call, by the name of their table."""
        by_table: dict[str, list[Lookup]] = {}
        for lookup in self._pending:
            by_table.setdefault(lookup.table, []).append(lookup)
        self._pending = []
        return by_table


def install_registry(
    devices: Sequence[str], default_rule: RowRule, make_store: Callable[..., Any] = Store, *, refuses_ids: bool = True,
    wire_dtype: tf.DType | None = None, rules: Mapping[str, RowRule] | None = None,
) -> Registry:
    """Gives the current graph a registry, before its model is built.

    Args:
      make_store: makes the rows of a table on one ps; called as `Store` is.
      refuses_ids, wire_dtype: see `Registry`.
      rules: name -> the rule that a model means by it; None for those with the constants by default.
    """
    registry = Registry(devices, default_rule, make_store, refuses_ids, wire_dtype, rules)
    tf.get_default_graph().clear_collection(_COLLECTION)
    tf.add_to_collection(_COLLECTION, registry)
    return registry


def current_registry() -> Registry:
    """Returns the registry of the current graph; a new one of one process if a user calls model_fn by hand."""
    installed = tf.get_collection(_COLLECTION)
    return installed[0] if installed else install_registry([""], Frozen(learning_rate=0.0))


def _outermost(graph: tf.Graph) -> tf.Graph:
    """Returns the graph of a session in which the graph of a function is, such as that of the body of a loop."""
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def names_of(features: Any, labels: Any = None) -> dict[Any, str]:
    """Returns the reference of each tensor -> its name: `user`, `user/id`, `features[0]`, or `features` for one alone.

    Args:
      features, labels: tensors, or nested structures of tensors, SparseTensors and RaggedTensors.
    """
    names: dict[Any, str] = {}
    leaves = [*_named(features, "" if isinstance(features, Mapping) else "features"), *_named(labels, "labels")]
    for name, leaf in leaves:
        for component in tf.nest.flatten(leaf, expand_composites=True):
            if tf.is_tensor(component):
                names.setdefault(component.ref(), name)
    return names


def feature_of(ids: tf.Tensor, names: Mapping[Any, str]) -> str:
    """Returns the names of the features from which a tensor is computed, or else that of its operation."""
    features: dict[str, None] = {}
    waiting, seen = [ids], set()
    while waiting:
        tensor = waiting.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        if tensor.ref() in names:
            features[names[tensor.ref()]] = None
        elif tensor.op.type not in _SHAPE_ONLY:
            inputs = list(tensor.op.inputs)
            waiting.extend(inputs[:1] if tensor.op.type in _FIRST_INPUT_ONLY else inputs[::-1])
    if not features:
        return ids.op.name
    num_more = len(features) - _MAX_NAMES
    return " or ".join([*list(features)[:_MAX_NAMES], *([f"{num_more} more"] if num_more > 0 else [])])


def _named(structure: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the name and the value of each leaf of a structure."""
    if hasattr(structure, "_asdict"):  # a NamedTuple
        structure = structure._asdict()
    if isinstance(structure, Mapping):
        for key, value in structure.items():
            yield from _named(value, f"{path}/{key}" if path else str(key))
    elif isinstance(structure, (tuple, list)):
        for number, value in enumerate(structure):
            yield from _named(value, f"{path}[{number}]")
    elif structure is not None:
        yield path, structure
