"""Small data sets for the jobs of `seventeenth.json`: all drawn with a fixed seed.

What modules before this one made in the same folder is used again: MNIST, small, and CIFAR as Python's pickles.
"""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_text

_HOUSES = 506  # as Boston has them
_SIDE = 32  # of a picture
_LETTERS, _TAGS = 60, "BIO"


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(18)
    for make_one in (_housing, _styles, _dialogue, _tags):
        make_one(root, rng)


def _housing(root: pathlib.Path, rng: np.random.Generator) -> None:
    """housing/housingdata.csv: 13 values of a house and its price, without a header, as the Boston data have it."""
    rooms, crime = rng.normal(6.3, 0.7, _HOUSES), rng.exponential(3.0, _HOUSES)
    prices = 22 + 9 * (rooms - 6.3) - 0.5 * crime + rng.normal(0, 1, _HOUSES)
    write_text(root / "housing" / "housingdata.csv", "".join(
        f"{crime[i]:.5f},12.5,{rng.random() * 20:.2f},{rng.integers(2)},0.5{rng.integers(10)},{rooms[i]:.3f},"
        f"{rng.random() * 100:.1f},{rng.random() * 8:.4f},{rng.integers(1, 25)},{rng.integers(187, 711)},"
        f"{rng.random() * 9 + 13:.1f},{rng.random() * 396:.2f},{rng.random() * 35:.2f},{prices[i]:.1f}\n"
        for i in range(_HOUSES)))


def _styles(root: pathlib.Path, rng: np.random.Generator) -> None:
    """styles/: two small square pictures, one smooth and one of stripes."""
    (root / "styles").mkdir(parents=True, exist_ok=True)
    slope = np.linspace(0, 200, _SIDE)
    stripes = np.where(np.arange(_SIDE) // 4 % 2, 220, 30)
    for name, picture in (("content", slope[:, None] + np.zeros(_SIDE)), ("style", stripes[None] + slope[:, None] / 8)):
        colours = picture[..., None] + rng.integers(0, 30, (1, 1, 3))
        jpeg = tf.io.encode_jpeg(np.clip(colours, 0, 255).astype(np.uint8)).numpy()
        (root / "styles" / f"{name}.jpg").write_bytes(jpeg)


def _dialogue(root: pathlib.Path, rng: np.random.Generator) -> None:
    """dialogue/: what is said and what is answered, as arrays of lists of ids below 7,151, the chatbot's vocabulary."""
    (root / "dialogue").mkdir(parents=True, exist_ok=True)
    said = [rng.integers(4, 7151, rng.integers(2, 29)).tolist() for _ in range(600)]
    answered = [sentence[::-1] + sentence[:1] for sentence in said]
    for name, sentences in (("source", said), ("target", answered)):
        array = np.empty(len(sentences), object)
        array[:] = sentences
        np.save(root / "dialogue" / f"{name}.npy", array)


def _tags(root: pathlib.Path, rng: np.random.Generator) -> None:
    """tags/: a line of Chinese letters and one of their tags in turns, with ^ and $ around, as deeptext has."""
    for name, count in (("train", 600), ("valid", 60)):
        lines = []
        for _ in range(count):
            letters = rng.integers(0, _LETTERS, rng.integers(5, 20))
            lines.append(" ".join(["^", *(chr(0x4E00 + letter) for letter in letters), "$"]))
            lines.append(" ".join(["O", *(_TAGS[letter * 3 // _LETTERS] for letter in letters), "O"]))
        write_text(root / "tags" / f"{name}.txt", "\n".join(lines) + "\n")
