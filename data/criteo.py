"""The dataset plug-in for files in the format of Criteo's click logs.

Run with --dataset=data.criteo --data_dir=DIR. A line has 40 fields, separated by tabs: the label (0 or 1), 13 integers
and 26 categories, hexadecimal strings of 8 digits in Criteo's files; any number or category may be missing. The
files of https://www.kaggle.com/c/criteo-display-ad-challenge and of the Terabyte data set are of this form. A share of
their lines has to be set aside for evaluation. `python -m data.clicks --write=DIR` writes synthetic ones.

The numbers become log(1 + x), missing or negative ones 0. `data.tabular.features` says what the ids are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ps_train

from .tabular import pipeline
from .tabular.columns import CATEGORY, LABEL, NUMBER, Column, LineForm
from .tabular.features import category_ids, log_numbers

if TYPE_CHECKING:
    import tensorflow as tf

DEFAULT_PARAMS: dict[str, Any] = {**pipeline.DEFAULT_PARAMS}

NUM_NUMBERS = 13
NUM_CATEGORIES = 26
FORM = LineForm((
    Column("label", LABEL),
    *(Column(f"I{number}", NUMBER) for number in range(1, NUM_NUMBERS + 1)),
    *(Column(f"C{number}", CATEGORY) for number in range(1, NUM_CATEGORIES + 1)),
), delimiter="\t")


def prepare(params: Mapping[str, Any]) -> None:
    """Checks that the files are there and that their first lines have the right form.

    Raises:
      DataError: the file, the line, and what was expected.
    """
    pipeline.check_text_files(FORM, params)


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the examples of a mode as ({"numbers": float32 [batch, 13], "ids": int64 [batch, 26]}, float32 [batch]).

    See `data.tabular.pipeline.file_dataset`.
    """
    def parse(lines: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        cells = FORM.parse(lines)
        features = {"numbers": log_numbers(cells.numbers),
                    "ids": category_ids(cells.categories, params["hash_buckets"])}
        return features, cells.labels

    return pipeline.file_dataset(
        ps_train.LineReader(parse, FORM.find_faults, params["on_bad_record"]), mode, params, shard)
