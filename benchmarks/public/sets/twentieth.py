"""Small data sets for the jobs of `twentieth.json`: all drawn with a fixed seed."""

from __future__ import annotations

import gzip
import json
import pathlib
import pickle

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_LABELS = 80  # of the questions
_PERSONS = 20
_MODEL = {"train": {"numTrainEpochs": 10, "validSetRate": 0.1, "isContinuous": False, "params": {
    "MiniBatchs": 100, "NumHiddenLayers": 2, "NumHiddenNodes": [20, 10], "ActivationFunc": ["relu", "tanh"],
    "LearningRate": 0.01, "Propagation": "Adam"}}}
_FILMS = {  # name -> type, transform, parameter; the sizes are those of the checkpoint in the job's repository
    "did": ("category", "hash_bucket", "5000"),
    "coocaa_v_id": ("category", "hash_bucket", "3000"),
    "is_vip": ("category", "vocab", "[0,1]"),
    "source": ("category", "hash_bucket", "6"),
    "tag": ("category", "vocab", "../export_model/1561686061/assets/tag_list.txt"),
    "director": ("category", "hash_bucket", "3000"),
    "area": ("category", "hash_bucket", "50"),
    "year": ("category", "hash_bucket", "50"),
    "score": ("continuous", "min_max", "0,10"),
}


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(21)
    for make_one in (_census_clean, _stores, _loans, _market, _questions, _films, _products):
        make_one(root, rng)


def _census_clean(root: pathlib.Path, rng: np.random.Generator) -> None:
    """census_clean/: census/ without its blanks, as the job's census_dataset.py leaves it."""
    del rng
    for name, source in (("data", "adult.data.csv"), ("evaluate", "adult.test.csv")):
        rows = (root / "census" / source).read_text(encoding="utf-8")
        write_text(root / "census_clean" / f"adult.{name}", rows.replace(", ", ","))


def _stores(root: pathlib.Path, rng: np.random.Generator) -> None:
    """stores/: money for television, radio and newspapers, a region, and sales."""
    for name, count in (("train", 400), ("eval", 100)):
        rows = []
        for tv, radio, newspaper in rng.uniform(0, 50, (count, 3)):
            region = rng.choice(["north", "south", "east", "west"])
            rows.append(f"{tv:.1f},{radio:.2f},{newspaper:.2f},{region},{3 + tv / 20 + radio / 5:.3f}\n")
        write_text(root / "stores" / f"{name}_data.csv", "".join(rows))


def _loans(root: pathlib.Path, rng: np.random.Generator) -> None:
    """loans/: a target and four numbers a line, behind each other with bars, and Shifu's ModelConfig.json."""
    write_text(root / "loans" / "ModelConfig.json", json.dumps(_MODEL))
    for part in range(2):
        numbers = rng.normal(0, 1, (1000, 4))
        lines = ("|".join([str(int(row.sum() > 0)), *(f"{x:.4f}" for x in row)]) for row in numbers)
        (root / "loans" / f"part-{part}.gz").write_bytes(gzip.compress("".join(f"{x}\n" for x in lines).encode()))


def _market(root: pathlib.Path, rng: np.random.Generator) -> None:
    """market/: images of persons as the job's convert_to_tfrecords.py writes them, and their list."""
    labels = rng.integers(0, _PERSONS, 200).tolist()
    colors = rng.integers(60, 200, (_PERSONS, 3))
    images = (np.clip(colors[label] + rng.normal(0, 20, (160, 64, 3)), 0, 255).astype(np.uint8) for label in labels)
    write_records(root / "market" / "bounding_box_train.tfrecord", (
        {"image/encoded": [tf.io.encode_png(image).numpy()], "image/format": [b"png"], "image/label": [label],
         "image/filename": [b"person.png"]} for image, label in zip(images, labels)))
    write_text(root / "market" / "bounding_box_train.txt", "".join(f"{i}.jpg {x}\n" for i, x in enumerate(labels)))


def _questions(root: pathlib.Path, rng: np.random.Generator) -> None:
    """questions/: a standard question of each label, and questions with the label in front that share its words."""
    words = rng.integers(0, 400, (_LABELS, 6))
    write_text(root / "questions" / "std_data", "".join(
        f"domain\tlabel{i}\t{' '.join(f'w{word}' for word in row)}\n" for i, row in enumerate(words)))
    for name, count in (("train", 1600), ("valid", 200)):
        lines = []
        for label in rng.integers(0, _LABELS, count):
            chosen = [*rng.choice(words[label], rng.integers(3, 6), replace=False), rng.integers(400)]
            lines.append(f"label{label}\tnone\t{' '.join(f'w{word}' for word in chosen)}\n")
        write_text(root / "questions" / f"{name}_data", "".join(lines))


def _films(root: pathlib.Path, rng: np.random.Generator) -> None:
    """films/: which features there are, and where the data is: in the job's repository."""
    del rng
    sections = (f"[{name}]\ntype: {kind}\ntransform: {transform}\nparameter: {parameter}\ndim: 2981\nis_deep: true\n\n"
                for name, (kind, transform, parameter) in _FILMS.items())
    write_text(root / "films" / "feature_conf.ini", "".join(sections))
    write_text(root / "films" / "model_conf.ini", "[model_conf]\nbatch_size: 10000\n"
               "data_dir_train: ../data/train_data\ndata_dir_pred: ../data/eval_data\n")


def _products(root: pathlib.Path, rng: np.random.Generator) -> None:
    """products/: the categories of products, which `dsxiangli-ctr` reads whatever its data is."""
    path = root / "products" / "remap.pkl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for value in ([], rng.integers(0, 10, 100).tolist(), (50, 100, 10, 500)):
            pickle.dump(value, file)
