"""read_data_sets of the old tutorial, on small files of the MNIST form and on the real ones."""

from __future__ import annotations

import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

from data import mnist_files
from data.data_set import DataSet
from data.input_data import read_data_sets

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
REAL_MNIST = REPOSITORY.parent / "shared" / "data" / "mnist"
TRAIN_LABELS = [3, 1, 4, 1, 5, 9]
TEST_LABELS = [2, 6]


@pytest.fixture
def folder(tmp_path):
    """Six training and two test images, each filled with 10 x its label, unpacked."""
    for prefix, labels in (("train", TRAIN_LABELS), ("t10k", TEST_LABELS)):
        header = struct.pack(">4I", 0x803, len(labels), 28, 28)
        pixels = b"".join(bytes([10 * label]) * 784 for label in labels)
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(header + pixels)
        header = struct.pack(">2I", 0x801, len(labels))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(header + bytes(labels))
    return str(tmp_path)


def test_validation_is_the_first_of_training(folder):
    """The first training examples are for validation and no longer for training."""
    data = read_data_sets(folder, validation_size=2)
    assert data.validation.labels.tolist() == TRAIN_LABELS[:2]
    assert data.train.labels.tolist() == TRAIN_LABELS[2:]
    assert data.test.labels.tolist() == TEST_LABELS
    assert [part.num_examples for part in data] == [4, 2, 2]


def test_images_are_float_rows(folder):
    """By default images are float32 [n, 784] in [0, 1]."""
    images = read_data_sets(folder, validation_size=0).train.images
    expected = np.repeat(np.array(TRAIN_LABELS, np.float32)[:, None] * 10 / 255, 784, axis=1)
    np.testing.assert_allclose(images, expected, rtol=1e-6)
    assert images.dtype == np.float32


def test_images_as_in_the_file(folder):
    """dtype and reshape reach the DataSets: uint8 [n, 28, 28, 1]."""
    images = read_data_sets(folder, dtype=np.uint8, reshape=False, validation_size=1).test.images
    assert images.dtype == np.uint8 and images.shape == (2, 28, 28, 1)
    assert (images[0] == 20).all() and (images[1] == 60).all()


def test_one_hot_labels(folder):
    """one_hot labels have a 1 in the column of the class, in all three parts."""
    data = read_data_sets(folder, one_hot=True, validation_size=3)
    for part, labels in zip(data, (TRAIN_LABELS[3:], TRAIN_LABELS[:3], TEST_LABELS)):
        assert part.labels.sum() == len(labels) and part.labels.shape[1] == 10
        assert part.labels.argmax(axis=1).tolist() == labels


def test_seed_is_handed_on(folder):
    """The same seed gives the same batches."""
    first, again, other = (
        read_data_sets(folder, seed=seed, validation_size=0).train.next_batch(60)[1].tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("size", [-1, 7])
def test_validation_size_out_of_range(folder, size):
    """The error says what is allowed."""
    with pytest.raises(ValueError, match=rf"validation_size is {size}; allowed is 0\.\.6"):
        read_data_sets(folder, validation_size=size)


@pytest.mark.parametrize("fake", [False, True])
def test_other_dtype(fake, tmp_path):
    """An image type that there is not is refused before any file is looked for."""
    with pytest.raises(TypeError, match="int64"):
        read_data_sets(str(tmp_path / "absent"), fake_data=fake, dtype=np.int64)
    assert not (tmp_path / "absent").exists()


def test_fake_data_needs_no_files(tmp_path):
    """Fake data comes from nowhere, in three parts."""
    data = read_data_sets(str(tmp_path / "absent"), fake_data=True, one_hot=True)
    assert all(isinstance(part, DataSet) for part in data) and data._fields == (
        "train", "validation", "test")
    images, labels = data.validation.next_batch(3)
    assert images.shape == (3, 784) and labels.tolist() == [[1] + [0] * 9] * 3
    assert not (tmp_path / "absent").exists()


def test_needs_no_tensorflow():
    """The numpy readers start in a moment: importing them does not import TensorFlow."""
    program = "import sys, data.input_data; print('tensorflow' in sys.modules)"
    answer = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, timeout=60)
    assert answer.split() == [b"False"]


@pytest.mark.skipif(not REAL_MNIST.exists(), reason=f"needs the real MNIST files in {REAL_MNIST}")
def test_real_files_fetched_into_an_empty_folder(tmp_path):
    """What is fetched passes the published sums; mean and deviation are MNIST's known ones."""
    data = read_data_sets(str(tmp_path / "new"), source_url=REAL_MNIST.as_uri(), validation_size=0)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(mnist_files.FILES)
    assert [part.num_examples for part in data] == [60000, 0, 10000]
    assert data.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.train.images.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert data.train.images.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)
