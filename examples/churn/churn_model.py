"""The model: a linear and a hidden layer on scaled numbers and one-hot categories."""

import tensorflow.compat.v1 as tf

import ps_train

NUMBERS = {"months": (36.0, 20.0), "calls": (1.5, 1.2), "charge": (70.0, 30.0)}  # mean and standard deviation
CATEGORIES = {"contract": ["monthly", "yearly", "two years"], "region": ["north", "south", "east", "west"]}

DEFAULT_PARAMS = {"units": 16}  # set with --params=units=32


def inputs(features):
    """Returns float32 [batch, 10]: scaled numbers, then a 1 in the column of each category; zeros if it is unknown."""
    numbers = [(features[name][:, None] - mean) / deviation for name, (mean, deviation) in NUMBERS.items()]
    one_hot = [tf.cast(tf.equal(features[name][:, None], known), tf.float32) for name, known in CATEGORIES.items()]
    return tf.concat(numbers + one_hot, axis=1)


def model_fn(features, labels, mode, params):
    """Predicts the probability of label 1; features as in NUMBERS and CATEGORIES, labels float32 [batch]."""
    columns = inputs(features)
    width = int(columns.shape[1])
    kernel = tf.get_variable("hidden/kernel", [width, params["units"]])
    bias = tf.get_variable("hidden/bias", [params["units"]], initializer=tf.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(columns, kernel) + bias)
    weights = tf.get_variable("logit/kernel", [width + params["units"], 1])
    offset = tf.get_variable("logit/bias", [], initializer=tf.zeros_initializer())
    logits = tf.squeeze(tf.matmul(tf.concat([columns, hidden], axis=1), weights), axis=1) + offset
    predictions = {"probability": tf.sigmoid(logits)}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    metrics = {"accuracy": tf.metrics.accuracy(labels, tf.round(predictions["probability"])),
               "AUC": tf.metrics.auc(labels, predictions["probability"], num_thresholds=1000)}
    return ps_train.ModelSpec(loss=loss, predictions=predictions, eval_metric_ops=metrics)
