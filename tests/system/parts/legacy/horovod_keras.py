"""A Horovod script with Keras, which calls its optimizer, its callbacks and its functions.

The ranks begin with different weights, and see different rows. All ranks print what a test computes for itself.
"""

import argparse

import horovod.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.keras.callbacks import MetricAverageCallback
from keras import backend as K  # noqa: N812 (its usual name)

BATCH, STEPS, EPOCHS, ROWS = 4, 3, 2, 7
RATE, MOMENTUM = 0.1, 0.9


def data(rank):
    """Returns the rows of a table, values and targets, of all batches of a rank."""
    random = np.random.RandomState(rank)
    return (random.randint(ROWS, size=[BATCH * STEPS, 1]), random.normal(size=[BATCH * STEPS, 2]).astype(np.float32),
            random.normal(size=[BATCH * STEPS, 1]).astype(np.float32))


def batches():
    rows, values, targets = data(hvd.rank())
    while True:
        for first in range(0, len(rows), BATCH):
            yield [rows[first:first + BATCH], values[first:first + BATCH]], targets[first:first + BATCH]


def make_model():
    """The prediction is the product of the weights and (value + row of the table)."""
    row, value = keras.layers.Input([1], dtype="int32"), keras.layers.Input([2])
    table = keras.layers.Embedding(ROWS, 2, embeddings_initializer=keras.initializers.Constant(hvd.rank()))
    dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(1 + hvd.rank()), use_bias=False)
    model = keras.models.Model([row, value], dense(keras.layers.add([keras.layers.Flatten()(table(row)), value])))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE * hvd.size(), momentum=MOMENTUM))
    assert isinstance(optimizer, keras.optimizers.SGD)
    model.compile(loss="mse", optimizer=optimizer)
    return model


class Rates(keras.callbacks.Callback):
    """Notes the rate and the momentum that each step takes."""

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_batch_begin(self, batch, logs=None):
        self.seen.append((K.get_value(self.model.optimizer.lr), K.get_value(self.model.optimizer.momentum)))


def show(name, numbers):
    print(f"rank {hvd.rank()} {name}: {' '.join(f'{number:.6f}' for number in np.ravel(numbers))}", flush=True)


def show_weights(name, model):
    show(name, np.concatenate([np.ravel(weight) for weight in model.get_weights()]))


def train(model, name, fit):
    rates, own = Rates(), []
    history = fit([
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: own.append(logs["loss"])),
        MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=1, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(multiplier=lambda epoch: 0.5 ** epoch, start_epoch=1),
        rates,
    ]).history
    show(f"{name} rates", rates.seen)
    show(f"{name} losses", [own, history["loss"], history["lr"]])
    show_weights(f"{name} weights", model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    path = f"{parser.parse_args().folder}/model.h5"
    hvd.init()
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    K.set_session(tf.Session(config=config))
    rows, values, targets = data(hvd.rank())
    model = make_model()
    train(model, "fit", lambda callbacks: model.fit(
        [rows, values], targets, BATCH, EPOCHS, verbose=0, callbacks=callbacks, shuffle=False))
    show("values", [hvd.allreduce(float(hvd.rank())), hvd.allreduce(hvd.rank() + 1, average=False),
                    *hvd.allgather([hvd.rank(), 5]), hvd.broadcast(7 - hvd.rank(), 0)])
    if hvd.rank() == 0:
        model.save(path)

    K.clear_session()
    loaded = hvd.load_model(path) if hvd.rank() == 0 else make_model()
    inputs, outputs = next(batches())
    loaded.fit(inputs, outputs, BATCH, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    show_weights("loaded weights", loaded)

    K.clear_session()
    model = make_model()
    train(model, "generator", lambda callbacks: model.fit_generator(
        batches(), STEPS, EPOCHS, verbose=0, callbacks=callbacks))
    if hvd.rank() > 0:
        model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    hvd.broadcast_global_variables(0)
    show_weights("broadcast weights", model)


if __name__ == "__main__":
    main()
