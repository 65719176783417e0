"""The model: rating = mean + bias of the user + bias of the movie + product of their vectors."""

import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"dim": 8, "penalty": 0.005}  # set with --params=dim=16


def model_fn(features, labels, mode, params):
    """Predicts ratings, float32 [batch], of features {"user": [batch], "movie": [batch]}."""
    # The last column of a row is the bias, so that each id has one row and travels once.
    users = ps_train.embedding_table("users", params["dim"] + 1, initial_limit=0.3).lookup(features["user"])
    movies = ps_train.embedding_table("movies", params["dim"] + 1, initial_limit=0.3).lookup(features["movie"])
    mean = tf.get_variable("mean", [], initializer=tf.constant_initializer(3.0))
    products = tf.reduce_sum(users[:, :-1] * movies[:, :-1], axis=1)
    ratings = mean + users[:, -1] + movies[:, -1] + products
    predictions = {"rating": ratings}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    # Only the rows of this mini-batch are penalised, so a step touches no others.
    size = tf.reduce_mean(tf.reduce_sum(tf.square(users) + tf.square(movies), axis=1))
    loss = tf.losses.mean_squared_error(labels, ratings) + params["penalty"] * size
    return ps_train.ModelSpec(loss=loss, predictions=predictions, eval_metric_ops={
        "RMSE": tf.metrics.root_mean_squared_error(labels, ratings)})
