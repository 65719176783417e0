"""Data and model of the tutorials: `tensorflow.examples.tutorials.mnist`, Keras' MNIST, and contrib.learn.datasets.

`input_data` is the project's own reader, data/input_data.py. Its folder `data/` is next to the installed package's
folder, and is loaded without a trace in `sys.path` and `sys.modules`: a script may have its own modules `data` and
`models`.
"""

from __future__ import annotations

import csv
import functools
import importlib
import math
import os
import pathlib
import sys
import types
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import MissingDataError, MissingNameError
from ps_train.parts.legacy.names.arrays import wrap

_CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
_PACKAGES = ("data", "models")
_UNCORRECTED_ROWS, _UNCORRECTED_IRIS = [34, 37], (4.9, 3.1, 1.5, 0.1)


@functools.cache
def _load_reader() -> types.ModuleType:
    """Returns the project's module data.input_data; raises MissingDataError if ps_train is installed without it."""
    if not (_CHECKOUT / "data/input_data.py").exists():
        raise MissingDataError("no_source_folder", f"the tutorial's MNIST reader is not in {_CHECKOUT}",
                               "install ps_train from its source folder: pip install -e <folder>")
    of_script = _take_out()
    sys.path.insert(0, str(_CHECKOUT))
    try:
        reader = importlib.import_module("data.input_data")
        wrap("next_batch", _next_batch, reader.DataSet)
        return reader
    finally:
        sys.path.remove(str(_CHECKOUT))
        _take_out()
        sys.modules.update(of_script)


def _next_batch(original: Callable, data_set: Any, batch_size: int, fake_data: bool = False,
                shuffle: bool = True) -> Any:
    # The tutorial's batch had at most the rest of an epoch and a whole one: a script may ask for 60,000 of few digits.
    taken, epoch = getattr(data_set, "taken", 0), data_set.num_examples
    in_epoch = taken - epoch * data_set.epochs_completed  # more than an epoch if it is all fake, which has no epochs
    most = 2 * epoch - in_epoch if 0 <= in_epoch <= epoch and epoch and not fake_data else batch_size
    batch = original(data_set, min(batch_size, most), fake_data, shuffle)
    data_set.taken = taken + (0 if fake_data else len(batch[1]))
    return batch


def _take_out() -> dict[str, types.ModuleType]:
    """Removes the modules `data` and `models`, and those inside, from `sys.modules`, and returns them."""
    names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    return {name: sys.modules.pop(name) for name in names}


def __getattr__(name: str) -> Any:
    """Returns a function or class of the reader, which is loaded on first use."""
    if name in ("read_data_sets", "DataSet", "dense_to_one_hot"):
        return getattr(_load_reader(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def mnist_inference(images: tf.Tensor, hidden1_units: int, hidden2_units: int) -> tf.Tensor:
    """Builds the model: float32 [batch, IMAGE_PIXELS] -> logits, float32 [batch, NUM_CLASSES]."""
    hidden1 = tf.nn.relu(_linear(images, IMAGE_PIXELS, hidden1_units, "hidden1"))
    hidden2 = tf.nn.relu(_linear(hidden1, hidden1_units, hidden2_units, "hidden2"))
    return _linear(hidden2, hidden2_units, NUM_CLASSES, "softmax_linear")


def _linear(inputs: tf.Tensor, num_inputs: int, num_outputs: int, name: str) -> tf.Tensor:
    with tf.name_scope(name):
        weights = tf.Variable(
            tf.truncated_normal([num_inputs, num_outputs], stddev=1.0 / math.sqrt(num_inputs)), name="weights")
        biases = tf.Variable(tf.zeros([num_outputs]), name="biases")
        return tf.matmul(inputs, weights) + biases


def mnist_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the mean cross entropy of logits [batch, NUM_CLASSES] and integer labels [batch]."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.to_int64(labels), logits=logits)


def mnist_training(loss: tf.Tensor, learning_rate: float) -> tf.Operation:
    """Returns the op of a step of gradient descent, which counts a new variable "global_step" and has a summary."""
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def mnist_evaluation(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the number of examples whose largest logit is that of the label: int32 []."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))


def load_mnist(original: Callable, path: str = "mnist.npz") -> tuple:
    """`keras.datasets.mnist.load_data`: a path that is a file is read, without a download or a look at its hash.

    Returns:
      ((images, labels) for training, the same for testing): uint8 [n, 28, 28] and uint8 [n].
    """
    if not os.path.isfile(path):
        return original(path)
    with np.load(path) as arrays:
        return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])


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
    return _load_reader().read_data_sets(train_dir, **options)


def load_iris(data_path: str | None = None) -> LearnDataset:
    """Returns the 150 irises: measures, float [150, 4], and species, int [150].

    Args:
      data_path: a file with a header, see `load_csv_with_header`; by default those of scikit-learn, in which two
        irises were corrected that TensorFlow 1 had as here.

    Raises:
      MissingNameError: scikit-learn is not installed, and there is no path.
    """
    if data_path is not None:
        return load_csv_with_header(data_path, target_dtype=int, features_dtype=float)
    try:
        from sklearn import datasets  # noqa: PLC0415 (only these jobs need it)
    except ImportError as error:
        raise MissingNameError("tf_name_missing", "tf.contrib.learn.datasets.load_iris() needs scikit-learn: pip "
                               "install scikit-learn; or give it the path of a file") from error
    irises = datasets.load_iris()
    measures = np.array(irises.data)
    measures[_UNCORRECTED_ROWS] = _UNCORRECTED_IRIS
    return LearnDataset(measures, irises.target)


def load_boston(data_path: str | None = None) -> LearnDataset:
    """Returns the 506 suburbs of Boston: what is known of each, float [506, 13], and its prices, float [506].

    Args:
      data_path: boston_house_prices.csv of TensorFlow 1 or of scikit-learn before 1.2; neither has it today.

    Raises:
      MissingNameError: there is no path.
    """
    if data_path is None:
        raise MissingNameError("tf_name_missing", "tf.contrib.learn.datasets.load_boston() needs the path of "
                               "boston_house_prices.csv, which neither TensorFlow nor scikit-learn has any more")
    return load_csv_with_header(data_path, target_dtype=float, features_dtype=float)


DATASETS = {"mnist": load_mnist_sets, "iris": load_iris, "boston": load_boston}  # name -> what reads it


def load_learn_dataset(name: str, size: str = "small", **options: Any) -> Any:
    """Reads the data set of a name; raises ValueError unless it is one of DATASETS, and what its reader raises."""
    if name not in DATASETS:
        raise ValueError(f"load_dataset: name is {name!r}; ps_train has {', '.join(DATASETS)}; read others yourself")
    return DATASETS[name](**options)


def maybe_download(filename: str, work_directory: str, source_url: str) -> str:
    """Downloads a file to a folder, unless it is there, and returns its path; raises urllib.error.URLError."""
    path = os.path.join(work_directory, filename)
    if not os.path.exists(path):
        os.makedirs(work_directory, exist_ok=True)
        urllib.request.urlretrieve(source_url, path + ".part")
        os.replace(path + ".part", path)
    return path


def _read_csv(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1, *,
              num_header_lines: int) -> LearnDataset:
    with open(filename, newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row][num_header_lines:]
    targets = np.array([row.pop(target_column) for row in rows])
    if np.issubdtype(target_dtype, np.number):
        targets = targets.astype(float)  # "3.0" is no integer for numpy, but 3.0 is
    return LearnDataset(np.array(rows, dtype=features_dtype), targets.astype(target_dtype))


# The header has the numbers of examples and of features, then names.
load_csv_with_header = functools.partial(_read_csv, num_header_lines=1)
load_csv_without_header = functools.partial(_read_csv, num_header_lines=0)
