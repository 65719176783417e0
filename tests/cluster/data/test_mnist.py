"""The dataset plug-in of MNIST."""

from __future__ import annotations

import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf

import ps_train
from data import mnist
from ps_train.errors import DataError

REAL_MNIST = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data" / "mnist"


@pytest.fixture
def params(tmp_path):
    """Three training and two test images, each filled with its label."""
    for prefix, labels in (("train", [1, 2, 3]), ("t10k", [4, 5])):
        header = struct.pack(">4I", 0x803, len(labels), 28, 28)
        pixels = b"".join(bytes([label]) * 784 for label in labels)
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(header + pixels)
        header = struct.pack(">2I", 0x801, len(labels))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(header + bytes(labels))
    return {"batch_size": 3, "data_dir": str(tmp_path), "seed": 1, **mnist.DEFAULT_PARAMS}


def _first_batch(mode, params, shard=(0, 1)):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        dataset = mnist.input_fn(mode, params, shard)
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        session.run(iterator.initializer, feed_dict=ps_train.input_feed(graph))
        return session.run(iterator.get_next())


def test_training_batch(params):
    """Training takes the training files, shuffled."""
    features, labels = _first_batch("train", params)
    assert sorted(labels) == [1, 2, 3] and features.shape == (3, 784)
    np.testing.assert_allclose(features[:, 400], labels / 255, rtol=1e-6)


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_test_batch(params, mode):
    """Evaluation and prediction take the test files, in order."""
    assert _first_batch(mode, params)[1].tolist() == [4, 5]


def test_shard_is_handed_on(params):
    """Worker 1 of 2 has the second of three examples."""
    assert _first_batch("train", params, shard=(1, 2))[1].tolist() == [2, 2, 2]


def test_files_are_read_once(params):
    """The second call gives the same arrays, although the files were removed."""
    loaded = mnist.load(params["data_dir"])
    for path in pathlib.Path(params["data_dir"]).iterdir():
        path.unlink()
    assert mnist.load(params["data_dir"]) is loaded


def test_form_of_the_arrays(params):
    """Rows of uint8 pixels and int32 labels."""
    train, test = mnist.load(params["data_dir"])
    assert train.images.shape == (3, 784) and train.images.dtype == np.uint8
    assert test.labels.dtype == np.int32 and test.labels.tolist() == [4, 5]


def test_prepare_leaves_sound_files_alone(params):
    """Nothing is fetched or written where the files are there."""
    before = {path: path.stat().st_mtime_ns for path in pathlib.Path(params["data_dir"]).iterdir()}
    mnist.prepare(params)
    after = {path: path.stat().st_mtime_ns for path in pathlib.Path(params["data_dir"]).iterdir()}
    assert before == after


def test_prepare_finds_a_damaged_file(params):
    """A damaged file is found before training, not in the middle of it."""
    path = pathlib.Path(params["data_dir"]) / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte: truncated"):
        mnist.prepare(params)


def test_prepare_fetches_what_is_absent(params, monkeypatch):
    """An absent file is asked for, in the user's data_dir, and by its name at the mirror."""
    (pathlib.Path(params["data_dir"]) / "t10k-labels-idx1-ubyte").unlink()
    asked = []

    def refuse(url, path, *_):
        asked.append((url, path))
        raise DataError("no network")

    monkeypatch.setattr(mnist.mnist_files, "fetch", refuse)
    with pytest.raises(DataError, match="no network"):
        mnist.prepare(params)
    name = "t10k-labels-idx1-ubyte.gz"
    assert asked == [(f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}",
                      pathlib.Path(params["data_dir"]) / name)]


@pytest.mark.skipif(not REAL_MNIST.exists(), reason=f"needs the real MNIST files in {REAL_MNIST}")
def test_real_files():
    """The numbers of examples, and a batch of the first ones, are MNIST's."""
    params = {"batch_size": 10, "data_dir": str(REAL_MNIST), "seed": None}
    mnist.prepare(params)
    train, test = mnist.load(str(REAL_MNIST))
    assert (train.images.shape, test.images.shape) == ((60000, 784), (10000, 784))
    features, labels = _first_batch("eval", params)
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    np.testing.assert_allclose(features, test.images[:1000] / 255, rtol=1e-6)
