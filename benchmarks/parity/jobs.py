"""Trains a job for some steps in a folder, from the checkpoint there if there is one: `jobs.py KIND FOLDER STEPS`.

It prints a JSON object with its metrics, as the last line. Its data are the same in the same order each time.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

FC, EST = tf.feature_column, tf.estimator
NUMBERS = np.random.RandomState(0).rand(64, 4).astype(np.float32)
LABELS = (NUMBERS.sum(1) > 2).astype(np.int32)
WORDS = np.array(list("abcd") * 16).reshape(-1, 1)


def input_fn():
    data = tf.data.Dataset.from_tensor_slices(({"x": NUMBERS, "word": WORDS}, LABELS)).repeat().batch(16)
    return data.make_one_shot_iterator().get_next()


def keras_input_fn():
    return tf.data.Dataset.from_tensor_slices((NUMBERS, LABELS.reshape(-1, 1))).repeat().batch(16)


def deep():
    words = FC.categorical_column_with_hash_bucket("word", 10)
    return [FC.numeric_column("x", shape=[4]), FC.embedding_column(words, 3)]


def wide():
    return [FC.categorical_column_with_vocabulary_list("word", list("abcd"))]


def model_fn(features, labels, mode):
    net = tf.contrib.layers.fully_connected(tf.layers.dense(features["x"], 8, tf.nn.relu), 5)
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(3), tf.expand_dims(net, 2), dtype=tf.float32)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.layers.dense(outputs[:, -1], 2))
    step = tf.train.get_global_step()
    train_op = tf.train.AdamOptimizer(tf.train.exponential_decay(0.01, step, 10, 0.9)).minimize(loss, step)
    with tf.control_dependencies([train_op]):
        train_op = tf.train.ExponentialMovingAverage(0.9, step).apply(tf.trainable_variables())
    return EST.EstimatorSpec(mode, loss=loss, train_op=train_op)


def keras_estimator(folder, config):
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu", input_shape=(4,), name="x"),
                                 tf.keras.layers.BatchNormalization(), tf.keras.layers.Dense(1, activation="sigmoid")])
    model.compile(loss="binary_crossentropy", optimizer=tf.train.AdamOptimizer(0.01), metrics=["accuracy"])
    return tf.keras.estimator.model_to_estimator(model, model_dir=folder, config=config)


ESTIMATORS = {
    "dnn": lambda folder, config: EST.DNNClassifier([8, 4], deep(), folder, config=config, optimizer="Adam"),
    "wide_deep": lambda folder, config: EST.DNNLinearCombinedClassifier(
        folder, wide(), dnn_feature_columns=deep(), dnn_hidden_units=[8], config=config),
    "linear": lambda folder, config: EST.LinearClassifier(wide(), folder, config=config),
    "regressor": lambda folder, config: EST.DNNRegressor([8], deep(), folder, config=config, batch_norm=True),
    "model_fn": lambda folder, config: EST.Estimator(model_fn, folder, config=config),
    "keras": keras_estimator,
}


def run_estimator(kind, folder, steps):
    config = EST.RunConfig(tf_random_seed=3, save_checkpoints_steps=1000)
    estimator = ESTIMATORS[kind](folder, config)
    data = keras_input_fn if kind == "keras" else input_fn
    estimator.train(data, steps=steps)
    return {name: float(value) for name, value in estimator.evaluate(data, steps=4).items()}


def run_loop(kind, folder, steps):
    step = tf.train.get_or_create_global_step()
    features, labels = input_fn()
    hidden = tf.contrib.slim.fully_connected(features["x"], 8, scope="hidden")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.contrib.layers.linear(hidden, 2, scope="logits"))
    train_op = tf.train.RMSPropOptimizer(0.01, momentum=0.5).minimize(loss, step)

    def train(session):
        last = [session.run([loss, train_op])[0] for _ in range(steps)][-1]
        return {"loss": float(last), "global_step": float(session.run(step))}
    if kind == "monitored":
        with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, save_checkpoint_steps=1000) as session:
            return train(session)
    supervisor = tf.train.Supervisor(logdir=folder, global_step=step, save_model_secs=0)
    with supervisor.managed_session() as session:
        metrics = train(session)
        supervisor.saver.save(session, supervisor.save_path, step)
    return metrics


def main(kind, folder, steps):
    run = run_estimator if kind in ESTIMATORS else run_loop
    print(json.dumps(run(kind, folder, int(steps))))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(*sys.argv[1:])
