"""The dataset plug-in for plain CSV: any columns, one of them a label that is 0 or 1.

Run with --dataset=data.csv_files --data_dir=DIR --params=schema=FILE. `data.tabular.schema` describes the schema, a
JSON file that says which columns are numbers and which are categories. A missing number is 0. All files have the same
columns in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ps_train
from ps_train.parts.readers.files import find_files, is_growing

from .tabular import pipeline
from .tabular.features import category_ids, log_numbers
from .tabular.schema import Schema, identity, read_schema, read_values

if TYPE_CHECKING:
    import tensorflow as tf

DEFAULT_PARAMS: dict[str, Any] = {
    **pipeline.DEFAULT_PARAMS, "train_files": "train*.csv", "eval_files": "eval*.csv",
    "schema": "schema.json",  # not absolute, it is in --data_dir
}


def prepare(params: Mapping[str, Any]) -> None:
    """Checks the schema, that the files are there, and that their first lines have the right form.

    Raises:
      DataError: the file, the line, and what was expected.
    """
    schema = _schema(params)
    pipeline.check_text_files(schema.form, params, has_header=schema.has_header, names_columns=schema.names_columns)


def _schema(params: Mapping[str, Any]) -> Schema:
    def first_line() -> str:
        names = find_files(pipeline.pattern(params, training=True))
        found = (pipeline.first_lines(name, may_grow=is_growing()) for name in names)
        return next((lines[0].decode(errors="replace") for lines in found if lines), "")

    return read_schema(pipeline.schema_path(params), first_line)


def data_identity(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns that a training must be continued with."""
    return identity(read_values(pipeline.schema_path(params)))


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the examples of a mode as (features, labels float32 [batch]), the features in the order of the schema.

    features = {"numbers": float32 [batch, num_numbers], "ids": int64 [batch, num_categories]}, without those of which
    there are no columns. See `data.tabular.pipeline.file_dataset`.
    """
    schema = _schema(params)

    def parse(lines: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        cells = schema.form.parse(lines)
        features = {}
        if schema.number_order:
            numbers = pipeline.columns_in_order(cells.numbers, schema.number_order)
            features["numbers"] = log_numbers(numbers) if schema.log_numbers else numbers
        if schema.category_order:
            features["ids"] = category_ids([cells.categories[index] for index in schema.category_order],
                                           params["hash_buckets"])
        return features, cells.labels

    return pipeline.file_dataset(
        ps_train.LineReader(parse, schema.form.find_faults, params["on_bad_record"]), mode, params, shard,
        has_header=schema.has_header)
