"""Small data sets for the jobs of `fourth.json`, all drawn with a fixed seed."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_FEATURES = 100


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder; MNIST is not used."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_xlearning, _series, _variants, _records, _imagenet, _submarine):
        make_one(root, rng)


def _xlearning(root: pathlib.Path, rng: np.random.Generator) -> None:
    """xlearning/: a class, a blank, and 100 numbers with commas between them."""
    for name in ("file1", "file2"):
        rows = rng.normal(size=(1000, _FEATURES))
        lines = [f"{int(row[0] > 0)} {','.join(f'{value:.3f}' for value in row)}" for row in rows]
        write_text(root / "xlearning" / name, "\n".join(lines) + "\n")


def _series(root: pathlib.Path, rng: np.random.Generator) -> None:
    """series/train.csv-0 and valid.csv-0: ten values of a sine in a line."""
    for name, count in (("train", 500), ("valid", 100)):
        frequencies = rng.uniform(0.1, 0.6, (count, 1))
        values = np.sin(np.arange(10) * frequencies) + rng.uniform(0.5, 2.0, (count, 1))
        lines = (",".join(f"{value:.4f}" for value in row) for row in values)
        write_text(root / "series" / f"{name}.csv-0", "".join(f"{line}\n" for line in lines))


def _variants(root: pathlib.Path, rng: np.random.Generator) -> None:
    """variants/: ten compressed files of examples with the numbers of their genome's variants."""
    for number in range(10):
        classes = rng.integers(0, 5, 40)
        write_records(root / "variants" / f"examples-{number:05}-of-00010", (
            {"variants_1": rng.integers(200 * label, 200 * label + 200, 30).tolist(),
             "variants_2": rng.integers(0, 1000, 30).tolist(), "super_population": [int(label)],
             "super_population_string": [b"EUR"], "sample_name": [b"sample"]} for label in classes), "GZIP")


def _records(root: pathlib.Path, rng: np.random.Generator) -> None:
    """records/train and test: examples with the numbers and values of the features that are not zero."""
    for name, count in (("train", 4000), ("test", 400)):
        ids = rng.permuted(np.tile(np.arange(_FEATURES), (count, 1)), axis=1)[:, :10]
        write_records(root / "records" / name / "part-0", (
            {"label": [int(row.min() < _FEATURES // 10)], "ids": row.tolist(), "vals": [1.0] * len(row)}
            for row in ids))


def _imagenet(root: pathlib.Path, rng: np.random.Generator) -> None:
    """imagenet/: JPEG images with a class and the box of an object, as Inception's data preparation writes them."""
    for shard in range(2):
        write_records(root / "imagenet" / f"train-{shard:05}-of-00002", (
            {"image/encoded": [tf.io.encode_jpeg(rng.integers(0, 256, (64, 64, 3), np.uint8)).numpy()],
             "image/class/label": [int(rng.integers(1, 1001))], "image/class/text": [b"thing"],
             "image/object/bbox/xmin": [0.1], "image/object/bbox/xmax": [0.9], "image/object/bbox/ymin": [0.1],
             "image/object/bbox/ymax": [0.9], "image/object/bbox/label": [1]} for _ in range(200)))


def _submarine(root: pathlib.Path, rng: np.random.Generator) -> None:
    """submarine/deepfm.json: the example's own settings with smaller layers; its data comes with it."""
    del rng
    write_text(root / "submarine" / "deepfm.json", json.dumps({
        "input": {"train_data": ["example/data/tr.libsvm"], "valid_data": ["example/data/va.libsvm"],
                  "test_data": ["example/data/te.libsvm"], "type": "libsvm"},
        "output": {"save_model_dir": "model", "metric": "auc"},
        "training": {"batch_size": 64, "field_size": 39, "num_epochs": 3, "feature_size": 117581, "embedding_size": 16,
                     "learning_rate": 0.0005, "batch_norm_decay": 0.9, "l2_reg": 0.0001, "deep_layers": [40, 40, 40],
                     "dropout": [0.3, 0.3, 0.3], "batch_norm": False, "optimizer": "adam", "log_steps": 10, "seed": 77,
                     "mode": "distributed"},
        "resource": {"num_cpu": 4, "num_gpu": 0, "num_thread": 0}}))
