"""The dataset plug-in for Parquet files: any columns, one of them a label that is 0 or 1.

Run with --dataset=data.parquet_files --data_dir=DIR --params=schema=FILE. It needs pyarrow (the extra `parquet`). The
schema is that of `data.csv_files` (`data.tabular.schema`), without what is of text only. A missing number is 0, a
missing category the empty string; an integer category counts as its digits. So the same rows as CSV give the same
examples, if the categories are strings or integers: other types have other texts in CSV, and other ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train
from ps_train.errors import ConfigError, DataError
from ps_train.parts.readers import parquet_files
from ps_train.parts.readers.files import find_files

from .tabular import pipeline
from .tabular.features import category_ids, log_numbers
from .tabular.schema import identity, read_values

DEFAULT_PARAMS: dict[str, Any] = {
    **pipeline.DEFAULT_PARAMS, "train_files": "train*.parquet", "eval_files": "eval*.parquet",
    "schema": "schema.json",  # not absolute, it is in --data_dir
}


def prepare(params: Mapping[str, Any]) -> None:
    """Checks the schema, that the files are there, and that they have its columns.

    Raises:
      DataError: the file, and what was expected.
      ConfigError: a parameter is out of bounds, or pyarrow is not installed.
    """
    pipeline.check_hash_buckets(params)
    if params["on_bad_record"] == "skip":
        raise ConfigError("flag_without_effect", "--on_bad_record: got 'skip', which data.parquet_files cannot do: it "
                          "decodes whole columns; leave it out")
    schema = read_values(pipeline.schema_path(params))
    columns = [schema["label"], *schema["numbers"], *schema["categories"]]
    for name in [name for training in (True, False) for name in find_files(pipeline.pattern(params, training))]:
        parquet_files.check_columns(name, columns)


def data_identity(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns that a training must be continued with."""
    return identity(read_values(pipeline.schema_path(params)))


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the examples of a mode as (features, labels float32 [batch]), the features in the order of the schema.

    features = {"numbers": float32 [batch, num_numbers], "ids": int64 [batch, num_categories]}, without those of which
    there are no columns. See `data.tabular.pipeline.file_dataset`.
    """
    schema = read_values(pipeline.schema_path(params))
    label, numbers, categories = schema["label"], schema["numbers"], schema["categories"]

    def parse(columns: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = {}
        if numbers:
            values = tf.stack([columns[name] for name in numbers], axis=1)
            features["numbers"] = log_numbers(values) if schema["log_numbers"] else values
        if categories:
            features["ids"] = category_ids([columns[name] for name in categories], params["hash_buckets"])
        return features, columns[label]

    def check(columns: Mapping[str, np.ndarray]) -> None:
        if not np.isin(columns[label], (0, 1)).all():
            raise DataError("bad_record", f"column {label!r}: expected 0 or 1")
        for name in numbers:
            if not np.isfinite(columns[name]).all():
                raise DataError("bad_record", f"column {name!r}: expected a number or nothing, got NaN or infinity")

    reader = ps_train.ParquetReader(
        {**dict.fromkeys([label, *numbers], tf.float32), **dict.fromkeys(categories, tf.string)}, parse,
        fill={**dict.fromkeys(numbers, 0.0), **dict.fromkeys(categories, "")}, check=check)
    return pipeline.file_dataset(reader, mode, params, shard, is_text=False)
