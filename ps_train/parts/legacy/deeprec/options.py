"""What a script says about an embedding variable, with DeepRec's names and arguments.

    EmbeddingVariableOption(evict_option, filter_option, init_option, ...) --> TableSpec
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables import hashing
from ps_train.parts.tables.hashing import Initial
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.tables.tables import initial_of

# Classes of initializers that scale by the shape -> the distribution of those whose configuration does not say it.
_SCALED = {"GlorotUniform": "uniform", "GlorotNormal": "truncated_normal", "VarianceScaling": ""}
# The classes that DeepRec also has in tensorflow.python.ops.variables.
NAMES = ("CBFFilter", "CheckpointOption", "CounterFilter", "EmbeddingVariableOption", "GlobalStepEvict",
         "InitializerOption", "L2WeightEvict", "StorageOption")
_DEFAULT_VALUES = 4096  # DeepRec draws so many first values at once, and an initializer sees that shape


@dataclasses.dataclass
class GlobalStepEvict:
    """At each save, drops the rows that so many updates of the variable did not touch."""

    steps_to_live: Optional[int] = None


@dataclasses.dataclass
class L2WeightEvict:
    """At each save, drops the rows of which half the sum of squares is smaller, as in DeepRec; -1 keeps all."""

    l2_weight_threshold: float = -1.0


@dataclasses.dataclass
class CounterFilter:
    """A row is made in the update that sees its id for the `filter_freq`-th time."""

    filter_freq: int = 0


@dataclasses.dataclass
class CBFFilter:
    """The same; a table always counts ids without a row by hash, so the other arguments have no effect."""

    filter_freq: int = 0
    max_element_size: int = 0
    false_positive_probability: float = -1.0
    counter_type: Any = tf.uint64


@dataclasses.dataclass
class InitializerOption:
    """First values. A first value is computed from its id, so the size of a pool of them has no effect.

    With a filter, ids without a row are read as `default_value_no_permission`.
    """

    initializer: Any = None
    default_value_dim: int = _DEFAULT_VALUES
    default_value_no_permission: float = 0.0


class StorageType(enum.IntEnum):
    """Where DeepRec stores rows, with its numbers."""

    INVALID = 0
    DRAM = 1
    PMEM_MEMKIND = 2
    PMEM_LIBPMEM = 3
    SSDHASH = 4
    LEVELDB = 5
    HBM = 6
    DRAM_PMEM = 11
    DRAM_SSDHASH = 12
    HBM_DRAM = 13
    DRAM_LEVELDB = 14
    HBM_DRAM_SSDHASH = 31


@dataclasses.dataclass
class StorageOption:
    """Where rows are stored; a table is in the memory of the ps."""

    storage_type: Any = None
    storage_path: Optional[str] = None
    storage_size: Any = None
    cache_strategy: Any = None
    layout: Any = None


@dataclasses.dataclass
class CheckpointOption:
    """A checkpoint with which the variable begins."""

    ckpt_to_load_from: Optional[str] = None
    tensor_name_in_ckpt: Optional[str] = None
    always_load_from_specific_ckpt: bool = False
    init_data_source: Optional[str] = None


@dataclasses.dataclass
class EmbeddingVariableOption:
    """All options of a variable. How a hash table is made, `ht_type` and `ht_partition_num`, has no effect."""

    ht_type: str = ""
    ht_partition_num: int = 1000
    evict_option: Any = None
    ckpt: Optional[CheckpointOption] = None
    filter_option: Any = None
    storage_option: Optional[StorageOption] = None
    init_option: Optional[InitializerOption] = None


def table_spec(
    name: str, dim: int, options: EmbeddingVariableOption, initializer: Any, steps_to_live: Optional[int],
) -> TableSpec:
    """Returns the table for an embedding variable; its rule comes from an optimizer.

    Raises:
      UserCodeError: an option asks for what a table does not have; the text says what to use.
    """
    _refuse_others(name, options)
    init = options.init_option or InitializerOption()
    min_count = max(1, int(getattr(options.filter_option, "filter_freq", 0)))
    steps_to_live = getattr(options.evict_option, "steps_to_live", None) or steps_to_live
    return TableSpec(name=name, dim=dim, initial=_initial(name, dim, init.initializer or initializer),
                     min_count=min_count, ttl_steps=steps_to_live or None,
                     unseen=float(init.default_value_no_permission) if min_count > 1 else None)


def l2_threshold(options: EmbeddingVariableOption) -> float:
    """Returns the norm below which a row is dropped at a save; 0 keeps all."""
    # DeepRec compares 0.5 * |row|^2 (tensorflow/core/framework/embedding/l2weight_shrink_policy.h).
    return math.sqrt(2 * max(0.0, float(getattr(options.evict_option, "l2_weight_threshold", 0.0))))


def _refuse_others(name: str, options: EmbeddingVariableOption) -> None:
    def refuse(got: str, advice: str) -> None:
        raise UserCodeError("bad_embedding_option", f"embedding variable {name!r}: got {got}; {advice}")

    storage = options.storage_option
    if storage is not None and (storage.storage_path or _storage_name(storage.storage_type) not in ("", "DRAM")):
        refuse(f"storage_type={storage.storage_type!r}", "allowed: DRAM; rows are in the memory of the ps, so use more "
               "ps, or an evict_option")
    if options.ckpt is not None:
        refuse("ckpt", "allowed: None; put the checkpoint into the script's checkpoint folder, from where a table is "
               "restored")
    for option, kinds in ((options.filter_option, (CounterFilter, CBFFilter)),
                          (options.evict_option, (GlobalStepEvict, L2WeightEvict))):
        if option is not None and not isinstance(option, kinds):
            refuse(f"an option of type {type(option).__name__}",
                   f"allowed: {', '.join('tf.' + kind.__name__ for kind in kinds)}")


def _storage_name(storage_type: Any) -> str:
    return "" if storage_type is None else str(getattr(storage_type, "name", storage_type))


def _initial(name: str, dim: int, initializer: Any) -> Initial:
    """Returns the distribution of first values; without an initializer, that of `tf.truncated_normal_initializer()`."""
    if initializer is None:
        return Initial(hashing.TRUNCATED_NORMAL, 0.0, 1.0)
    found = initial_of(initializer) or _scaled_initial(dim, initializer)
    if found is None:
        kind = initializer if isinstance(initializer, type) else type(initializer)
        raise UserCodeError("bad_embedding_option", (
            f"embedding variable {name!r}: got an initializer of type {kind.__name__}; allowed: "
            "tf.random_uniform_initializer, zeros, ones, constant with one number, truncated_normal, and those of the "
            "glorot, lecun and he families"))
    return found


def _scaled_initial(dim: int, initializer: Any) -> Initial | None:
    """Returns what a variance scaling initializer, such as glorot_uniform, gives for DeepRec's pool of first values."""
    try:
        initializer = initializer() if isinstance(initializer, type) else initializer
        config = initializer.get_config()
        names = [kind.__name__ for kind in type(initializer).__mro__]
        scale, mode, distribution = _scaling(next(name for name in names if name in _SCALED), config)
        fans = {"fan_in": _DEFAULT_VALUES, "fan_out": dim, "fan_avg": (_DEFAULT_VALUES + dim) / 2}
        variance = scale / max(1.0, fans[mode])
    except (AttributeError, KeyError, TypeError, StopIteration):  # of another kind
        return None
    if distribution == "uniform":
        return Initial(hashing.UNIFORM, 0.0, math.sqrt(3 * variance))
    if distribution in ("truncated_normal", "normal"):
        # TensorFlow divides by the standard deviation of a normal distribution that is cut off at 2.
        return Initial(hashing.TRUNCATED_NORMAL, 0.0, math.sqrt(variance) / 0.87962566103423978)
    return None


def _scaling(kind: str, config: dict[str, Any]) -> tuple[float, str, str]:
    if "distribution" in config:
        return float(config["scale"]), config["mode"], config["distribution"]
    return 1.0, "fan_avg", _SCALED[kind]
