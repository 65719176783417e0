"""read_data_sets of the old tutorial, on small files of the MNIST form and on the real ones."""

from __future__ import annotations

import gzip
import io
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

from data import input_data, mnist_files
from data.data_set import DataSet
from data.input_data import read_data_sets
from tests.processes import GUARD_SECS

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
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


def test_the_npz_file_of_keras_is_read(tmp_path):
    """In place of a folder."""
    images, labels = np.zeros([6, 28, 28], np.uint8), np.array(TRAIN_LABELS, np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    data = read_data_sets(str(tmp_path / "mnist.npz"), validation_size=2)
    assert data.train.labels.tolist() == TRAIN_LABELS[2:] and data.test.num_examples == 2


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
    """An unknown image type is refused before any file is searched."""
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


@pytest.mark.parametrize("given", [{"source_url": ""}, {"source_url": None}, {}])
def test_no_source_url_is_the_default_one(tmp_path, monkeypatch, given):
    """As in the tutorial, whose callers pass an empty flag on."""
    asked = []

    def ensure(train_dir, url):
        asked.append(url)
        raise KeyboardInterrupt

    monkeypatch.setattr(mnist_files, "ensure", ensure)
    with pytest.raises(KeyboardInterrupt):
        read_data_sets(str(tmp_path), **given)
    assert asked == [mnist_files.BASE_URL] == [input_data.DEFAULT_SOURCE_URL]


def idx_file(magic, shape, content):
    """A gzip'd IDX file in memory."""
    return io.BytesIO(gzip.compress(struct.pack(f">{1 + len(shape)}I", magic, *shape) + content))


def test_the_readers_of_the_later_tutorial():
    """Under its names with a leading underscore, with its shapes and types."""
    images = input_data._extract_images(idx_file(2051, (2, 2, 3), bytes(range(12))))
    assert (images.dtype, images.shape, images[1, 0, 2, 0]) == (np.uint8, (2, 2, 3, 1), 8)
    labels = input_data._extract_labels(idx_file(2049, (3,), bytes([2, 0, 1])))
    assert (labels.dtype, labels.tolist()) == (np.uint8, [2, 0, 1])
    one_hot = input_data._extract_labels(idx_file(2049, (2,), bytes([2, 0])), one_hot=True, num_classes=3)
    assert one_hot.tolist() == [[0, 0, 1], [1, 0, 0]] == input_data._dense_to_one_hot(np.array([2, 0]), 3).tolist()
    assert input_data._read32(io.BytesIO(b"\x00\x00\x08\x03")) == 2051
    data_set = input_data._DataSet(images, labels[:2])
    assert isinstance(data_set, DataSet) and data_set.images.shape == (2, 6)
    assert input_data._Datasets(train=data_set, validation=None, test=None).train is data_set


@pytest.mark.parametrize(("read", "file", "message"), [
    (input_data._extract_images, idx_file(2049, (1,), b"1"), "magic number 2049; expected 2051"),
    (input_data._extract_labels, idx_file(2051, (1, 1, 1), b"1"), "magic number 2051; expected 2049"),
    (input_data._extract_labels, idx_file(2049, (5,), b"123"), "truncated: 3 of 5 bytes"),
])
def test_the_later_readers_refuse_another_file(read, file, message):
    """With a ValueError, as the tutorial's; they read no further."""
    with pytest.raises(ValueError, match=message):
        read(file)


def test_maybe_download_takes_what_is_there_and_knows_four_names(tmp_path):
    """The later tutorial's function: the URL is that of the file itself."""
    name = "t10k-labels-idx1-ubyte.gz"
    (tmp_path / name).write_bytes(b"here")
    path = input_data._maybe_download(name, str(tmp_path), "http://localhost:1/never-asked")
    assert path == str(tmp_path / name)
    with pytest.raises(ValueError, match="filename is 'other.gz'; allowed are train-images"):
        input_data._maybe_download("other.gz", str(tmp_path), "http://localhost:1/never-asked")


@pytest.mark.skipif(not REAL_MNIST.exists(), reason=f"needs the real MNIST files in {REAL_MNIST}")
def test_maybe_download_fetches_into_an_empty_folder(tmp_path):
    """And what it fetched is read by the tutorial's own steps."""
    name = "t10k-labels-idx1-ubyte.gz"
    with open(input_data._maybe_download(name, str(tmp_path / "new"), (REAL_MNIST / name).as_uri()), "rb") as file:
        labels = input_data._extract_labels(file, one_hot=True)
    assert labels.shape == (10000, 10) and labels[0].argmax() == 7


def test_needs_no_tensorflow():
    """The numpy readers start in a moment: importing them does not import TensorFlow."""
    program = "import sys, data.input_data; print('tensorflow' in sys.modules)"
    answer = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, timeout=GUARD_SECS)
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
