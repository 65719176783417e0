"""The flags of embedding tables."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ps_train.config import fields
from ps_train.config.groups import WIRE_DTYPES
from ps_train.errors import Problem

EMBEDDING_OPTIMIZERS = ("sgd", "momentum", "adagrad", "rowwise_adagrad", "ftrl", "adam")

_EMBEDDINGS = "Embedding tables"
_field = fields.field


@dataclasses.dataclass(frozen=True)
class EmbeddingFlags:
    """The tables that a model makes with ps_train.embedding_table."""

    embedding_optimizer: Optional[str] = _field(
        None, _EMBEDDINGS, "Rule that updates the rows of embedding tables.", choices=EMBEDDING_OPTIMIZERS,
        unset="that of --optimizer; adagrad for rmsprop", is_shared=True)
    embedding_learning_rate: Optional[float] = _field(
        None, _EMBEDDINGS, "Learning rate of embedding tables.", above=0, unset="--learning_rate", is_shared=True)
    embedding_wire_dtype: str = _field(
        "as_is", _EMBEDDINGS, "Type that the rows of embedding tables and their gradients are rounded to for transfer.",
        choices=WIRE_DTYPES)
    exact_embedding_updates: bool = _field(
        True, _EMBEDDINGS, "Let one update at a time change a table on a ps, so that none is lost. Without it, the "
        "updates of async workers to the same rows of a table with num_rows may undo each other's.")
    save_delta_secs: float = _field(
        0.0, _EMBEDDINGS, "Time between deltas: what has changed since the last checkpoint, of embedding tables only "
        "the changed rows; 0 saves none.", unit="seconds", minimum=0, maximum=10**9)
    sum_embedding_gradients: bool = _field(
        False, _EMBEDDINGS, "Sum a row's gradients over the workers that have it; by default they are averaged, as "
        "TensorFlow does (with --sync_replicas).", is_shared=True)
    async_embeddings: bool = _field(
        False, _EMBEDDINGS, "Update rows of embedding tables with each worker's gradients as they come, while the "
        "gradients of the dense variables are aggregated (with --sync_replicas).", is_shared=True)

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each conflict with another flag."""
        problems = self._async_problems(config)
        if self.save_delta_secs and not config.save_model_secs and not config.save_model_steps:
            problems.append(Problem("flag_without_effect", (
                f"--save_delta_secs: got {self.save_delta_secs:g} with --save_model_secs=0 and --save_model_steps=0, "
                "but a delta follows a checkpoint, and there is none before the end; give one of them a number above "
                "0, or leave this flag out")))
        if self.sum_embedding_gradients and not config.sync_replicas:
            problems.append(Problem("flag_without_effect", (
                "--sum_embedding_gradients: has an effect only with --sync_replicas; add that flag")))
        if self.sum_embedding_gradients and config.communication_period > 1:
            problems.append(Problem("flags_conflict", (
                "--sum_embedding_gradients: given with --communication_period, whose rounds push rows with their "
                "slots, not gradients; leave one of them out")))
        if self.sum_embedding_gradients and getattr(config, "sync_engine", None) == "tensorflow":
            problems.append(Problem("flags_conflict", (
                "--sync_engine: got 'tensorflow' with --sum_embedding_gradients, but TensorFlow's "
                "SyncReplicasOptimizer averages all gradients; leave one of them out")))
        return problems

    def _async_problems(self, config: Any) -> list[Problem]:
        if not self.async_embeddings:
            return []
        if not config.sync_replicas:
            return [Problem("flag_without_effect", (
                "--async_embeddings: has an effect only with --sync_replicas; without that flag, all updates are "
                "asynchronous"))]
        reasons = {
            "--sum_embedding_gradients": (
                self.sum_embedding_gradients, "which is about gradients that are aggregated"),
            "--communication_period": (
                config.communication_period > 1, "whose rounds aggregate changes of rows with those of the variables"),
            "--sync_engine=tensorflow": (
                getattr(config, "sync_engine", None) == "tensorflow", "whose optimizer aggregates all gradients"),
            "--clip_norm": (
                getattr(config, "clip_norm", None) is not None,
                "which needs the mean gradients of rows and variables together"),
        }
        return [Problem("flags_conflict", f"--async_embeddings: given with {flag}, {reason}; leave one of them out")
                for flag, (is_given, reason) in reasons.items() if is_given]
