"""The files of MNIST: their names, where they are looked for, and how they are read.

    data_dir/train-images-idx3-ubyte[.gz]   the training set; labels in train-labels-idx1-ubyte
    data_dir/t10k-images-idx3-ubyte[.gz]    the test set; labels in t10k-labels-idx1-ubyte
    data_dir/mnist.npz                      everything in Keras' format; used if one of the four is missing
    data_dir                                may itself be that npz file, under any name

Existing files are used with any checksum; missing ones are downloaded.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from ps_train.errors import DataError

from . import idx
from .examples import Examples, Splits
from .fetch import TIMEOUT_SECS, fetch

# The mirror that TensorFlow Datasets uses for MNIST.
BASE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"

# name -> sha256 of the canonical files of LeCun, Cortes and Burges
FILES = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}
NPZ = "mnist.npz"

# What numpy raises for an unexpected file: not a zip, a damaged part, a single .npy (which has no `with`:
# AttributeError before Python 3.11), pickled objects, a missing array.
_NOT_NPZ = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),
    *(AttributeError, TypeError, ValueError, KeyError),
)


def ensure(data_dir: str, base_url: str = BASE_URL, timeout_secs: float = TIMEOUT_SECS) -> None:
    """Downloads the files missing in `data_dir`; several processes may do so at once.

    Raises:
        DataError: a file cannot be fetched or written, or is not the expected one.
    """
    folder = _folder(data_dir)
    if _npz_path(folder).exists():
        return
    if folder.suffix == ".npz":  # not a folder to create and fill
        raise DataError(
            "input_file_missing", f"{folder}: no such file; put Keras's {NPZ} there, or give a folder, "
            "into which the files of MNIST are downloaded"
        )
    advice = (
        f"put {', '.join(FILES)}, or instead of the four {NPZ}, in {folder} yourself, or use "
        "--dataset=data.digits, which needs no file"
    )
    for name in [name for name in FILES if not _find(folder, name)]:
        url = f"{base_url.rstrip('/')}/{name}"
        fetch(url, folder / name, FILES[name], advice, timeout_secs)


def read(data_dir: str) -> Splits:
    """Reads the four files or, if one of them is missing, mnist.npz.

    Raises:
        DataError: a file is missing, damaged, or not of 28 x 28 images and their labels.
    """
    folder = _folder(data_dir)
    paths = [_find(folder, name) for name in FILES]
    if not all(paths) and _npz_path(folder).exists():
        return _read_npz(_npz_path(folder))
    train_images, train_labels, test_images, test_labels = (
        path or folder / name for path, name in zip(paths, FILES)
    )
    return Splits(_read_pair(train_images, train_labels), _read_pair(test_images, test_labels))


def _folder(data_dir: str) -> Path:
    if "://" in data_dir:  # Path would make a local folder of that name
        raise DataError(
            "path_is_url", f"{data_dir}: not a folder of this machine: copy the MNIST files to one"
        )
    path = Path(data_dir)  # TensorFlow 1 reads "~" as a name: its scripts may have left a folder that is called so
    return path if path.exists() else path.expanduser()


def _npz_path(folder: Path) -> Path:
    """Returns the path of the npz file, if there is one: in the folder, or data_dir itself."""
    return folder if folder.is_file() else folder / NPZ


def _find(folder: Path, name: str) -> Path | None:
    """Returns the file of that name, or its unpacked form, if it exists."""
    candidates = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in candidates if path.exists()), None)


def _read_pair(images_path: Path, labels_path: Path) -> Examples:
    images, labels = idx.read_pair(images_path, labels_path)
    _check_images(images, images_path)
    return Examples(images, labels.astype(np.int32))


def _read_npz(path: Path) -> Splits:
    arrays = _npz_arrays(path)
    train, test = (
        _npz_examples(path, arrays, f"x_{split}", f"y_{split}") for split in ("train", "test")
    )
    return Splits(train, test)


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays in the file by name; a pickled object is refused, not executed."""
    try:
        with np.load(path, allow_pickle=False) as npz:
            return {name: npz[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    except _NOT_NPZ as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            "npz_damaged", f"{path}: not an npz file with x_train, y_train, x_test and y_test ({reason}): "
            "put Keras's mnist.npz there"
        ) from error


def _npz_examples(path: Path, arrays: dict[str, np.ndarray], x: str, y: str) -> Examples:
    images, labels = arrays[x], arrays[y]
    where = f"{path} ({x}, {y})"
    _check_images(images, where)
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise DataError(
            "npz_wrong_kind", f"{where}: labels are {labels.dtype} {list(labels.shape)}, expected integers "
            f"[{len(images)}], one for each image: put Keras's mnist.npz there"
        )
    idx.check_labels(labels, where)
    return Examples(images, labels.astype(np.int32))


def _check_images(images: np.ndarray, where: Path | str) -> None:
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28) or not len(images):
        raise DataError(
            "images_wrong_shape", f"{where}: images are {images.dtype} {list(images.shape)}, expected uint8 "
            "[n, 28, 28] with n >= 1: put the files of MNIST there"
        )
