"""Where the files of MNIST are found, when they are fetched, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import pathlib
import struct

import numpy as np
import pytest

from data import mnist_files
from ps_train.errors import DataError

REAL_MNIST = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data" / "mnist"
NOWHERE = "file:///nowhere/"


def _images(labels, side=28):
    pixels = b"".join(bytes([10 * label]) * side * side for label in labels)
    return struct.pack(">4I", 0x803, len(labels), side, side) + pixels


def _labels(labels):
    return struct.pack(">2I", 0x801, len(labels)) + bytes(labels)


def _contents(train=(5, 6, 7), test=(8, 9)):
    contents = (_images(train), _labels(train), _images(test), _labels(test))
    return dict(zip(mnist_files.FILES, map(gzip.compress, contents)))


def _write(folder, contents):
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def _keras(labels):
    images = np.repeat(10 * np.array(labels, np.uint8), 784).reshape(-1, 28, 28)
    return images, np.array(labels, np.uint8)


def _write_npz(folder, **replaced):
    (x_train, y_train), (x_test, y_test) = _keras([1, 2, 3, 4]), _keras([0])
    arrays = dict(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    np.savez_compressed(folder / mnist_files.NPZ, **{**arrays, **replaced})


def _error(function, *arguments):
    with pytest.raises(DataError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_that_are_there_are_used_as_they_are(tmp_path):
    """Files with other sums than the canonical ones are read, and nothing is fetched."""
    _write(tmp_path, _contents())
    mnist_files.ensure(str(tmp_path), NOWHERE)
    train, test = mnist_files.read(str(tmp_path))
    assert train.labels.tolist() == [5, 6, 7] and test.labels.tolist() == [8, 9]
    assert train.images.shape == (3, 28, 28) and train.images[:, 0, 0].tolist() == [50, 60, 70]
    assert train.images.dtype == np.uint8 and train.labels.dtype == np.int32


def test_unpacked_files_will_do(tmp_path):
    """A file may be there without its .gz."""
    contents = _contents()
    contents["train-images-idx3-ubyte"] = gzip.decompress(contents.pop(next(iter(contents))))
    _write(tmp_path, contents)
    mnist_files.ensure(str(tmp_path), NOWHERE)
    assert mnist_files.read(str(tmp_path)).train.images[2, 27, 27] == 70


def test_home_folder(tmp_path, monkeypatch):
    """A data_dir may begin with ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    _write(tmp_path / "mnist", _contents())
    mnist_files.ensure("~/mnist", NOWHERE)
    assert len(mnist_files.read("~/mnist").test.labels) == 2


def test_a_folder_that_is_called_tilde(tmp_path, monkeypatch):
    """A folder that is there is taken before the home folder, as a script's read_data_sets("~/") made it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "~", _contents())
    mnist_files.ensure("~", NOWHERE)
    assert len(mnist_files.read("~/").test.labels) == 2


def test_only_absent_files_are_fetched(tmp_path, monkeypatch):
    """What is there stays as it is; what is absent comes from the base URL."""
    theirs, mine = _contents(), _contents(train=(1, 2, 3))
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in theirs.items()}
    monkeypatch.setattr(mnist_files, "FILES", sums)
    source = _write(tmp_path / "source", theirs)
    folder = _write(tmp_path / "here", dict(list(mine.items())[:2]))
    mnist_files.ensure(str(folder), source.as_uri())
    train, test = mnist_files.read(str(folder))
    assert train.labels.tolist() == [1, 2, 3] and test.labels.tolist() == [8, 9]
    assert sorted(path.name for path in folder.iterdir()) == sorted(mnist_files.FILES)


def test_fetched_file_must_have_the_canonical_sum(tmp_path):
    """Another file from a mirror is an error, whose message says what to do."""
    source = _write(tmp_path / "source", _contents())
    message = _error(mnist_files.ensure, str(tmp_path / "here"), source.as_uri())
    name = "train-images-idx3-ubyte.gz"
    for words in (f"{source.as_uri()}/{name}", mnist_files.FILES[name], str(tmp_path / "here"),
                  "mnist.npz", "--dataset=data.digits"):
        assert words in message
    assert list((tmp_path / "here").iterdir()) == []


def test_npz_spares_the_download(tmp_path):
    """mnist.npz as Keras keeps it stands in for the four files."""
    _write_npz(tmp_path)
    mnist_files.ensure(str(tmp_path), NOWHERE)
    train, test = mnist_files.read(str(tmp_path))
    assert train.labels.tolist() == [1, 2, 3, 4] and test.labels.tolist() == [0]
    assert train.images[:, 5, 5].tolist() == [10, 20, 30, 40] and test.images.shape == (1, 28, 28)
    assert train.labels.dtype == np.int32


def test_the_npz_file_itself_will_do(tmp_path):
    """Under any name: it is the file of `tf.keras.datasets.mnist.load_data`."""
    _write_npz(tmp_path)
    path = (tmp_path / mnist_files.NPZ).rename(tmp_path / "digits")
    mnist_files.ensure(str(path), NOWHERE)
    assert mnist_files.read(str(path)).train.labels.tolist() == [1, 2, 3, 4]


def test_an_npz_file_that_is_not_there_is_no_folder_to_fill(tmp_path):
    """Nothing is fetched, and no folder of that name is made."""
    path = tmp_path / "mnist.npz"
    source = _write(tmp_path / "source", _contents())
    assert f"{path}: no such file" in _error(mnist_files.ensure, str(path), source.as_uri())
    assert not path.exists()


def test_another_file_is_not_taken_for_a_folder(tmp_path):
    """One of the four, say: the error names it, and what it should be."""
    path = _write(tmp_path, _contents()) / next(iter(mnist_files.FILES))
    mnist_files.ensure(str(path), NOWHERE)
    assert f"{path}: not an npz file with x_train" in _error(mnist_files.read, str(path))


def test_four_files_come_before_npz(tmp_path):
    """With both there, the four files are read."""
    _write(tmp_path, _contents())
    _write_npz(tmp_path)
    assert mnist_files.read(str(tmp_path)).train.labels.tolist() == [5, 6, 7]


def test_npz_when_one_file_is_absent(tmp_path):
    """Three of the four files are not a mixture with mnist.npz: that alone is read."""
    _write(tmp_path, dict(list(_contents().items())[:3]))
    _write_npz(tmp_path)
    mnist_files.ensure(str(tmp_path), NOWHERE)
    assert mnist_files.read(str(tmp_path)).train.labels.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("replaced, words", [
    ({"x_train": np.zeros((4, 784), np.uint8)}, ["x_train", "[4, 784]", "[n, 28, 28]"]),
    ({"x_test": np.zeros((1, 28, 28), np.float32)}, ["x_test", "float32"]),
    ({"x_test": np.zeros((0, 28, 28), np.uint8)}, ["x_test", "n >= 1"]),
    ({"y_train": np.zeros(3, np.uint8)}, ["y_train", "[3]", "[4]"]),
    ({"y_train": np.zeros(4, np.float64)}, ["y_train", "float64"]),
    ({"y_train": np.array([0, 1, -1, 0])}, ["y_train", "-1 at index 2", "0..9"]),
    ({"y_test": np.array([None])}, ["allow_pickle"]),
])
def test_npz_of_something_else(tmp_path, replaced, words):
    """The arrays are checked as strictly as the files are."""
    _write_npz(tmp_path, **replaced)
    message = _error(mnist_files.read, str(tmp_path))
    for word in [str(tmp_path / mnist_files.NPZ), *words]:
        assert word in message


def test_npz_that_lacks_an_array(tmp_path):
    """The error lists the arrays that are needed."""
    np.savez(tmp_path / mnist_files.NPZ, x_train=np.zeros(1))
    assert "x_train, y_train, x_test and y_test" in _error(mnist_files.read, str(tmp_path))


@pytest.mark.parametrize("damage", [
    lambda content: b"", lambda content: b"PK junk", lambda content: content[: len(content) // 2],
    lambda content: b"\x93NUMPY\x01\x00" + content,
], ids=["empty", "junk", "truncated", "npy"])
def test_damaged_npz(tmp_path, damage):
    """A damaged file is a DataError that names it."""
    _write_npz(tmp_path)
    path = tmp_path / mnist_files.NPZ
    path.write_bytes(damage(path.read_bytes()))
    assert str(path) in _error(mnist_files.read, str(tmp_path))


def test_npy_under_the_name_of_npz(tmp_path):
    """A lone array is not an archive of four."""
    with (tmp_path / mnist_files.NPZ).open("wb") as file:
        np.save(file, np.zeros(3))
    assert "not an npz file" in _error(mnist_files.read, str(tmp_path))


def test_images_of_another_size(tmp_path):
    """Sound IDX files of 32 x 32 images are not MNIST."""
    contents = _contents()
    contents["t10k-images-idx3-ubyte.gz"] = _images((8, 9), side=32)
    _write(tmp_path, contents)
    message = _error(mnist_files.read, str(tmp_path))
    assert "t10k-images-idx3-ubyte.gz" in message and "[2, 32, 32]" in message


def test_empty_folder(tmp_path):
    """Reading without the files names the first of them."""
    assert "train-images-idx3-ubyte.gz" in _error(mnist_files.read, str(tmp_path))


@pytest.mark.skipif(not REAL_MNIST.exists(), reason=f"needs the real MNIST files in {REAL_MNIST}")
@pytest.mark.parametrize("name", mnist_files.FILES)
def test_table_of_sums(name):
    """The table has the sums of the canonical files."""
    assert hashlib.sha256((REAL_MNIST / name).read_bytes()).hexdigest() == mnist_files.FILES[name]
