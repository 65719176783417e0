"""Of `tf.contrib.learn`: the numbers of DataFrames. What is no DataFrame is returned as it is."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def _is_frame(data: Any) -> bool:
    pandas = sys.modules.get("pandas")  # without which there are no DataFrames
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _check_types(data: Any, what: str) -> None:
    wrong = [f"{name} of {dtype}" for name, dtype in data.dtypes.items()
             if not (isinstance(dtype, np.dtype) and dtype.kind in "iufb")]
    if wrong:
        raise ValueError(f"columns of {what} must be numbers or bools; got {', '.join(wrong)}")


def extract_pandas_data(data: Any) -> Any:
    """Returns a DataFrame as float64 [rows, columns].

    Raises:
      ValueError: a column has no numbers.
    """
    if not _is_frame(data):
        return data
    _check_types(data, "data")
    return data.values.astype("float")


def extract_pandas_matrix(data: Any) -> Any:
    """Returns a DataFrame as an array [rows, columns]."""
    return data.values if _is_frame(data) else data


def extract_pandas_labels(labels: Any) -> Any:
    """Returns a DataFrame of one column as an array [rows, 1].

    Raises:
      ValueError: there are several columns, or it has no numbers.
    """
    if not _is_frame(labels):
        return labels
    if len(labels.columns) > 1:
        raise ValueError(f"labels must be one column; got {len(labels.columns)}")
    _check_types(labels, "labels")
    return labels.values
