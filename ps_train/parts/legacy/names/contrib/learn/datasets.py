"""contrib.learn.datasets: MNIST, and tables in CSV files."""

from __future__ import annotations

import csv
import os
import urllib.request
from typing import Any, NamedTuple

import numpy as np

from ps_train.parts.legacy.names.examples import input_data


class LearnDataset(NamedTuple):
    """Examples: [n, features], and their classes or values: [n]."""

    data: np.ndarray
    target: np.ndarray


class LearnDatasets(NamedTuple):
    """The parts of a data set."""

    train: Any
    validation: Any
    test: Any


def load_mnist_sets(train_dir: str = "MNIST-data", **options: Any) -> Any:
    """Reads MNIST, see data/input_data.py."""
    return input_data.read_data_sets(train_dir, **options)


DATASETS = {"mnist": load_mnist_sets}  # name -> what reads it


def load_learn_dataset(name: str, size: str = "small", **options: Any) -> Any:
    """Reads the data set of a name.

    Raises:
      ValueError: the name is not "mnist".
    """
    if name not in DATASETS:
        raise ValueError(f"load_dataset: name is {name!r}; ps_train has {', '.join(DATASETS)} only")
    return DATASETS[name](**options)


def maybe_download(filename: str, work_directory: str, source_url: str) -> str:
    """Downloads a file to a folder, unless it is there, and returns its path.

    Raises:
      urllib.error.URLError: it cannot be downloaded.
    """
    path = os.path.join(work_directory, filename)
    if not os.path.exists(path):
        os.makedirs(work_directory, exist_ok=True)
        urllib.request.urlretrieve(source_url, path + ".part")
        os.replace(path + ".part", path)
    return path


def load_csv_with_header(filename: str, target_dtype: Any, features_dtype: Any,
                         target_column: int = -1) -> LearnDataset:
    """Reads a file whose first line has the number of examples and of features, then names."""
    return _read(filename, target_dtype, features_dtype, target_column, num_header_lines=1)


def load_csv_without_header(filename: str, target_dtype: Any, features_dtype: Any,
                            target_column: int = -1) -> LearnDataset:
    """Reads a file of examples."""
    return _read(filename, target_dtype, features_dtype, target_column, num_header_lines=0)


def _read(filename: str, target_dtype: Any, features_dtype: Any, target_column: int,
          num_header_lines: int) -> LearnDataset:
    with open(filename, newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row][num_header_lines:]
    targets = np.array([row.pop(target_column) for row in rows])
    if np.issubdtype(target_dtype, np.number):
        targets = targets.astype(float)  # "3.0" is no integer for numpy, but 3.0 is
    return LearnDataset(np.array(rows, dtype=features_dtype), targets.astype(target_dtype))
