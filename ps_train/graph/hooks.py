"""Runs a model's SessionRunHooks around the steps of a session, as TensorFlow's MonitoredSession does.

    graph built      begin()
    session ready    after_create_session(session)        again after a lost session
    each step        before_run --> session.run(the step's fetches and the hooks') --> after_run
    training ends    end(session)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.plugins.contracts import ModelSpec

# ps_train saves by itself, and has no hook for synchronous updates.
_REPLACED = ("CheckpointSaverHook", "_SyncReplicasOptimizerHook", "SyncReplicasHook")
# They need tensors of the model, which a round of local steps computes in its loop only.
_LOGGING = ("LoggingTensorHook", "SummarySaverHook", "NanTensorHook", "ProfilerHook")
_WITHOUT_TENSORS = ("StopAtStepHook", "StepCounterHook")
_log = logging.getLogger(__name__)


class Hooks:
    """The hooks of one graph.

    Attributes:
      should_stop: whether a hook has asked for the end of training.
    """

    def __init__(self, hooks: Sequence[tf.train.SessionRunHook] = ()) -> None:
        """Begins the hooks, which may add to the current graph."""
        self._hooks = list(hooks)
        self.should_stop = False
        for hook in self._hooks:
            hook.begin()

    def start(self, session: tf.Session) -> None:
        """Tells the hooks that there is a new session, whose variables are initialised."""
        for hook in self._hooks:
            hook.after_create_session(session, tf.train.Coordinator())

    def end(self, session: tf.Session) -> None:
        """Tells the hooks that training, or evaluation, has ended well."""
        for hook in self._hooks:
            hook.end(session)

    def around(self, session: tf.Session) -> Any:
        """Returns something with the session's `run`, around which the hooks run."""
        return _HookedSession(self, session) if self._hooks else session

    def run(
        self, session: tf.Session, fetches: Any, options: tf.RunOptions | None, run_metadata: tf.RunMetadata | None
    ) -> Any:
        """Runs a step with the hooks; returns what `fetches` give."""
        context = tf.train.SessionRunContext(tf.train.SessionRunArgs(fetches), session)
        asked = {f"hook {number}": hook.before_run(context) for number, hook in enumerate(self._hooks)}
        wanted = {name: one.fetches for name, one in asked.items() if one is not None and one.fetches is not None}
        feed = {tensor: value for one in asked.values() if one is not None
                for tensor, value in (one.feed_dict or {}).items()}
        options = tf.RunOptions.FromString(options.SerializeToString()) if options else tf.RunOptions()
        for one in asked.values():
            if one is not None and one.options is not None:
                options.MergeFrom(one.options)
                run_metadata = run_metadata or tf.RunMetadata()
        found = session.run({"step": fetches, **wanted}, feed, options, run_metadata)
        for name, hook in zip(asked, self._hooks):
            hook.after_run(context, tf.train.SessionRunValues(found.get(name), options, run_metadata))
        self.should_stop = self.should_stop or context.stop_requested
        return found["step"]


class _HookedSession:
    def __init__(self, hooks: Hooks, session: tf.Session) -> None:
        self._hooks = hooks
        self._session = session

    def run(
        self, fetches: Any, options: tf.RunOptions | None = None, run_metadata: tf.RunMetadata | None = None
    ) -> Any:
        """Runs a step; see `tf.compat.v1.Session.run`."""
        return self._hooks.run(self._session, fetches, options, run_metadata)


def training_hooks(spec: ModelSpec, *, is_chief: bool, is_in_rounds: bool) -> Hooks:
    """Returns the hooks of a model's training that run here; see `usable`."""
    own = [*spec.training_hooks, *(spec.training_chief_hooks if is_chief else ())]
    return Hooks(usable(own, is_in_rounds=is_in_rounds))


def usable(hooks: Sequence[tf.train.SessionRunHook], *, is_in_rounds: bool = False) -> list[tf.train.SessionRunHook]:
    """Returns the hooks that run here, and logs which do not.

    Args:
      is_in_rounds: whether a session run makes a round of local steps.

    Raises:
      UserCodeError: a hook may need the mini-batch of each step, and a round has no place for it.
    """
    kept = [hook for hook in hooks if not _is_a(hook, _REPLACED)]
    if any(_is_a(hook, _REPLACED[:1]) for hook in hooks):
        _log.info("the model's CheckpointSaverHook is not used: ps_train saves, see --save_model_secs")
    if not is_in_rounds:
        return kept
    dropped = [hook for hook in kept if _is_a(hook, _LOGGING)]
    if dropped:
        _log.warning("--communication_period: the model's %s is not used, because the tensors of a step stay in its "
                     "round", ", ".join(sorted({type(hook).__name__ for hook in dropped})))
    kept = [hook for hook in kept if hook not in dropped]
    for hook in kept:
        if not _is_a(hook, _WITHOUT_TENSORS):
            raise UserCodeError(f"--communication_period: the model's hook {type(hook).__name__} may need each step, "
                                "and a session run makes a round of several; leave the flag or the hook out")
    return kept


def _is_a(hook: tf.train.SessionRunHook, names: Sequence[str]) -> bool:
    return any(one.__name__ in names for one in type(hook).__mro__)


def local_init_ops(scaffold: Any) -> list[tf.Operation]:
    """Returns what a `tf.compat.v1.train.Scaffold`, or None, initialises in each session.

    Raises:
      UserCodeError: it has an init_op, a ready_op or a feed.
    """
    for name in ("init_op", "init_feed_dict", "ready_op", "ready_for_local_init_op", "local_init_feed_dict"):
        if getattr(scaffold, name, None) is not None:
            raise UserCodeError(f"model_fn returned a scaffold with {name}; ps_train initialises all global variables "
                                "by itself, and runs init_fn and local_init_op of a scaffold: use these")
    local_init_op = getattr(scaffold, "local_init_op", None)
    return [] if local_init_op is None else [local_init_op]
