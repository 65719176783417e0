"""Tests of a model with a whole cluster in one process: every task runs in a thread, wired as in its own process.

    result = testing.run_in_threads("mymodel", "mydata", train_dir=tmp_path, num_workers=2, train_steps=200)
    assert result.evaluation.metrics["accuracy"] > 0.9
    assert testing.read_checkpoint(tmp_path)["weights"].shape == (784, 10)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ps_train.launch.in_threads import ClusterResult
from ps_train.launch.training import Training

if TYPE_CHECKING:
    import numpy as np


def run_in_threads(
    model: str, dataset: str, *, train_dir: str | os.PathLike, num_ps: int = 1, num_workers: int = 2,
    timeout_secs: float = 300.0, **flags: Any,
) -> ClusterResult:
    """Trains to the end with a cluster in this process, and returns the outcome of its workers.

    The same as `ps_train.Training(...).run_in_threads(timeout_secs)`, with one ps by default.
    """
    training = Training(model, dataset, train_dir=train_dir, num_ps=num_ps, num_workers=num_workers, **flags)
    return training.run_in_threads(timeout_secs)


def read_checkpoint(train_dir: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns name -> value of each variable in the newest checkpoint of a folder.

    Raises:
      FileNotFoundError: the folder has no checkpoint.
    """
    import tensorflow.compat.v1 as tf  # noqa: PLC0415 (it takes seconds; a wrong flag should not)

    path = tf.train.latest_checkpoint(str(train_dir))
    if path is None:
        raise FileNotFoundError(f"{train_dir} has no checkpoint")
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
