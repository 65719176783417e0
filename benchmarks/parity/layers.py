"""tf.contrib.layers, tf.contrib.slim, tf.layers, and losses."""

from __future__ import annotations

import tensorflow as tf
from shared import floats, ids, shares

L, LOSS, SLIM = tf.contrib.layers, tf.contrib.losses, tf.contrib.slim


def image():
    return floats(2, 8, 8, 3)


def labels():
    return tf.constant([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


def a_slim_net():
    with SLIM.arg_scope([SLIM.conv2d], normalizer_fn=SLIM.batch_norm, weights_regularizer=SLIM.l2_regularizer(0.01)):
        net = SLIM.max_pool2d(SLIM.repeat(image(), 2, SLIM.conv2d, 4, [3, 3], scope="c"), [2, 2], scope="p")
        return SLIM.fully_connected(SLIM.flatten(net), 3, activation_fn=None, scope="o")


def regularized():
    both = L.sum_regularizer([L.l1_regularizer(0.1), L.l2_regularizer(0.2)])
    return [L.fully_connected(floats(4, 5), 3, weights_regularizer=both), tf.losses.get_regularization_loss()]


def layers_of_tf():
    image_of_two = floats(1, 6, 6, 2)
    return [
        tf.layers.dense(tf.layers.dense(floats(2, 3), 4), 4, tf.nn.relu), tf.layers.Dense(2, name="z")(floats(2, 3)),
        tf.layers.conv2d(image_of_two, 3, 3, kernel_regularizer=L.l2_regularizer(0.1)),
        tf.layers.conv2d_transpose(image_of_two, 3, 3, 2), tf.layers.batch_normalization(floats(4, 3), training=True),
        tf.layers.separable_conv2d(image_of_two, 3, 3), tf.layers.max_pooling2d(image_of_two, 2, 2),
        tf.layers.flatten(floats(2, 3, 4)), tf.layers.dropout(floats(3), 0.5), tf.layers.conv1d(floats(1, 6, 2), 3, 2),
        tf.layers.conv3d(floats(1, 4, 4, 4, 2), 3, 2), tf.layers.average_pooling1d(floats(1, 6, 2), 2, 2)]


CASES = {
    "conv2d": lambda: L.conv2d(image(), 4, 3, normalizer_fn=L.batch_norm, weights_regularizer=L.l2_regularizer(0.1)),
    "conv2d_valid": lambda: L.conv2d(image(), 4, [3, 2], 2, "VALID", activation_fn=tf.nn.elu, scope="q"),
    "conv2d_rate": lambda: L.conv2d(image(), 4, 3, rate=2),
    "conv2d_reuse": lambda: [L.conv2d(image(), 4, 3, scope="k"), L.conv2d(image(), 4, 3, scope="k", reuse=True)],
    "conv1d": lambda: L.convolution1d(floats(2, 8, 3), 4, 3),
    "conv3d": lambda: L.conv3d(floats(1, 4, 4, 4, 2), 3, 2),
    "conv2d_transpose": lambda: L.conv2d_transpose(image(), 4, 3, stride=2),
    "conv2d_in_plane": lambda: L.conv2d_in_plane(image(), 3),
    "separable": lambda: L.separable_conv2d(image(), 4, 3, 2),
    "depthwise": lambda: L.separable_conv2d(image(), None, 3, 1, stride=2, normalizer_fn=L.batch_norm),
    "pools": lambda: [L.max_pool2d(image(), 2), L.avg_pool2d(image(), 3, stride=1, padding="SAME"),
                      L.max_pool3d(floats(1, 4, 4, 4, 2), 2)],
    "batch_norm": lambda: (L.batch_norm(image(), is_training=True, scale=True), 3),
    "batch_norm_eval": lambda: L.batch_norm(image(), is_training=False),
    "batch_norm_at_once": lambda: L.batch_norm(image(), is_training=tf.constant(True), updates_collections=None),
    "batch_norm_renorm": lambda: L.batch_norm(image(), renorm=True),
    "batch_norm_debias": lambda: L.batch_norm(floats(4, 5), zero_debias_moving_mean=True),
    "batch_norm_weights": lambda: L.batch_norm(floats(4, 5), batch_weights=tf.constant([1.0, 0.0, 1.0, 1.0])),
    "norms": lambda: [L.layer_norm(image()), L.layer_norm(floats(4, 5), center=False, begin_norm_axis=-1),
                      L.instance_norm(image()), L.group_norm(floats(2, 4, 4, 6), groups=3)],
    "dense": lambda: L.fully_connected(floats(4, 5), 3, weights_regularizer=L.l1_regularizer(0.2)),
    "dense_norm": lambda: L.fully_connected(floats(4, 5), 3, normalizer_fn=L.batch_norm),
    "linear": lambda: [L.linear(floats(4, 5), 3), L.relu(floats(4, 5), 3), L.relu6(floats(4, 5), 3)],
    "legacy_dense": lambda: L.legacy_fully_connected(floats(4, 5), 3, name="z"),
    "stack": lambda: L.stack(L.repeat(floats(4, 5), 2, L.fully_connected, 3), L.fully_connected, [4, 3], scope="s"),
    "small": lambda: [L.bias_add(floats(4, 5)), L.flatten(image()), L.dropout(floats(4, 5), 0.5, is_training=False),
                      L.one_hot_encoding(ids(6, 4), 6), L.maxout(floats(4, 6), 3), L.unit_norm(floats(4, 6), 1),
                      L.softmax(floats(2, 3, 4)), L.spatial_softmax(image()), L.GDN()(image())],
    "embeddings": lambda: [L.embed_sequence(ids(6, 2, 4), 6, 3), L.bow_encoder(ids(6, 2, 4), 6, 3),
                           L.embedding_lookup_unique([floats(6, 3), floats(6, 3)], ids(9, 2, 4))],
    "safe_lookup": lambda: L.safe_embedding_lookup_sparse(
        [floats(6, 3)], tf.SparseTensor([[0, 0], [1, 1]], tf.constant([1, -1], tf.int64), [3, 2]), combiner="sum"),
    "regularized": regularized,
    "slim": a_slim_net,
    "tf_layers": lambda: (layers_of_tf(), 2),
    "losses": lambda: [
        LOSS.absolute_difference(floats(4, 3), labels()), LOSS.log_loss(shares(4, 3), labels()),
        LOSS.mean_squared_error(floats(4, 3), labels(), weights=2.0), LOSS.hinge_loss(floats(4, 3), labels()),
        LOSS.mean_pairwise_squared_error(floats(4, 3), labels()),
        LOSS.cosine_distance(tf.nn.l2_normalize(floats(4, 3), 1), labels(), axis=1),
        LOSS.sigmoid_cross_entropy(floats(4, 3), labels(), label_smoothing=0.1),
        LOSS.softmax_cross_entropy(floats(4, 3), labels(), tf.constant([1.0, 0.0, 2.0, 1.0]), label_smoothing=0.1),
        LOSS.sparse_softmax_cross_entropy(floats(4, 3), tf.constant([0, 1, 2, 0])),
        LOSS.compute_weighted_loss(floats(4, 3), tf.constant([[1.0], [0.0], [2.0], [1.0]]))],
    "tf_losses": lambda: [
        tf.losses.huber_loss(labels(), floats(4, 3)), tf.losses.log_loss(shares(3), shares(3)),
        tf.losses.softmax_cross_entropy(tf.one_hot([0, 1], 3), floats(2, 3), label_smoothing=0.1),
        tf.losses.mean_pairwise_squared_error(floats(2, 3), shares(2, 3)),
        tf.losses.cosine_distance(floats(2, 3), shares(2, 3), dim=1), tf.losses.get_total_loss()],
    "metric_learning": lambda: [
        LOSS.metric_learning.triplet_semihard_loss(tf.constant([0, 1, 0, 1]), tf.nn.l2_normalize(floats(4, 3), 1)),
        LOSS.metric_learning.contrastive_loss(tf.constant([0, 1, 0, 1]), floats(4, 3), floats(4, 3) * 2),
        LOSS.metric_learning.lifted_struct_loss(tf.constant([0, 1, 0, 1]), floats(4, 3)),
        LOSS.metric_learning.npairs_loss(tf.constant([0, 1, 2, 1]), floats(4, 3), floats(4, 3) * 2)],
}
