"""Small data sets in the formats that the public scripts read: MNIST as given, all else drawn with a fixed seed."""

from __future__ import annotations

import gzip
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

_FIELDS, _FEATURES = 39, 1000  # of the Criteo formats
_WORDS = 128  # of swivel's vocabulary
_SUBMATRIX = 64
_CENSUS = (  # the categorical columns of the census data, by their place in a line
    (1, "Private State-gov Federal-gov Self-emp-inc"),
    (3, "Bachelors HS-grad Masters Some-college"),
    (5, "Never-married Divorced Widowed Separated"),
    (6, "Sales Tech-support Adm-clerical Craft-repair"),
    (7, "Husband Wife Own-child Unmarried"),
    (8, "White Black Other Asian-Pac-Islander"),
    (9, "Male Female"),
    (13, "United-States Mexico Canada Germany"),
)


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder, from MNIST's four gzip files in another."""
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_mnist, _census, _cifar10, _swivel, _criteo, _iris, _cancer, _bert):
        make_one(root, pathlib.Path(mnist), rng)


def _mnist(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """mnist/ the four files; mnist.npz; mnist_tfrecords/ as TensorFlow's convert_to_records wrote them."""
    del rng
    shutil.copytree(mnist, root / "mnist", dirs_exist_ok=True)
    arrays = {}
    for name, prefix in (("train", "train"), ("test", "t10k")):
        arrays[f"x_{name}"] = _idx(mnist / f"{prefix}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        arrays[f"y_{name}"] = _idx(mnist / f"{prefix}-labels-idx1-ubyte.gz", 8)
    np.savez(root / "mnist.npz", **arrays)
    for name, begin, end in (("train", 0, 5000), ("validation", 5000, 6000)):
        write_records(root / "mnist_tfrecords" / f"{name}.tfrecords", (
            {"height": [28], "width": [28], "depth": [1], "label": [int(label)], "image_raw": [image.tobytes()]}
            for image, label in zip(arrays["x_train"][begin:end], arrays["y_train"][begin:end])))


def _idx(path: pathlib.Path, header_bytes: int) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


def _census(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """census/adult.data and .test as the UCI repository has them, adult.data.csv and .test.csv as Cloud ML has."""
    del mnist
    for name, count in (("data", 2000), ("test", 500)):
        rows = [_census_row(rng) for _ in range(count)]
        head, end = ("|1x3 Cross validator\n", ".") if name == "test" else ("", "")
        write_text(root / "census" / f"adult.{name}", head + "".join(f"{row}{end}\n" for row in rows))
        write_text(root / "census" / f"adult.{name}.csv", "".join(f"{row}\n" for row in rows))


def _census_row(rng: np.random.Generator) -> str:
    age, education = int(rng.integers(18, 80)), int(rng.integers(1, 17))
    row = [age, "", int(rng.integers(10000, 300000)), "", education, "", "", "", "", "", int(rng.integers(0, 5000)),
           int(rng.integers(0, 500)), int(rng.integers(10, 70)), "", ">50K" if age + 3 * education > 75 else "<=50K"]
    for place, values in _CENSUS:
        row[place] = str(rng.choice(values.split()))
    return ", ".join(map(str, row))


def _cifar10(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """cifar10/ as the Estimator tutorial reads it, cifar10_png/ as TF-slim's data preparation writes it."""
    del mnist
    for name in ("train", "validation", "eval"):
        write_records(root / "cifar10" / f"{name}.tfrecords", (
            {"image": [rng.bytes(3 * 32 * 32)], "label": [int(rng.integers(10))]} for _ in range(500)))
    write_records(root / "cifar10_png" / "train-00000-of-00001", (
        {"image/encoded": [tf.io.encode_png(rng.integers(0, 256, (32, 32, 3), np.uint8)).numpy()],
         "image/format": [b"png"], "image/class/label": [int(rng.integers(10))], "image/height": [32],
         "image/width": [32], "image/channels": [3]} for _ in range(500)))


def _swivel(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """swivel/: vocabularies, marginal sums, and the submatrices of a matrix of co-occurrences."""
    del mnist
    folder, counts = root / "swivel", rng.poisson(1.0, (_WORDS, _WORDS)).astype(float)
    for name, axis in (("row", 1), ("col", 0)):
        write_text(folder / f"{name}_vocab.txt", "".join(f"word{i}\n" for i in range(_WORDS)))
        write_text(folder / f"{name}_sums.txt", "".join(f"{total}\n" for total in counts.sum(axis)))
    for i in range(0, _WORDS, _SUBMATRIX):
        for j in range(0, _WORDS, _SUBMATRIX):
            part = counts[i:i + _SUBMATRIX, j:j + _SUBMATRIX]
            rows, columns = part.nonzero()
            example = _example({"global_row": range(i, i + _SUBMATRIX), "global_col": range(j, j + _SUBMATRIX),
                                "sparse_local_row": rows.tolist(), "sparse_local_col": columns.tolist(),
                                "sparse_value": part[rows, columns].tolist()})
            (folder / f"shard-{i:03}-{j:03}.pb").write_bytes(example)


def _criteo(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """libsvm/ and criteo_csv/: the training, validation and test files of click-through models."""
    del mnist
    for name, count in (("tr", 4000), ("va", 500), ("te", 500)):
        lines, rows = [], []
        for _ in range(count):
            ids, values = rng.integers(0, _FEATURES, _FIELDS), rng.random(_FIELDS)
            label = int(ids[0] < _FEATURES // 4)
            lines.append(" ".join([str(label), *(f"{i}:{value:.4f}" for i, value in zip(ids, values))]))
            rows.append(",".join([f"{label}.0", *(f"{value:.4f}" for value in values[:13]), *map(str, ids[13:])]))
        write_text(root / "libsvm" / f"{name}.libsvm", "\n".join(lines) + "\n")
        write_text(root / "criteo_csv" / f"{name}.csv", "\n".join(rows) + "\n")


def _iris(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """iris/: a line with the numbers of rows and columns, then four measures and a class."""
    del mnist
    for name, count in (("training", 120), ("test", 30)):
        classes = rng.integers(0, 3, count)
        measures = rng.normal(classes[:, None] * 2.0 + 1.0, 0.3, (count, 4))
        rows = [",".join([*(f"{value:.1f}" for value in row), str(label)]) for row, label in zip(measures, classes)]
        write_text(root / "iris" / f"iris_{name}.csv", "\n".join([f"{count},4,a,b,c", *rows]) + "\n")


def _cancer(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """cancer/: nine measures and a class, all of them floats."""
    del mnist
    for name, count in (("train", 500), ("test", 150)):
        write_records(root / "cancer" / f"cancer_{name}.csv.tfrecords", (
            {"label": [float(measures[0] > 5.0)], "features": measures.tolist()}
            for measures in rng.uniform(1.0, 10.0, (count, 9))))


def _bert(root: pathlib.Path, mnist: pathlib.Path, rng: np.random.Generator) -> None:
    """bert/: a tiny configuration, a vocabulary, and pairs of sentences in the format of MRPC."""
    del mnist
    words = [f"word{i}" for i in range(50)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    write_text(root / "bert" / "vocab.txt", "\n".join(vocabulary) + "\n")
    write_text(root / "bert" / "bert_config.json", json.dumps({
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
        "vocab_size": len(vocabulary), "max_position_embeddings": 64, "type_vocab_size": 2}))
    for name, count in (("train", 400), ("dev", 80), ("test", 80)):
        rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        rows += [f"{rng.integers(2)}\t{i}\t{i}\t{' '.join(rng.choice(words, 6))}\t{' '.join(rng.choice(words, 6))}"
                 for i in range(count)]
        write_text(root / "bert" / f"{name}.tsv", "\n".join(rows) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file, and its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_records(path: pathlib.Path, examples: Iterable[dict[str, Sequence]], compression: str = "") -> None:
    """Writes examples, each a dict of lists of integers, floats or bytes, into a TFRecord file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for example in examples:
            writer.write(_example(example))


def _example(values: dict[str, Sequence]) -> bytes:
    """Returns a serialized tf.train.Example; lists of integers, of floats, or of bytes."""
    kinds: dict[type, Callable] = {
        int: lambda value: tf.train.Feature(int64_list=tf.train.Int64List(value=value)),
        float: lambda value: tf.train.Feature(float_list=tf.train.FloatList(value=value)),
        bytes: lambda value: tf.train.Feature(bytes_list=tf.train.BytesList(value=value)),
    }
    features = {name: kinds[type(value[0])](value) for name, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
