"""DeepRec's names and arguments that are about speed only: they are taken, and change nothing.

    fused_embedding_lookup_sparse, group_embedding_lookup_sparse, ...   the lookups without "fused" and "group"
    group_embedding_column_scope, coalesced_scope, do_fusion, staged    nothing: lookups are one transfer per ps anyway
    executor_policy and other fields of ConfigProto                     nothing
    incremental checkpoints                                             nothing: checkpoints are whole
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NoReturn

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError

# Fields of ConfigProto, or of messages inside it, that only DeepRec has.
FIELDS = frozenset((
    "do_smart_stage", "do_smart_stage_gpu", "do_op_fusion", "micro_batch_num", "stage_subgraph_on_cpu",
    "stage_multi_stream", "smart_stage", "do_async_embedding", "cpu_placement", "executor_policy", "tensor_fuse"))
_ARGUMENTS = frozenset((
    "do_fusion", "coalesced_scope", "incremental_save_restore", "incremental_include_normal_var",
    "save_incremental_checkpoint_secs"))
_log = logging.getLogger(__name__)


class ExecutorPolicy:
    """DeepRec's executors; TensorFlow has one."""

    USE_NORMAL_EXECUTOR, USE_COST_MODEL_EXECUTOR, USE_INLINE_EXECUTOR = range(3)


def set_field(original: Callable, message: Any, name: str, value: Any) -> None:
    """Sets a field of a message, and leaves one of DeepRec."""
    if name in FIELDS:
        _log.info("ConfigProto: %s=%s of DeepRec, which is about speed, has no effect", name, value)
    else:
        original(message, name, value)


def without_arguments(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Leaves out the arguments of DeepRec that are about speed only."""
    left_out = {argument: value for argument, value in kwargs.items() if argument in _ARGUMENTS}
    if any(value for argument, value in left_out.items() if "incremental" in argument):
        _log.warning("%s: DeepRec's incremental checkpoints are not written; a restart goes on from the last whole "
                     "checkpoint, so save these more often", getattr(original, "__qualname__", original))
    return original(*args, **{argument: value for argument, value in kwargs.items() if argument not in left_out})


def refuse_incremental(*_: Any, **__: Any) -> NoReturn:
    """Is DeepRec's `incremental_saver._get_incremental_saver`."""
    raise UserCodeError("bad_embedding_option", "incremental_saver: an incremental checkpoint is asked for; ps_train "
                        "writes whole ones; use tf.train.Saver.save")


def fused_embedding_lookup_sparse(
    params: Any, sp_ids: Any, sparse_weights: Any = None, partition_strategy: Any = None, name: str | None = None,
    combiner: str | None = None, max_norm: Any = None, **others: Any,
) -> tf.Tensor:
    """`tf.nn.embedding_lookup_sparse`."""
    weights = others.pop("sp_weights", sparse_weights)
    _refuse(others, "fused_embedding_lookup_sparse", ("default_id", "prune_invalid_ids", "blocknums"))
    strategy = {} if partition_strategy is None else {"partition_strategy": partition_strategy}
    return tf.nn.embedding_lookup_sparse(
        params, sp_ids, weights, name=name, combiner=combiner or "mean", max_norm=max_norm, **strategy)


def fused_safe_embedding_lookup_sparse(
    embedding_weights: Any, sparse_ids: Any, sparse_weights: Any = None, combiner: str | None = None,
    default_id: Any = None, name: str | None = None, partition_strategy: str = "div", max_norm: Any = None,
    prune: bool = True, **others: Any,
) -> tf.Tensor:
    """`tf.nn.safe_embedding_lookup_sparse`; `prune` says whether it leaves ids out, as TensorFlow's own always does."""
    _refuse(others, "fused_safe_embedding_lookup_sparse", ("blocknums",))
    return tf.nn.safe_embedding_lookup_sparse(
        embedding_weights, sparse_ids, sparse_weights, combiner or "mean", default_id, name, partition_strategy,
        max_norm, prune=prune)


def _refuse(others: dict[str, Any], name: str, without_effect: Sequence[str]) -> None:
    """Raises UserCodeError for an argument that a lookup does not have."""
    unknown = [argument for argument, value in others.items() if value is not None and argument not in without_effect]
    if unknown:
        raise UserCodeError("bad_embedding_option", f"{name}: got {', '.join(unknown)}; leave them out")


def group_embedding_lookup(
    params: Sequence[Any], ids: Sequence[Any], partition_strategy: str = "mod", name: str | None = None
) -> list[tf.Tensor]:
    """Returns `tf.nn.embedding_lookup` of each variable."""
    del partition_strategy, name
    return [tf.nn.embedding_lookup(variable, of_variable) for variable, of_variable in _pairs(params, ids)]


def group_embedding_lookup_sparse(
    params: Sequence[Any], sp_ids: Sequence[Any], combiners: Any = "mean", sp_weights: Any = None,
    partition_strategy: str = "mod", is_sequence: bool = False, params_num_per_group: int = 0, name: str | None = None,
) -> list[tf.Tensor]:
    """Returns `tf.nn.safe_embedding_lookup_sparse` of each variable."""
    del partition_strategy, is_sequence, params_num_per_group, name
    pairs = _pairs(params, sp_ids)
    combiners = [combiners] * len(pairs) if isinstance(combiners, str) else combiners
    weights = sp_weights or [None] * len(pairs)
    return [tf.nn.safe_embedding_lookup_sparse(variable, ids, of_ids, combiner=combiner)
            for (variable, ids), of_ids, combiner in zip(pairs, weights, combiners)]


def _pairs(params: Sequence[Any], ids: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(params) != len(ids):
        raise UserCodeError("bad_embedding_option", f"group_embedding_lookup: got {len(params)} variables and "
                            f"{len(ids)} ids; allowed: ids for each variable")
    return list(zip(params, ids))


@contextlib.contextmanager
def group_embedding_column_scope(*_: Any, **__: Any) -> Iterator[None]:
    """Is a scope in which columns are as elsewhere: their lookups are one transfer per ps in any case."""
    yield


def enable_distributed_strategy(strategy: str = "localized", *_: Any, **__: Any) -> None:
    """Takes DeepRec's grouped lookups within one process.

    Raises:
      UserCodeError: the strategy is another one, which spreads tables over GPUs.
    """
    if strategy != "localized":
        raise UserCodeError("bad_embedding_option", f"enable_distributed_strategy: got strategy={strategy!r}; allowed: "
                            "'localized'; tables are on the ps, so leave the call out")


def staged(features: Any, *_: Any, **__: Any) -> Any:
    """Returns features as they are: DeepRec computes them ahead, as `dataset.prefetch` does."""
    return features


def make_prefetch_hook(*_: Any, **__: Any) -> tf.train.SessionRunHook:
    """Returns a hook that does nothing: it would start the threads of `staged`."""
    return tf.train.SessionRunHook()
