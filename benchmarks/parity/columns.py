"""Feature columns. Those of tf.contrib.layers that have variables are left out: ps_train gives these other names."""

from __future__ import annotations

import tensorflow as tf
from shared import floats

FC, L = tf.feature_column, tf.contrib.layers


def features():
    return {"letter": tf.constant([["x"], ["y"], ["z"]]), "id": tf.constant([[1], [2], [5]], tf.int64),
            "number": tf.constant([[0.5], [2.0], [7.0]]), "pair": floats(3, 2),
            "bag": tf.SparseTensor([[0, 0], [1, 0], [1, 1]], tf.constant(["x", "y", "q"]), [3, 2])}


def letter(**options):
    return FC.categorical_column_with_vocabulary_list("letter", ["x", "y"], **options)


def bag():
    return FC.categorical_column_with_hash_bucket("bag", 10)


CASES = {
    "numbers": lambda: FC.input_layer(features(), [
        FC.numeric_column("number"), FC.numeric_column("pair", shape=[2]),
        FC.bucketized_column(FC.numeric_column("number"), [1.0, 5.0])]),
    "categories": lambda: FC.input_layer(features(), [
        FC.indicator_column(letter(num_oov_buckets=1)), FC.embedding_column(bag(), 2, combiner="sum"),
        FC.indicator_column(FC.crossed_column(["letter", FC.bucketized_column(FC.numeric_column("number"), [1.0])], 8)),
        FC.indicator_column(FC.weighted_categorical_column(FC.categorical_column_with_identity("id", 6), "number"))]),
    "shared": lambda: FC.input_layer(features(), FC.shared_embedding_columns(
        [FC.categorical_column_with_hash_bucket("letter", 10), bag()], 2)),
    "linear": lambda: FC.linear_model(features(), [FC.numeric_column("number"), letter()], units=2),
    "sequence": lambda: tf.contrib.feature_column.sequence_input_layer(features(), [
        FC.embedding_column(tf.contrib.feature_column.sequence_categorical_column_with_hash_bucket("bag", 10), 2)]),
    "contrib_numbers": lambda: L.input_from_feature_columns(features(), [
        L.real_valued_column("number"), L.real_valued_column("pair", dimension=2, normalizer=lambda x: x * 2)]),
    "contrib_buckets": lambda: L.input_from_feature_columns(features(), [
        L.bucketized_column(L.real_valued_column("number"), [1.0, 5.0])]),
    "contrib_one_hot": lambda: L.input_from_feature_columns(features(), [
        L.one_hot_column(L.sparse_column_with_integerized_feature("id", 6))]),
    "parsing": lambda: tf.parse_example([tf.train.Example(features=tf.train.Features(feature={
        "number": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))})).SerializeToString()],
        FC.make_parse_example_spec([FC.numeric_column("number"), FC.embedding_column(bag(), 2)])),
}
