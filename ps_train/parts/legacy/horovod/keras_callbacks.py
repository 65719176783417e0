"""`hvd.callbacks`: what the ranks of a Keras script do together around batches and epochs.

    BroadcastGlobalVariablesCallback   before the first batch: all variables get the values of rank 0
    MetricAverageCallback              after an epoch: its metrics are their means over the ranks
    LearningRateScheduleCallback       lr = initial_lr * multiplier(epoch)
    LearningRateWarmupCallback         lr grows from initial_lr / size to initial_lr

The learning rates are those of https://arxiv.org/abs/1706.02677, with its momentum correction: when the rate changes,
the momentum of that batch is multiplied by new rate / old rate.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.parts.legacy.horovod import keras_values
from ps_train.parts.legacy.horovod import module as hvd

_K = tf.keras.backend
_SCHEDULE = ("start_epoch", "end_epoch", "staircase", "momentum_correction", "steps_per_epoch", "initial_lr")
_WARMUP = ("warmup_epochs", "momentum_correction", "steps_per_epoch", "verbose", "initial_lr")


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Gives all global variables the values of rank 0 when training begins, those of the optimizer too."""

    def __init__(self, root_rank: int, device: str = "", **kwargs: Any) -> None:
        """Takes the root, which must be 0; the device does nothing."""
        super().__init__()
        hvd.check_root("BroadcastGlobalVariablesCallback", root_rank)
        self._is_done = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts, unless the model will be built from its first batch."""
        self._is_done = False
        if self.model.inputs:
            self.model._make_train_function()  # noqa: SLF001 (of Keras 2; it makes the optimizer's variables)
            self._broadcast()

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts if that was not possible before."""
        if not self._is_done:
            self._broadcast()

    def _broadcast(self) -> None:
        self._is_done = True
        keras_values.broadcast_values(model=self.model)


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their means over all ranks; callbacks behind this one see these."""

    def __init__(self, device: str = "") -> None:
        """The device does nothing."""
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Exchanges the metrics."""
        logs = {} if logs is None else logs
        logs.update(keras_values.mean_metrics(
            {name: float(value) for name, value in logs.items() if isinstance(value, numbers.Real)}))


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` from `start_epoch` until before `end_epoch`.

    The rate changes at the first batch of each epoch, or with `staircase=False` at each batch, where the epoch is a
    fraction.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes Horovod's arguments, in the order of any of its versions.

        Before 0.21 the first one was the multiplier, and `initial_lr` the last; since then `initial_lr` is the first.

        Args:
          args, kwargs: `multiplier`, a number or a function of the epoch; `start_epoch`, `end_epoch`, in epochs;
            `staircase`; `momentum_correction`; `steps_per_epoch`, if Keras does not know it; `initial_lr`, that of the
            optimizer when training begins if None.
        """
        super().__init__()
        is_new = "multiplier" in kwargs or (len(args) > 1 and not callable(args[0]) and _is_multiplier(args[1], kwargs))
        names = ("initial_lr", "multiplier", *_SCHEDULE) if is_new else ("multiplier", *_SCHEDULE)
        given = _named("LearningRateScheduleCallback", names, args, kwargs)
        if "multiplier" not in given:
            raise ConfigError("horovod_argument", "hvd.callbacks.LearningRateScheduleCallback: got no multiplier; "
                              "allowed: a number, or a function of the epoch")
        multiplier = given["multiplier"]
        self._set_up(multiplier if callable(multiplier) else lambda epoch: multiplier, **{
            name: given[name] for name in _SCHEDULE if name in given})

    def _set_up(self, multiplier: Callable[[float], float], start_epoch: int = 0, end_epoch: int | None = None,
                staircase: bool = True, momentum_correction: bool = True, steps_per_epoch: int | None = None,
                initial_lr: float | None = None) -> None:
        self.multiplier, self.start_epoch, self.end_epoch = multiplier, start_epoch, end_epoch
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch, self.initial_lr = steps_per_epoch, initial_lr
        self.current_epoch = 0
        self._restored_momentum: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Takes the initial learning rate, and the number of steps, which `staircase=False` needs.

        Raises:
          ConfigError: Keras does not know how many steps an epoch has.
        """
        if self.initial_lr is None:
            self.initial_lr = float(_K.get_value(self.model.optimizer.lr))
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = _steps_of(self.params)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(epoch)

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = float(_K.get_value(optimizer.lr)), self.initial_lr * self.multiplier(epoch)
        _K.set_value(optimizer.lr, new)
        momentum = float(_K.get_value(optimizer.momentum)) if hasattr(optimizer, "momentum") else 0.0
        if self.momentum_correction and momentum and old:
            self._restored_momentum = momentum
            _K.set_value(optimizer.momentum, momentum * new / old)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes back the correction of the momentum."""
        if self._restored_momentum is not None:
            _K.set_value(self.model.optimizer.momentum, self._restored_momentum)
            self._restored_momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the learning rate to the metrics, as `lr`."""
        if logs is not None:
            logs["lr"] = float(_K.get_value(self.model.optimizer.lr))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Lets the learning rate grow from `initial_lr / size` to `initial_lr` in the first epochs, batch by batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes Horovod's arguments, in the order of any of its versions.

        Args:
          args, kwargs: `warmup_epochs`, 5 epochs by default; `momentum_correction`; `steps_per_epoch`; `verbose`, 1 to
            print the rate at the end; `initial_lr`, which is the first one since 0.21.
        """
        is_new = bool(args) and (len(args) > 1 and not isinstance(args[1], bool) or "warmup_epochs" in kwargs
                                 or not isinstance(args[0], numbers.Integral))
        given = _named("LearningRateWarmupCallback", ("initial_lr", *_WARMUP) if is_new else _WARMUP, args, kwargs)
        self._warmup_epochs, self._verbose = given.pop("warmup_epochs", 5), given.pop("verbose", 0)
        tf.keras.callbacks.Callback.__init__(self)
        self._set_up(self._grown, end_epoch=self._warmup_epochs, staircase=False, **given)

    def _grown(self, epoch: float) -> float:
        # The last batch of the warm-up has the whole rate.
        share = (epoch + 1 / self.steps_per_epoch) / self._warmup_epochs
        return (1 + share * (hvd.size() - 1)) / hvd.size()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Prints the rate once the warm-up is over."""
        super().on_epoch_end(epoch, logs)
        if epoch == self._warmup_epochs - 1 and self._verbose:
            rate = float(_K.get_value(self.model.optimizer.lr))
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.", flush=True)


def _is_multiplier(value: Any, kwargs: Any) -> bool:
    """Returns whether a second argument is the multiplier, not the epoch at which it begins."""
    return callable(value) or "start_epoch" in kwargs or not isinstance(value, numbers.Integral)


def _named(function: str, names: Sequence[str], args: Sequence[Any], kwargs: Any) -> dict[str, Any]:
    """Returns name -> argument.

    Raises:
      ConfigError: there are too many, or one has another name.
    """
    names = tuple(dict.fromkeys(names))
    unknown = [*args[len(names):], *(kwargs.keys() - set(names))]
    if unknown:
        raise ConfigError("horovod_argument", f"hvd.callbacks.{function}: got {unknown[0]!r} too much; allowed: "
                          f"{', '.join(names)}")
    return {**dict(zip(names, args)), **kwargs}


def _steps_of(params: Any) -> int:
    """Returns how many batches an epoch has.

    Raises:
      ConfigError: Keras does not know it.
    """
    if params.get("steps"):
        return params["steps"]
    if params.get("samples") and params.get("batch_size"):
        return max(1, params["samples"] // params["batch_size"])
    raise ConfigError("horovod_argument", "hvd.callbacks: Keras does not know how many steps an epoch has; allowed: "
                      "steps_per_epoch=NUMBER in this callback")
