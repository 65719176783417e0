"""The tables and lookups of a graph: what its model has asked for so far.

    model_fn --> embedding_table --> add      the table's stores, one on each ps
             --> lookup          --> request  a stand-in for the values, which `connection.py` connects
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables.rows.store import Store
from ps_train.parts.tables.rules import Frozen, RowRule
from ps_train.parts.tables.spec import TableSpec

_COLLECTION = "ps_train/embedding_tables"
_MAX_NAMES = 4  # ids of many features are told by the first ones
# Their other inputs say which elements or what shape, and may come from another feature.
_FIRST_INPUT_ONLY = {"GatherNd", "GatherV2", "Reshape", "Slice", "StridedSlice", "Tile"}
_SHAPE_ONLY = {"Rank", "Shape", "ShapeN", "Size"}


class Lookup(NamedTuple):
    """A lookup that a model has asked for.

    Attributes:
      table: the name of the table.
      ids: int64 [...].
      stand_in: float32 [..., dim], which `connection.py` connects with the values.
      feature: what the ids are called in messages.
    """

    table: str
    ids: tf.Tensor
    stand_in: tf.Tensor
    feature: str


class Registry:
    """The tables of one graph.

    Attributes:
      devices: the device of each ps; [""] where the graph runs in one process.
      default_rule: of tables without a rule of their own; `Frozen` where tables are only read.
      refuses_ids: whether an id that its table cannot have stops the step; otherwise it has a first value.
      specs: name -> table.
    """

    def __init__(
        self, devices: Sequence[str], default_rule: RowRule, make_store: Callable[..., Any] = Store,
        refuses_ids: bool = True,
    ) -> None:
        self.devices = list(devices)
        self.refuses_ids = refuses_ids
        self._make_store = make_store
        self.default_rule = default_rule
        self.specs: dict[str, TableSpec] = {}
        self._stores: dict[str, list[Store]] = {}
        self._named: set[str] = set()  # in this build of the model
        self._pending: list[Lookup] = []
        self._features: dict[Any, str] = {}
        self._context, self._graph = None, tf.get_default_graph()

    def begin_build(self, features: Any = None, labels: Any = None, context: Any = None) -> None:
        """Prepares for a call of model_fn with these arguments, in a control flow; a graph may have several."""
        self._named = set()
        self._pending = []
        self._features = names_of(features, labels)
        self._context = context

    def add(self, spec: TableSpec) -> None:
        """Adds a table; a second build of the model must name the same ones.

        Raises:
          UserCodeError: the model has named this table before, or with other arguments in an earlier build.
        """
        if spec.name in self._named:
            raise UserCodeError(f"embedding_table {spec.name!r}: the model has a table of this name; to share it, look "
                                "both features up in that one")
        is_frozen = isinstance(self.default_rule, Frozen)
        rule = self.default_rule if is_frozen or spec.rule is None else spec.rule.with_defaults(
            self.default_rule.learning_rate)
        known = self.specs.setdefault(spec.name, dataclasses.replace(spec, rule=rule))
        if dataclasses.replace(spec, rule=rule) != known:
            raise UserCodeError(f"embedding_table {spec.name!r}: model_fn has made it with other arguments before")
        self._named.add(spec.name)

    def feature_of(self, ids: tf.Tensor) -> str:
        """Returns what ids are called in messages: the key of the feature that they come from, if they do."""
        return feature_of(ids, self._features)

    def request(self, spec: TableSpec, ids: tf.Tensor, feature: str) -> tf.Tensor:
        """Returns a stand-in for the values of int64 ids [...]: float32 [..., dim].

        Raises:
          UserCodeError: the lookup is in a branch, a loop or a function of the model.
        """
        if _control_flow_context() is not self._context or tf.get_default_graph() is not self._graph:
            raise UserCodeError(f"table {spec.name}: {feature} is looked up in a tf.cond, a loop or a function, whose "
                                "operations may run any number of times; look it up outside, once")
        shape = ids.shape.concatenate([spec.dim]) if ids.shape.rank is not None else None
        # An identity, whose input `connection.py` replaces: what reads the stand-in stays as it is.
        stand_in = tf.identity(tf.placeholder(tf.float32, shape), f"{spec.name.replace('/', '_')}_rows")
        self._pending.append(Lookup(spec.name, ids, stand_in, feature))
        return stand_in

    def stores(self, name: str) -> list[Store]:
        """Returns the store of a table on each ps."""
        if name not in self._stores:
            # Nothing that model_fn does, such as a loop or a scope, is around the stores.
            with tf.control_dependencies(None):
                self._stores[name] = [
                    self._make_store(self.specs[name], ps=number, num_ps=len(self.devices), device=device)
                    for number, device in enumerate(self.devices)]
        return self._stores[name]

    def take_pending(self) -> list[Lookup]:
        """Returns the lookups since the last call."""
        pending, self._pending = self._pending, []
        return pending


def install_registry(
    devices: Sequence[str], default_rule: RowRule, make_store: Callable[..., Any] = Store, *, refuses_ids: bool = True,
) -> Registry:
    """Gives the current graph a registry, before its model is built.

    Args:
      make_store: makes the rows of a table on one ps; called as `Store` is.
      refuses_ids: see `Registry`.
    """
    found = Registry(devices, default_rule, make_store, refuses_ids)
    tf.get_default_graph().clear_collection(_COLLECTION)
    tf.add_to_collection(_COLLECTION, found)
    return found


def current_registry() -> Registry:
    """Returns the registry of the current graph."""
    found = tf.get_collection(_COLLECTION)
    # A model_fn that somebody calls by hand, in a graph of one process.
    return found[0] if found else install_registry([""], Frozen(learning_rate=0.0))


def _control_flow_context() -> object:
    return tf.get_default_graph()._get_control_flow_context()  # noqa: SLF001 (there is no public name for it)


def names_of(features: Any, labels: Any = None) -> dict[Any, str]:
    """Returns the reference of each tensor -> its name: `user`, `user/id`, `features[0]`, or `features` for one alone.

    Args:
      features, labels: tensors, or nested structures of tensors, SparseTensors and RaggedTensors.
    """
    found: dict[Any, str] = {}
    leaves = [*_named(features, "" if isinstance(features, Mapping) else "features"), *_named(labels, "labels")]
    for name, leaf in leaves:
        for part in tf.nest.flatten(leaf, expand_composites=True):
            if tf.is_tensor(part):
                found.setdefault(part.ref(), name)
    return found


def feature_of(ids: tf.Tensor, names: Mapping[Any, str]) -> str:
    """Returns the names of the features that a tensor is computed from; that of its operation if there is none."""
    found: dict[str, None] = {}
    waiting, seen = [ids], set()
    while waiting:
        one = waiting.pop()
        if one.ref() in seen:
            continue
        seen.add(one.ref())
        if one.ref() in names:
            found[names[one.ref()]] = None
        elif one.op.type not in _SHAPE_ONLY:
            inputs = list(one.op.inputs)
            waiting.extend(inputs[:1] if one.op.type in _FIRST_INPUT_ONLY else inputs[::-1])
    if not found:
        return ids.op.name
    rest = [f"{len(found) - _MAX_NAMES} more"] if len(found) > _MAX_NAMES else []
    return " or ".join([*list(found)[:_MAX_NAMES], *rest])


def _named(structure: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the name and the value of each leaf of a structure."""
    if hasattr(structure, "_asdict"):  # a NamedTuple
        structure = structure._asdict()
    if isinstance(structure, Mapping):
        for key, one in structure.items():
            yield from _named(one, f"{path}/{key}" if path else str(key))
    elif isinstance(structure, (tuple, list)):
        for number, one in enumerate(structure):
            yield from _named(one, f"{path}[{number}]")
    elif structure is not None:
        yield path, structure
