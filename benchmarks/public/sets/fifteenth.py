"""Small data sets for further jobs of `fourteenth.json` and `fifteenth.json`: all drawn with a fixed seed.

What the modules before this one made in the same folder is used again: MNIST, whole and small.
"""

from __future__ import annotations

import gzip
import pathlib
import pickle

import numpy as np

_ROWS, _TEST_ROWS, _TRIGRAMS = 1032192, 10240, 2000  # batches of 1,024 pairs, as many as an epoch has


def make(folder: str, mnist: str) -> None:
    """Makes the data sets.

    Args:
      folder: where they go.
      mnist: the folder of MNIST's four files.
    """
    root = pathlib.Path(folder)
    _few_digits(root, pathlib.Path(mnist))
    _trigrams(root, np.random.default_rng(17))


def _few_digits(root: pathlib.Path, mnist: pathlib.Path) -> None:
    """mnist_few/: MNIST's four files with so few digits that a reader who puts 5,000 aside has 1,920 to train with."""
    (root / "mnist_few").mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 6920), ("t10k", 200)):
        for kind, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            name = f"{part}-{kind}-ubyte.gz"
            whole = gzip.decompress((mnist / name).read_bytes())
            few = whole[:4] + count.to_bytes(4, "big") + whole[8:header] + whole[header:header + count * size]
            (root / "mnist_few" / name).write_bytes(gzip.compress(few, mtime=0))


def _trigrams(root: pathlib.Path, rng: np.random.Generator) -> None:
    """trigrams/: queries and documents as rows of letter trigrams, in SciPy's sparse matrices, pickled.

    What the pickles name is named as SciPy 1.x and NumPy 1.x have it, which newer ones read as well.
    """
    (root / "trigrams").mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", _ROWS), ("test", _TEST_ROWS)):
        query = rng.integers(0, _TRIGRAMS, rows, dtype=np.int32)
        doc = (query + rng.integers(0, 3, rows, dtype=np.int32)) % _TRIGRAMS  # a trigram near the query's
        for name, columns in (("query", query), ("doc", doc)):
            (root / "trigrams" / f"{name}.{part}.pickle").write_bytes(_pickled(columns))


def _pickled(columns: np.ndarray) -> bytes:
    """Returns a pickled CSR matrix with a single one in each row."""
    state = {"_shape": (len(columns), _TRIGRAMS), "maxprint": 50, "_has_sorted_indices": True,
             "_has_canonical_format": True, "indices": columns.astype(np.int32),
             "indptr": np.arange(len(columns) + 1, dtype=np.int32), "data": np.ones(len(columns), np.float32)}
    matrix = _Class()
    vars(matrix).update(state)
    dumped = pickle.dumps(matrix, protocol=2)
    dumped = dumped.replace(f"c{__name__}\n_Class\n".encode(), b"cscipy.sparse.csr\ncsr_matrix\n")
    return dumped.replace(b"cnumpy._core.", b"cnumpy.core.")


class _Class:
    """Stands for SciPy's class of matrices in a pickle."""
