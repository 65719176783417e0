"""A Keras model under MultiWorkerMirroredStrategy, TF_CONFIG and ModelCheckpoint: TensorFlow 2 code, with Keras 2."""

import os
import sys

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
features = np.random.RandomState(0).rand(64, 4).astype("float32")
labels = features.sum(axis=1, keepdims=True)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.1))
task = strategy.cluster_resolver.task_id
callbacks = [tf.keras.callbacks.ModelCheckpoint(
    filepath=os.path.join(sys.argv[1], "worker%d" % task, "ckpt_{epoch}"), save_weights_only=True)]
model.fit(tf.data.Dataset.from_tensor_slices((features, labels)).batch(16).repeat(), epochs=2, steps_per_epoch=10,
          callbacks=callbacks, verbose=2)
print("worker %d ends with %s" % (task, type(model).__module__))
