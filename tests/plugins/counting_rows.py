"""A model whose two rows of an embedding table count the updates: each takes 1 from every element."""

import tensorflow.compat.v1 as tf

import ps_train
from ps_train.parts.tables.rules import Sgd


def model_fn(features, labels, mode, params):
    """Ids 4 and 5, so that of two ps each has a row."""
    table = ps_train.embedding_table("rows", 2, optimizer=Sgd(1.0), initial_limit=0.0)
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    of_data = 0.0 * tf.reduce_mean(features)  # so that each step takes a batch
    return ps_train.ModelSpec(loss=tf.reduce_sum(table.lookup([4, 5])) + bias + of_data)
