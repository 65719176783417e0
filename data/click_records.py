"""The dataset plug-in for click data in TFRecord files, which are read twice as fast as text.

Run with --dataset=data.click_records --data_dir=DIR. A record is a `tf.train.Example` with the features

    label    float [1], 0 or 1
    numbers  float [num_numbers], as the model takes them
    ids      int64 [num_categories], each >= 0

`python -m data.clicks --write=DIR --form=tfrecord` writes such files. One worker at a time reads a file, so
there must be as many files as workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf

import ps_train

from .tabular import pipeline

DEFAULT_PARAMS: dict[str, Any] = {**pipeline.DEFAULT_PARAMS, "num_numbers": 13, "num_categories": 26}


def prepare(params: Mapping[str, Any]) -> None:
    """Checks that the files are there and that their first records have the right features.

    Raises:
      DataError: the file, and what was expected.
    """
    pipeline.check_record_files(_parsing(params), _expected(params), params)


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the examples of a mode as (features, labels float32 [batch]).

    features = {"numbers": float32 [batch, num_numbers], "ids": int64 [batch, num_categories]}. See
    `data.tabular.pipeline.file_dataset`.
    """
    reader = ps_train.RecordReader(_parsing(params), _expected(params), params["on_bad_record"])
    return pipeline.file_dataset(reader, mode, params, shard, is_text=False)


def _expected(params: Mapping[str, Any]) -> str:
    return (f"a tf.train.Example with label float [1] that is 0 or 1, finite numbers float "
            f"[{params['num_numbers']}] and ids int64 [{params['num_categories']}] of at least 0")


def _parsing(params: Mapping[str, Any]) -> Callable[[tf.Tensor], Any]:
    """Returns the function that parses records, string [n]; its op fails if one is malformed."""
    columns = {"label": tf.FixedLenFeature([], tf.float32),
               "numbers": tf.FixedLenFeature([params["num_numbers"]], tf.float32),
               "ids": tf.FixedLenFeature([params["num_categories"]], tf.int64)}

    def parse(records: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(records, columns)
        labels, ids = features["label"], features["ids"]
        is_sound = tf.reduce_all(tf.equal(labels, 0.0) | tf.equal(labels, 1.0)) & tf.reduce_all(ids >= 0) & (
            tf.reduce_all(tf.math.is_finite(features["numbers"])))
        with tf.control_dependencies([tf.raw_ops.Assert(condition=is_sound, data=["a value out of range"])]):
            ids = ids % params["hash_buckets"] if params["hash_buckets"] else tf.identity(ids)
        return {"numbers": features["numbers"], "ids": ids}, labels

    return parse
