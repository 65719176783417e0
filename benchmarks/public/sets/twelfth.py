"""Small data sets for the jobs of `twelfth.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST, CIFAR-10 as PNG, the irises, and the tiny
BERT of `bleurt`.
"""

from __future__ import annotations

import json
import pathlib
import pickle
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_SIGNS_CLUSTER = {"worker": ["localhost:22222", "localhost:22223"], "ps": ["localhost:22220"],
                  "master": ["localhost:22221"]}  # as the tasks of `dtf-signs` are counted
_TAGS = ("O", "B-PER", "I-PER", "B-LOC")
_STEPS, _ROOMS = 100, 100  # of a rat's walk, and the files of walks
_FRAME = (64, 208)  # of the videos: height and width
_TEXT, _DISTRACTORS = 160, 9  # ids of a text of the dialogues, and wrong answers beside a right one
_DIALOGUE_WORDS = 200
_CONVERSATION = {  # check_tiny.yml of its repository, with fewer steps
    "data": {"base_path": "data/", "conversation_fname": "movie_conversations.txt", "line_fname": "movie_lines.txt",
             "processed_path": "tiny_processed_data", "max_seq_length": 60, "word_threshold": 2, "sentence_diff": 0.33,
             "PAD_ID": 0, "UNK_ID": 1, "START_ID": 2, "EOS_ID": 3},
    "model": {"batch_size": 2, "num_layers": 1, "num_units": 16, "embed_dim": 16, "embed_share": False,
              "cell_type": "lstm", "dropout": 0.2, "encoder_type": "bi", "attention_mechanism": "bahdanau"},
    "train": {"learning_rate": 0.001, "sampling_probability": 0.25, "train_steps": 60, "model_dir": "logs/few",
              "save_checkpoints_steps": 20, "loss_hook_n_iter": 1, "check_hook_n_iter": 10, "min_eval_frequency": 10,
              "print_verbose": True, "debug": False},
    "predict": {"beam_width": 0, "length_penalty_weight": 1.0},
    "slack": {"webhook_url": ""},
}


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_population, _signs, _sentences, _verses, _walks, _videos, _tokens, _numbers, _dialogues, _news):
        make_one(root, rng)
    write_text(root / "conversation" / "few.json", json.dumps(_CONVERSATION, indent=1))


def _population(root: pathlib.Path, rng: np.random.Generator) -> None:
    """population/: 24 measures of a country, then its growth, which is below 5 or not."""
    values = rng.normal(0.0, 1.0, (600, 25))
    values[:, -1] = np.where(values[:, :12].mean(1) > 0, 7.0, 2.0)
    (root / "population").mkdir(parents=True, exist_ok=True)
    np.savetxt(root / "population" / "population-data.csv", values, "%.4f", ",")


def _signs(root: pathlib.Path, rng: np.random.Generator) -> None:
    """signs/: pickled images with a red square or without, a part for each task, and the addresses of the tasks."""
    folder = root / "signs"
    (folder / "chunks").mkdir(parents=True, exist_ok=True)
    write_text(folder / "distributed_servers", repr(_SIGNS_CLUSTER))
    labels = (np.arange(24) % 2).astype(np.int32)
    images = rng.random((24, 100, 100, 3), np.float32) * 0.3
    images[labels == 1, 30:70, 30:70, 0] += 0.6
    parts = {"_master": slice(0, 16), "0": slice(0, 8), "1": slice(8, 16), "_validation": slice(16, 24)}
    for name, part in parts.items():
        names = ("chunk" + name, f"chunk{name}_labels" if name.startswith("_") else f"chunk_labels{name}")
        for stem, array in zip(names, (images[part], labels[part])):
            (folder / "chunks" / f"{stem}.obj").write_bytes(pickle.dumps(array, protocol=0))


def _sentences(root: pathlib.Path, rng: np.random.Generator) -> None:
    """tags/: a word of the tiny BERT's and its tag a line, a blank line behind each sentence."""
    for name, count in (("train", 160), ("dev", 32), ("test", 32)):
        lines = []
        for _ in range(count):
            words = rng.integers(0, 95, 8)
            lines += [*(f"word{word} {_TAGS[word % len(_TAGS)]}" for word in words), ""]
        write_text(root / "tags" / f"{name}.txt", "\n".join(lines) + "\n")


def _verses(root: pathlib.Path, rng: np.random.Generator) -> None:
    """verses/input.txt: lines of made-up words, 40,000 characters or so."""
    words = ["".join(rng.choice(list("abcdefghilmnorstu"), int(rng.integers(2, 9)))) for _ in range(200)]
    write_text(root / "verses" / "input.txt", "".join(f"{' '.join(rng.choice(words, 7))}.\n" for _ in range(1000)))


def _walks(root: pathlib.Path, rng: np.random.Generator) -> None:
    """walks/: a hundred files of walks through a square room, with place, heading and velocities."""
    def walk() -> dict[str, list[float]]:
        turns = rng.normal(0.0, 0.2, _STEPS)
        heading = rng.uniform(-np.pi, np.pi) + np.cumsum(turns)
        speed = rng.uniform(0.0, 0.02, _STEPS)
        start = rng.uniform(-0.5, 0.5, 2)
        moves = speed[:, None] * np.stack([np.cos(heading), np.sin(heading)], 1)
        places = np.clip(start + np.cumsum(moves, 0), -1.1, 1.1)
        velocity = np.stack([speed, np.cos(turns), np.sin(turns)], 1)
        return {"init_pos": start.tolist(), "init_hd": [float(heading[0])], "ego_vel": velocity.ravel().tolist(),
                "target_pos": places.ravel().tolist(), "target_hd": heading.tolist()}

    folder = root / "walks" / "square_room_100steps_2.2m_1000000"
    for number in range(_ROOMS):
        write_records(folder / f"{number:04}-of-{_ROOMS - 1:04}.tfrecord", (walk() for _ in range(8)))


def _videos(root: pathlib.Path, rng: np.random.Generator) -> None:
    """kitti/: three frames side by side of a scene that moves, and the camera, as prepare_train_data.py leaves them."""
    height, width = _FRAME
    frames = []
    for scene in ("scene_01", "scene_02"):
        (root / "kitti" / scene).mkdir(parents=True, exist_ok=True)
        world = np.repeat(np.repeat(rng.integers(0, 256, (8, 80, 3)), 8, 0), 8, 1).astype(np.uint8)
        for number in range(12):
            left = int(rng.integers(0, world.shape[1] - width - 8))
            strip = np.concatenate([world[:, left + shift:left + shift + width] for shift in (0, 4, 8)], 1)
            stem = root / "kitti" / scene / f"{number:010}"
            stem.with_suffix(".jpg").write_bytes(tf.io.encode_jpeg(strip).numpy())
            write_text(stem.with_name(f"{stem.name}_cam.txt"),
                       f"{width}.0,0.0,{width / 2},0.0,{width}.0,{height / 2},0.0,0.0,1.0")
            frames.append(f"{scene} {stem.name}\n")
    write_text(root / "kitti" / "train.txt", "".join(frames))


def _tokens(root: pathlib.Path, rng: np.random.Generator) -> None:
    """ptb/ptb.pkl: three texts as ids, and the two tables of a vocabulary, pickled as process.py does it."""
    texts = [(np.cumsum(rng.integers(1, 4, count)) % 50).astype(np.int32) for count in (1200, 400, 120)]
    words = {f"word{i}": i for i in range(50)}
    (root / "ptb").mkdir(parents=True, exist_ok=True)
    with open(root / "ptb" / "ptb.pkl", "wb") as file:
        pickle.dump((*texts, words, {i: word for word, i in words.items()}), file, protocol=2)


def _numbers(root: pathlib.Path, rng: np.random.Generator) -> None:
    """numbers/: as generate_data.py of its repository, 2,000 rows: ten numbers, and each of them plus five."""
    given = rng.integers(0, 101, (2000, 10)) + 3
    for name, rows in (("input", given), ("output", (given + 5) % 100 + 3)):
        write_text(root / "numbers" / name, "".join(f"{' '.join(map(str, row))}\n" for row in rows.tolist()))
    write_text(root / "numbers" / "vocab", "<S>\n</S>\n<UNK>\n" + "".join(f"{i}\n" for i in range(100)))


def _dialogues(root: pathlib.Path, rng: np.random.Generator) -> None:
    """ubuntu/: what was said and an answer, with a label; for validation an answer and nine wrong ones."""
    def text(first: int) -> tuple[list[int], list[int]]:
        length = int(rng.integers(5, 40))
        ids = [first, *rng.integers(1, _DIALOGUE_WORDS, length - 1).tolist()]
        return ids + [0] * (_TEXT - length), [length]

    def features(parts: Iterable[tuple[str, int]]) -> dict[str, Sequence[int]]:
        values: dict[str, Sequence[int]] = {}
        for name, first in parts:
            values[name], values[f"{name}_len"] = text(first)
        return values

    def training() -> dict[str, Sequence[int]]:
        topic, label = int(rng.integers(1, 20)), int(rng.integers(2))
        answer = topic if label else 20 + topic
        return {**features((("context", topic), ("utterance", answer))), "label": [label]}

    def validation() -> dict[str, Sequence[int]]:
        topic = int(rng.integers(1, 20))
        wrong = [(f"distractor_{i}", 20 + topic) for i in range(_DISTRACTORS)]
        return features([("context", topic), ("utterance", topic), *wrong])

    for name, make_one, count in (("train", training, 320), ("validation", validation, 16)):
        write_records(root / "ubuntu" / f"{name}.tfrecords", (make_one() for _ in range(count)))


def _news(root: pathlib.Path, rng: np.random.Generator) -> None:
    """news/: a vocabulary with counts, and sentences in the folder of the 1B-word benchmark."""
    words = [f"word{i}" for i in range(198)]
    counts = "".join(f"{word} {1000 - i}\n" for i, word in enumerate(["<S>", "<UNK>", *words]))
    write_text(root / "news" / "1b_word_vocab.txt", counts)
    folder = root / "news" / "training-monolingual.tokenized.shuffled"
    for part in (1, 2):
        write_text(folder / f"news.en-{part:05}-of-00100",
                   "".join(f"{' '.join(rng.choice(words, int(rng.integers(5, 20))))}\n" for _ in range(400)))
