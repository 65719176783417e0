"""What the ids of a lookup are called in messages: the key of the feature that they come from.

    features, labels --> names_of   --> tensor -> "user"
    ids              --> feature_of --> "user", after whatever operations
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

_MAX_NAMES = 4  # ids of many features are told by the first ones
# Their other inputs say which elements or what shape, and may come from another feature.
_FIRST_INPUT_ONLY = {"GatherNd", "GatherV2", "Reshape", "Slice", "StridedSlice", "Tile"}
_SHAPE_ONLY = {"Rank", "Shape", "ShapeN", "Size"}


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
