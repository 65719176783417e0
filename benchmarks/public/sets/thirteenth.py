"""Small data sets for the jobs of `thirteenth.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST, whole, small and as one file of NumPy.
"""

from __future__ import annotations

import json
import pathlib
import pickle
import wave
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_SENSORS, _STEPS = 20, 12  # of the traffic: sensors, and times that are given and asked for
_SAMPLES, _RATE = 46797, 16000  # of the utterance; its script wants two files of as many bytes as a known sample's
_WORD_DIMENSIONS = 300
_TAGS = ("O", "B-PER", "I-PER", "B-LOC")
_USERS, _FILMS = 6040, 3952
_CLASSES = 10
_TRAFFIC = {  # dcrnn_la.yaml of its repository, with fewer sensors, units and epochs
    "base_dir": "data/model", "log_level": "INFO",
    "data": {"batch_size": 16, "dataset_dir": "data/METR-LA", "test_batch_size": 16, "val_batch_size": 16,
             "graph_pkl_filename": "data/sensor_graph/adj_mx.pkl"},
    "model": {"cl_decay_steps": 2000, "filter_type": "dual_random_walk", "horizon": _STEPS, "input_dim": 2,
              "l1_decay": 0, "max_diffusion_step": 2, "num_nodes": _SENSORS, "num_rnn_layers": 2, "output_dim": 1,
              "rnn_units": 16, "seq_len": _STEPS, "use_curriculum_learning": True},
    "train": {"base_lr": 0.01, "dropout": 0, "epoch": 0, "epochs": 3, "epsilon": 0.001, "global_step": 0,
              "lr_decay_ratio": 0.1, "max_grad_norm": 5, "max_to_keep": 100, "min_learning_rate": 0.0001,
              "optimizer": "adam", "patience": 50, "steps": [20, 30, 40, 50], "test_every_n_epochs": 2},
}


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_digits, _facades, _entities, _stars, _traffic, _pictures, _utterance, _text):
        make_one(root, rng)


def _digits(root: pathlib.Path, rng: np.random.Generator) -> None:
    """digits/: a part of MNIST as Keras's file, as two files of SageMaker's example, and as records of raw bytes."""
    del rng
    (root / "digits").mkdir(parents=True, exist_ok=True)
    with np.load(root / "mnist.npz") as whole:
        parts = {name: (whole[f"x_{name}"][:count], whole[f"y_{name}"][:count])
                 for name, count in (("train", 2048), ("test", 512))}
    np.savez(root / "digits" / "mnist.npz", **{f"{kind}_{name}": array for name, arrays in parts.items()
                                               for kind, array in zip("xy", arrays)})
    for name, (images, labels) in parts.items():
        np.savez(root / "digits" / f"{name}.npz", data=images[:1000], labels=labels[:1000])
        write_records(root / "digits" / f"mnist_{name}.tfrecords", (
            {"images": [image.tobytes()], "labels": [int(label)]} for image, label in zip(images, labels)))


def _facades(root: pathlib.Path, rng: np.random.Generator) -> None:
    """facades/: a picture of squares beside a plan of them, 512 x 256."""
    (root / "facades").mkdir(parents=True, exist_ok=True)
    for number in range(1, 21):
        plan = np.repeat(np.repeat(rng.integers(0, 2, (8, 8, 3)), 32, 0), 32, 1) * 255
        picture = np.clip(plan * 0.7 + rng.integers(0, 70, plan.shape), 0, 255)
        pair = np.concatenate([picture, plan], 1).astype(np.uint8)
        (root / "facades" / f"{number}.jpg").write_bytes(tf.io.encode_jpeg(pair).numpy())


def _entities(root: pathlib.Path, rng: np.random.Generator) -> None:
    """entities/: tagged sentences, the three vocabularies and the vectors that build_data.py leaves."""
    words = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)]
    lines = []
    for _ in range(200):
        chosen = rng.integers(0, len(words), 8)
        lines += [*(f"{words[i]} {_TAGS[i % len(_TAGS)]}" for i in chosen), ""]
    write_text(root / "entities" / "test.txt", "\n".join(lines) + "\n")
    vocabularies = {"words": [*words, "$UNK$", "$NUM$"], "tags": _TAGS, "chars": sorted(set("".join(words)))}
    for name, values in vocabularies.items():
        write_text(root / "entities" / f"{name}.txt", "\n".join(values))
    vectors = rng.normal(0.0, 0.3, (len(vocabularies["words"]), _WORD_DIMENSIONS))
    np.savez_compressed(root / "entities" / f"glove.6B.{_WORD_DIMENSIONS}d.trimmed.npz", embeddings=vectors)


def _stars(root: pathlib.Path, rng: np.random.Generator) -> None:
    """stars/ratings.dat: who gave a film how many stars, and when, as MovieLens has it."""
    users, films = rng.integers(1, _USERS + 1, 20000), rng.integers(1, _FILMS + 1, 20000)
    stars = 1 + (users + films) % 5
    times = rng.integers(950000000, 1050000000, 20000)
    write_text(root / "stars" / "ratings.dat",
               "".join(f"{u}::{f}::{s}::{t}\n" for u, f, s, t in zip(users, films, stars, times)))


def _traffic(root: pathlib.Path, rng: np.random.Generator) -> None:
    """traffic/: speeds at sensors with the time of the day, the distances between them, and a configuration."""
    for name, count in (("train", 160), ("val", 32), ("test", 32)):
        (root / "traffic" / "METR-LA").mkdir(parents=True, exist_ok=True)
        times = (np.arange(2 * _STEPS) + rng.integers(0, 288, (count, 1))) % 288 / 288
        day = np.repeat(times[..., None], _SENSORS, 2)
        speeds = 50 + 15 * np.sin(2 * np.pi * day + np.arange(_SENSORS)) + rng.normal(0.0, 2.0, day.shape)
        both = np.stack([speeds, day], -1)
        np.savez(root / "traffic" / "METR-LA" / f"{name}.npz", x=both[:, :_STEPS], y=both[:, _STEPS:])
    names = [str(700000 + i) for i in range(_SENSORS)]
    places = rng.random((_SENSORS, 2))
    weights = np.exp(-(((places[:, None] - places) ** 2).sum(-1) / 0.1)).astype(np.float32)
    weights[weights < 0.1] = 0
    with open(root / "traffic" / "adj_mx.pkl", "wb") as file:
        pickle.dump([names, {name: i for i, name in enumerate(names)}, weights], file, protocol=2)
    write_text(root / "traffic" / "small.yaml", json.dumps(_TRAFFIC, indent=1))


def _pictures(root: pathlib.Path, rng: np.random.Generator) -> None:
    """pictures/: a colour for each class; raw bytes, channels first, as CIFAR-10, and JPEG as ImageNet's records."""
    colours = rng.integers(0, 200, (_CLASSES, 3))

    def picture(label: int, side: int) -> np.ndarray:
        return (colours[label] + rng.integers(0, 55, (side, side, 3))).astype(np.uint8)

    def raw(count: int) -> Iterator[dict]:
        for label in rng.integers(0, _CLASSES, count).tolist():
            yield {"image": [picture(label, 32).transpose(2, 0, 1).tobytes()], "label": [label]}

    def encoded(count: int) -> Iterator[dict]:
        for label in rng.integers(0, _CLASSES, count).tolist():
            yield {"image/encoded": [tf.io.encode_jpeg(picture(label, 80)).numpy()],
                   "image/class/label": [label + 1]}  # 0 is the background

    for name, count in (("train", 400), ("validation", 80)):
        write_records(root / "pictures" / "cifar" / f"{name}.tfrecords", raw(count))
        write_records(root / "pictures" / "imagenet" / f"{name}-00000-of-00001", encoded(count))


def _utterance(root: pathlib.Path, rng: np.random.Generator) -> None:
    """utterance/: three seconds of tones, and what is said."""
    (root / "utterance").mkdir(parents=True, exist_ok=True)
    seconds = np.arange(_SAMPLES) / _RATE
    pitch = np.repeat(rng.uniform(200, 2000, 52), _SAMPLES // 52 + 1)[:_SAMPLES]
    sound = (8000 * np.sin(2 * np.pi * pitch * seconds) + rng.normal(0.0, 200.0, _SAMPLES)).astype("<i2")
    with wave.open(str(root / "utterance" / "LDC93S1.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(sound.tobytes())
    write_text(root / "utterance" / "LDC93S1.txt", f"0 {_SAMPLES} {('sing a low note ' * 4)[:53]}\n")


def _text(root: pathlib.Path, rng: np.random.Generator) -> None:
    """text/words.txt: sentences whose words follow each other in the vocabulary."""
    sentences = []
    for _ in range(4000):
        first = int(rng.integers(0, 300))
        sentences.append(" ".join(f"word{(first + int(step)) % 300}" for step in rng.integers(0, 8, 10)))
    write_text(root / "text" / "words.txt", "\n".join(sentences) + "\n")
