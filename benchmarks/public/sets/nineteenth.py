"""Small data sets for the jobs of `nineteenth.json`: all drawn with a fixed seed."""

from __future__ import annotations

import pathlib
import struct

import h5py
import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_text

_LABELS, _FEATURES = 50, 300  # of the texts
_WORDS = 50000  # a vocabulary that its job fills
_CONFIG = """model_dir: run
data:
  train_features_file: train.src
  train_labels_file: train.tgt
  eval_features_file: eval.src
  eval_labels_file: eval.tgt
  source_words_vocabulary: vocab.src
  target_words_vocabulary: vocab.tgt
params:
  optimizer: AdamOptimizer
  learning_rate: 0.001
train:
  batch_size: 16
  train_steps: 60
  save_checkpoints_steps: 30
  save_summary_steps: 10
  sample_buffer_size: 1000
"""


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(20)
    for make_one in (_tfidf, _corpus, _translation, _news, _clicks):
        make_one(root, rng)


def _tfidf(root: pathlib.Path, rng: np.random.Generator) -> None:
    """tfidf/: weights of terms in HDF5, and of each text a row of labels."""
    (root / "tfidf").mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 8000), ("test", 400)):
        classes = rng.integers(0, _LABELS, count)
        terms = np.abs(rng.normal(0, 0.1, (count, _FEATURES)))
        terms[np.arange(count), classes] += 1.0
        with h5py.File(root / "tfidf" / f"{name}.h5", "w") as file:
            file["d1" if name == "train" else "d2"] = terms.astype(np.float32)
        np.save(root / "tfidf" / f"{name}_l.npy", np.eye(_LABELS)[classes])


def _corpus(root: pathlib.Path, rng: np.random.Generator) -> None:
    """corpus/training.txt: words, the frequent ones first in rank, each of the vocabulary at least once."""
    ranks = np.concatenate([rng.zipf(1.3, 400000) % _WORDS, np.arange(_WORDS)])
    rng.shuffle(ranks)
    write_text(root / "corpus" / "training.txt", " ".join(f"w{rank}" for rank in ranks))


def _translation(root: pathlib.Path, rng: np.random.Generator) -> None:
    """translation/: sentences, their words in turned order and another language, vocabularies, and config.yml."""
    folder = root / "translation"
    write_text(folder / "config.yml", _CONFIG)
    for side in ("src", "tgt"):
        words = ["<blank>", "<s>", "</s>", *(f"{side}{i}" for i in range(60))]
        write_text(folder / f"vocab.{side}", "".join(f"{word}\n" for word in words))
    for name, count in (("train", 2000), ("eval", 60)):
        sentences = [rng.integers(0, 60, rng.integers(3, 9)).tolist() for _ in range(count)]
        for side, step in (("src", 1), ("tgt", -1)):
            lines = (" ".join(f"{side}{i}" for i in sentence[::step]) for sentence in sentences)
            write_text(folder / f"{name}.{side}", "".join(f"{line}\n" for line in lines))


def _news(root: pathlib.Path, rng: np.random.Generator) -> None:
    """news/: a vocabulary with frequencies, and examples of an article and its first words, each behind its length."""
    folder = root / "news"
    write_text(folder / "vocab", "".join(f"term{i} {1000 - i}\n" for i in range(300)))
    for part in range(2):
        with open(folder / f"train_{part:03}.bin", "wb") as file:
            for _ in range(400):
                words = [f"term{i}" for i in rng.integers(0, 320, 30)]  # some are not in the vocabulary
                values = {"article": " ".join(words), "abstract": f"<s> {' '.join(words[:8])} </s>"}
                example = tf.train.Example(features=tf.train.Features(feature={
                    key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
                    for key, text in values.items()})).SerializeToString()
                file.write(struct.pack("<q", len(example)) + example)


def _clicks(root: pathlib.Path, rng: np.random.Generator) -> None:
    """clicks/: who clicked what, as rec_system's dataset.py writes it."""
    for name, count in (("train", 40000), ("dev", 20000)):
        users, items = rng.integers(0, 500, count), rng.integers(0, 300, count)
        rows = (f"{user},{item},{int((user + item) % 3 == 0)}\n" for user, item in zip(users, items))
        write_text(root / "clicks" / f"{name}_data.csv", "user_id,item_id,click\n" + "".join(rows))
