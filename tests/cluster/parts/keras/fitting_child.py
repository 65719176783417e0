"""One training in two calls of Model.fit: test_fitting.py runs these tests in a process of TensorFlow 2."""

from __future__ import annotations

import contextlib
import errno
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from ps_train.errors import UserCodeError
from ps_train.parts.keras import callbacks, checkpoints, custom_loops, fitting, inputs
from ps_train.parts.keras.plugins import KerasModel
from tests.errors import raises


class Ends(tf_keras.callbacks.Callback):
    """Notes the begin and the end of a training, and may end it."""

    def __init__(self, last_epoch=None):
        super().__init__()
        self.calls, self.last_epoch = [], last_epoch

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_train_end(self, logs=None):
        self.calls.append("end")

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(epoch)
        self.model.stop_training = epoch == self.last_epoch


def averaging_model(*, scales_loss=False):
    """Returns a model whose weights are replaced by their means at the end of a fit."""
    model = tf_keras.Sequential([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1, kernel_initializer="ones")])
    optimizer = tf_keras.optimizers.SGD(0.01, use_ema=True, ema_momentum=0.9)
    model.compile(tf_keras.mixed_precision.LossScaleOptimizer(optimizer) if scales_loss else optimizer, "mse")
    return model


BATCH = np.ones([4, 1], np.float32), np.zeros([4, 1], np.float32)


def trained(model, tmp_path, monkeypatch, *, from_step=0, train_steps=4, plugin_callbacks=(), loop=None, held_out=None,
            stop=None, strategy="default"):
    """Trains a model to a step in epochs of two steps, after it has taken some already; returns its kernel.

    Args:
      loop: the plug-in's function `train`, in place of Model.fit.
      held_out: the three batches of each validation, None for no validation.
      stop: an event that asks the process to stop.
      strategy: that of the flags; the one in fact is TensorFlow's default.
    """
    monkeypatch.setattr(callbacks, "of_plugin", lambda plugins: list(plugin_callbacks))
    config = SimpleNamespace(
        train_dir=str(tmp_path), variable_partitioner="", keep_checkpoint_max=5, strategy=strategy, batch_size=4,
        log_steps=0, save_model_steps=0, save_summaries_steps=0, validation_epochs=int(held_out is not None),
        train_steps=train_steps)
    plugins = SimpleNamespace(model=SimpleNamespace(name="mine", has_own_loop=loop is not None, train=loop),
                              model_params={}, dataset=None)
    saver = checkpoints.ModelSaver(config, plugins, True, SimpleNamespace(check=lambda: None))
    context = fitting.TrainingContext(config, None, plugins, saver, stop or threading.Event())
    model.optimizer.build(model.trainable_variables)
    for _ in range(from_step):
        model.train_on_batch(*BATCH)
    feed = inputs.Feed(tf.data.Dataset.from_tensors(BATCH).repeat(), held_out, 3)
    plan = fitting.plan_epochs(train_steps, 2, from_step)
    train = fitting.fit if loop is None else custom_loops.train_by_loop
    train(fitting.ModelTraining(context, tf.distribute.get_strategy(), model, plan, feed, from_step))
    return model.layers[0].kernel.numpy()


@pytest.mark.parametrize("scales_loss", [False, True])
def test_a_training_that_continues_within_an_epoch_ends_as_one_that_was_not_interrupted(
        tmp_path, monkeypatch, scales_loss):
    """Issue: the rest of the epoch ended with the means as weights, and the epochs after it trained on these."""
    whole = trained(averaging_model(scales_loss=scales_loss), tmp_path, monkeypatch)
    model = averaging_model(scales_loss=scales_loss)
    assert trained(model, tmp_path, monkeypatch, from_step=1) == pytest.approx(whole)
    saved = checkpoints.load_model_file(checkpoints.checkpoint_path(str(tmp_path), 4), {})
    assert saved.layers[0].kernel.numpy() == pytest.approx(whole)
    assert "finalize_variable_values" not in vars(model.optimizer)


@pytest.mark.parametrize(("last_epoch", "calls"), [(None, ["begin", 0, 1, "end"]), (0, ["begin", 0, "end"])])
def test_callbacks_of_the_plugin_see_one_training(tmp_path, monkeypatch, last_epoch, calls):
    """Issue: those that set other weights at the end, or open a file at the begin, did so twice within a training."""
    callback, model = Ends(last_epoch), averaging_model()
    kernel = trained(model, tmp_path, monkeypatch, from_step=1, plugin_callbacks=[callback])
    assert callback.calls == calls
    [mean, _] = model.optimizer._model_variables_moving_average
    assert kernel == pytest.approx(mean.numpy())  # also if the callback has ended training


def test_a_training_that_continues_says_which_callbacks_begin_anew(tmp_path, monkeypatch, caplog):
    """Issue: a ModelCheckpoint overwrote the best model, and a reduced rate was the first one again, without a word."""
    caplog.set_level("INFO")
    for from_step in (0, 1):
        trained(averaging_model(), tmp_path, monkeypatch, from_step=from_step, plugin_callbacks=[Ends()])
        assert ("Ends" in caplog.text) == (from_step > 0)


class Adds(tf_keras.callbacks.Callback):
    """Adds a metric to those of an epoch."""

    def on_epoch_end(self, epoch, logs=None):
        logs["val_own"] = 1.0


def named(kind, metric, **options):
    """Returns one of Keras' callbacks that watch a metric."""
    return getattr(tf_keras.callbacks, kind)(monitor=metric, **options)


@pytest.mark.parametrize(("make", "validates", "warning"), [
    (lambda folder: [named("EarlyStopping", "val_acc")], True, "EarlyStopping watches 'val_acc'"),
    (lambda folder: [named("ReduceLROnPlateau", "val_loss")], False, "ReduceLROnPlateau watches 'val_loss'"),
    (lambda folder: [named("ModelCheckpoint", "auc", filepath=f"{folder}/x.keras", save_best_only=True)], True,
     "ModelCheckpoint watches 'auc'"),
    (lambda folder: [named("ModelCheckpoint", "auc", filepath=f"{folder}/x.keras")], True, ""),
    (lambda folder: [named("EarlyStopping", "val_loss"), Adds(), named("ReduceLROnPlateau", "val_own")], True, ""),
])
def test_a_callback_that_watches_a_metric_which_no_epoch_has_is_named(
        tmp_path, monkeypatch, caplog, make, validates, warning):
    """Issue: it never ended training, reduced no rate, or saved nothing, and Keras' own warning is not shown."""
    trained(plain_model(), tmp_path, monkeypatch, plugin_callbacks=make(tmp_path),
            held_out=held_out(lambda: None) if validates else None)
    found = [record.getMessage() for record in caplog.records if "watches" in record.getMessage()]
    assert len(found) == bool(warning) and all(warning in text and "an epoch has loss" in text for text in found)


class Own(tf_keras.Sequential):
    """A model with an optimizer of its own."""

    def train_step(self, data):
        features, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(features) - labels))
        gradients = tape.gradient(loss, self.trainable_variables)
        for variable, gradient in zip(self.trainable_variables, gradients):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


def test_a_train_step_that_does_not_use_the_models_optimizer_is_an_error(tmp_path, monkeypatch):
    """Issue: its checkpoints were all of step 0, of which the first one stayed; the rest of training was lost."""
    model = Own([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with raises("model_optimizer_unused", kind=UserCodeError):
        trained(model, tmp_path, monkeypatch)
    assert not list(tmp_path.iterdir())


class Accumulating(tf_keras.Sequential):
    """A model with an update for two batches."""

    def __init__(self, layers, batches_before=0):
        super().__init__(layers)
        self.seen = tf.Variable(batches_before, trainable=False)
        self.compile(tf_keras.optimizers.SGD(0.01), "mse")

    def train_step(self, data):
        features, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(features) - labels))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.seen.assign_add(1)
        tf.cond(self.seen % 2 == 0, lambda: self.apply(gradients), lambda: None)
        return {"loss": loss}

    def apply(self, gradients):
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))


@pytest.mark.parametrize(("from_step", "batches_before"), [(0, 0), (1, 1)], ids=["whole", "continued"])
def test_a_model_that_accumulates_gradients_trains_to_its_end(tmp_path, monkeypatch, from_step, batches_before):
    """Issue: its checkpoints had the number of updates as their step: it ended at a fraction of --train_steps, and each
    run of the same command trained on. A rest of an epoch may have no update.
    """
    model = Accumulating([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)], batches_before)
    trained(model, tmp_path, monkeypatch, from_step=from_step, held_out=held_out(lambda: None))
    assert list(checkpoints.checkpoint_paths(str(tmp_path))) == [2, 4]
    assert int(model.seen) == 4 + batches_before and int(model.optimizer.iterations) == 2


@pytest.mark.parametrize("updates_per_step", [0, 2])
def test_a_loop_may_make_another_number_of_updates_than_steps(tmp_path, monkeypatch, updates_per_step):
    """Issue: a run that continued took the step for the number of updates: schedules of the learning rate jumped."""
    def train(strategy, model, run):
        for _ in range(4):
            for _ in range(updates_per_step):
                model.train_on_batch(*BATCH)
            run.advance(0.0)

    trained(plain_model(), tmp_path, monkeypatch, loop=train)
    model = plain_model()
    model.optimizer.build(model.trainable_variables)
    newest = checkpoints.load_newest(KerasModel("mine", None, {}), str(tmp_path))
    assert checkpoints.restore_model(model, newest) == 4
    assert int(model.optimizer.iterations) == 4 * updates_per_step


def test_scheduled_steps_count_when_their_epoch_is_over():
    """Those of parameter_server. Before, as many of them as there have been updates are known to be done."""
    model = plain_model()
    config = SimpleNamespace(batch_size=4)
    context = SimpleNamespace(config=config, plugins=SimpleNamespace(model=SimpleNamespace(name="mine")))
    plan = fitting.EpochPlan(steps_per_epoch=4, epochs=3, first_epoch=1)
    training = fitting.ModelTraining(context, tf.distribute.get_strategy(), model, plan, None, 4)
    progress = fitting.StepCounter(training, 12, log_period=0, save_period=0, counts=False)
    model.train_on_batch(*BATCH)
    assert progress.step == 5
    progress.end_epoch(4)
    assert progress.step == 8
    with raises("model_optimizer_unused", kind=UserCodeError):
        progress.end_epoch(4)


def test_metrics_are_means_over_the_replicas():
    """Numbers and arrays, in whatever order; a text stays as it is. Those that agree stay as they are, to the bit."""
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    mean_over_workers = callbacks.MeanOverWorkers(strategy)
    third = float(np.float32(1 / 3))
    means = mean_over_workers({"loss": third, "f1": np.array([0.5, 0.25], np.float32), "name": "x", "count": 2})
    assert (means["loss"], means["f1"].tolist(), means["name"], means["count"]) == (third, [0.5, 0.25], "x", 2)
    assert mean_over_workers({}) == {}


@pytest.mark.parametrize("is_loop", [False, True], ids=["fit", "loop"])
def test_the_callbacks_and_loops_of_each_worker_decide_alike(tmp_path, monkeypatch, is_loop):
    """They see the means in place of the metrics of their worker."""
    seen = []

    def train(strategy, model, run):
        seen.append(run.validate()["loss"])
        take_steps(strategy, model, run)

    callback = tf_keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"]))
    monkeypatch.setattr(callbacks, "MeanOverWorkers", lambda strategy: lambda logs: dict.fromkeys(logs, 9.0))
    trained(plain_model(), tmp_path, monkeypatch, held_out=held_out(lambda: None), strategy="multi_worker_mirrored",
            **{"loop": train} if is_loop else {"plugin_callbacks": [callback]})
    assert seen == [9.0] * len(seen) and seen


def plain_model():
    """Returns a model whose weights the end of a fit leaves as they are, so that it is saved once for each step."""
    model = tf_keras.Sequential([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.SGD(0.01), "mse")
    return model


def take_steps(strategy, model, run):
    """A loop of a plug-in's own."""
    batches = iter(run.dataset)
    while not run.is_done:
        run.advance(model.train_on_batch(*next(batches)))


def break_folder(monkeypatch, *failing):
    """Lets the saves of these numbers fail, from 0 on, or all saves. Returns the steps at which one is tried."""
    steps, write = [], checkpoints.write_model

    def write_or_fail(model, path):
        steps.append(int(model.optimizer.iterations.numpy()))
        if len(steps) - 1 in failing or not failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(model, path)

    monkeypatch.setattr(checkpoints, "write_model", write_or_fail)
    return steps


@pytest.mark.parametrize("loop", [None, take_steps], ids=["fit", "loop"])
@pytest.mark.parametrize(("failing", "saved", "steps"), [([0], [4], [2, 4]), ([1], [2, 4], [2, 4, 4])],
                         ids=["the first", "that of the last epoch"])
def test_a_save_that_fails_costs_no_training(tmp_path, monkeypatch, loop, failing, saved, steps):
    """Issue: a disk that was full for a moment ended it. The end of training tries again."""
    tried = break_folder(monkeypatch, *failing)
    trained(plain_model(), tmp_path, monkeypatch, loop=loop)
    assert list(checkpoints.checkpoint_paths(str(tmp_path))) == saved
    assert tried == steps


@pytest.mark.parametrize("loop", [None, take_steps], ids=["fit", "loop"])
@pytest.mark.parametrize(("is_stopped", "steps"), [(False, [2, 4, 4]), (True, [1])], ids=["the end", "a stop"])
def test_the_last_save_must_not_fail(tmp_path, monkeypatch, loop, is_stopped, steps):
    """That at the end, and that of a process which is asked to stop, and which else would say that it has saved."""
    tried, stop = break_folder(monkeypatch), threading.Event()
    if is_stopped:
        stop.set()
    with raises("checkpoint_not_written"):
        trained(plain_model(), tmp_path, monkeypatch, loop=loop, stop=stop)
    assert tried == steps


def held_out(call):
    """Returns three batches, for each of which it makes the call."""
    def called(features):
        call()
        return features

    def passed_on(features, labels):
        return tf.ensure_shape(tf.numpy_function(called, [features], tf.float32), features.shape), labels

    return tf.data.Dataset.from_tensors(BATCH).repeat(3).map(passed_on)


class Counting(tf_keras.Sequential):
    """Counts the batches that it was evaluated on."""

    def __init__(self, layers):
        super().__init__(layers)
        self.tested = tf.Variable(0, trainable=False)

    def test_step(self, data):
        self.tested.assign_add(1)
        return super().test_step(data)


@pytest.mark.parametrize("loop", [None, take_steps], ids=["fit", "loop"])
def test_a_process_stops_within_a_validation(tmp_path, monkeypatch, loop):
    """Issue: it went on to the end of the validation, which may take longer than --stop_timeout_secs."""
    model, stop = Counting([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)]), threading.Event()
    model.compile("sgd", "mse")
    with raises("stopped") as caught:
        trained(model, tmp_path, monkeypatch, loop=loop, held_out=held_out(stop.set), stop=stop)
    assert "stopped at step 2, and saved" in str(caught.value)
    assert list(checkpoints.checkpoint_paths(str(tmp_path))) == [2] and int(model.tested) == 1


@pytest.mark.parametrize("loop", [None, take_steps], ids=["fit", "loop"])
def test_a_validation_that_fails_costs_no_epoch(tmp_path, monkeypatch, loop):
    """Issue: Model.fit saved an epoch after its validation only. A held-out file may be broken, or the process lost."""
    def fail():
        raise ValueError("a malformed row")

    with pytest.raises(tf.errors.InvalidArgumentError, match="a malformed row"):
        trained(plain_model(), tmp_path, monkeypatch, loop=loop, held_out=held_out(fail))
    assert list(checkpoints.checkpoint_paths(str(tmp_path))) == [2]


class Spoils(tf_keras.callbacks.Callback):
    """Makes a weight NaN in the second epoch; may then end training as TerminateOnNaN does, and restore the weights."""

    def __init__(self, *, ends=False, restores=False):
        super().__init__()
        self.ends, self.restores, self.sound = ends, restores, None

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.sound = self.model.get_weights()
            self.model.layers[0].kernel.assign([[np.nan]])

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.ends and self.sound is not None

    def on_train_end(self, logs=None):
        if self.restores:
            self.model.set_weights(self.sound)


def take_spoilt_steps(strategy, model, run):
    """A loop whose weights are not finite from the third step on."""
    run.advance(0.0, num_steps=2)
    model.layers[0].kernel.assign([[np.inf]])
    run.advance(0.0, num_steps=2)


@pytest.mark.parametrize("options", [
    {"plugin_callbacks": [Spoils()]}, {"plugin_callbacks": [Spoils(ends=True)]}, {"loop": take_spoilt_steps}],
    ids=["fit", "ended by a callback", "loop"])
def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path, monkeypatch, options):
    """Issue: training went on with NaN, replaced all sound checkpoints, and ended with 0."""
    with raises("not_finite", kind=UserCodeError) as caught:
        trained(plain_model(), tmp_path, monkeypatch, train_steps=6, **options)
    assert "kernel" in str(caught.value)
    assert list(checkpoints.checkpoint_paths(str(tmp_path))) == [2]


def test_callbacks_may_end_training_at_nan_with_the_weights_before(tmp_path, monkeypatch):
    """TerminateOnNaN beside EarlyStopping(restore_best_weights=True), whose weights are those of the end."""
    callback = Spoils(ends=True, restores=True)
    kernel = trained(plain_model(), tmp_path, monkeypatch, train_steps=6, plugin_callbacks=[callback])
    assert kernel == callback.sound[0]
    assert list(checkpoints.checkpoint_paths(str(tmp_path))) == [2, 3]


@pytest.mark.parametrize(("made_of", "got"), [
    (lambda losses: None, "NoneType"), (lambda losses: losses, "a tensor of the shape (4,)"),
    (lambda losses: {"loss": tf.reduce_mean(losses)}, "dict")])
def test_a_train_step_of_the_plugin_returns_one_number(made_of, got):
    """Issue: without `return`, or with the losses of the examples, it was a traceback without a line of the user's."""
    def train_step(model, features, labels):
        return made_of(tf.square(model(features)[:, 0] - labels[:, 0]))

    execute = custom_loops._execution(tf.distribute.get_strategy(), plain_model(), train_step)
    with raises("plugin_returned_wrong_type", kind=UserCodeError) as caught:
        execute(iter(tf.data.Dataset.from_tensors(BATCH).repeat()), 2)
    assert f"train_step returned {got};" in str(caught.value)


def test_a_class_of_the_user_without_an_input_shape_is_told_what_it_can_do():
    """It has no Input layer to begin with."""
    model = type("Mine", (tf_keras.Model,), {})()
    model.compile("sgd", "mse")
    with raises("model_not_compiled") as caught:
        checkpoints.build_model(KerasModel("mine", lambda params: model, {}), {})
    assert "call it once on a batch" in str(caught.value)


@pytest.mark.parametrize(("aggregation", "is_refused"), [("NONE", True), ("SUM", False)])
def test_a_variable_that_no_checkpoint_could_have_is_refused(aggregation, is_refused):
    """Issue: Keras' default for a variable that is synchronised on read was an error at the first save only."""
    def build(params):
        model = plain_model()
        model.layers[0].add_weight("own", (), trainable=False, synchronization=tf.VariableSynchronization.ON_READ,
                                   aggregation=tf.VariableAggregation[aggregation])
        return model

    refused = raises("variable_without_aggregation") if is_refused else contextlib.nullcontext()
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope(), refused:
        checkpoints.build_model(KerasModel("mine", build, {}), {})
