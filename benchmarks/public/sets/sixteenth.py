"""Small data sets for the jobs of `sixteenth.json`: all drawn with a fixed seed.

What modules before this one made in the same folder is used again: MNIST, small, and CIFAR in its binary form.
"""

from __future__ import annotations

import pathlib

import numpy as np

from benchmarks.public.data import write_text

_FIELDS, _VALUES = 6, 50  # of a click: categorical fields, and values of each
_TOPICS, _TOPIC_WORDS = 20, 260  # 5,200 words; romanov-word2vec wants 5,000
_PEOPLE = ("Peter Blackburn", "Bill Clinton", "John")
_PLACES = ("BRUSSELS", "London", "Paris", "Germany", "Iraq", "Italian", "Dutch")
_GROUPS = ("EU", "European Commission", "Reuters", "Bank", "Ajax")


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(18)
    for make_one in (_crosses, _words, _talk, _names):
        make_one(root, rng)


def _crosses(root: pathlib.Path, rng: np.random.Generator) -> None:
    """crosses/: clicks as a label, two numbers and the indices of six categories, as DeepRec's dcn.py reads them."""
    for name, count in (("train", 8000), ("eval", 500)):
        numbers, values = rng.random((count, 2)), rng.integers(0, _VALUES, (count, _FIELDS))
        labels = (values[:, 0] + values[:, 1]) % 3 == 0
        indices = values + _VALUES * np.arange(_FIELDS)
        write_text(root / "crosses" / f"{name}.txt", "".join(
            f"{int(label)} {first:.6f} {second:.6f} {' '.join(map(str, row))}\n"
            for label, (first, second), row in zip(labels, numbers, indices)))


def _words(root: pathlib.Path, rng: np.random.Generator) -> None:
    """words/text.txt: sentences whose words are of one topic each; every word comes twice at least."""
    words = rng.permutation(_TOPICS * _TOPIC_WORDS * 2) % (_TOPICS * _TOPIC_WORDS)
    lines = [words[words // _TOPIC_WORDS == topic].reshape(-1, 20) for topic in range(_TOPICS)]
    write_text(root / "words" / "text.txt", "".join(
        " ".join(f"word{word}" for word in line) + "\n" for line in rng.permutation(np.concatenate(lines))))


def _talk(root: pathlib.Path, rng: np.random.Generator) -> None:
    """talk/talk.txt: questions and answers in turns, a line each."""
    lines = []
    for _ in range(120):
        number = int(rng.integers(1, 9))
        lines += [f"what comes after {number}？", f"{number + 1}！"]
    write_text(root / "talk" / "talk.txt", "\n".join(lines) + "\n")


def _names(root: pathlib.Path, rng: np.random.Generator) -> None:
    """names/: sentences with their names marked, in the format of CoNLL-2003 and with words that it has, too.

    The script tests with 3,327 sentences, as many as CoNLL-2003's test part has of at most 40 words.
    """
    for name, count in (("train", 560), ("valid", 64), ("test", 3327)):
        sentences = [_sentence(rng) for _ in range(count)]
        write_text(root / "names" / f"{name}.txt",
                   "-DOCSTART- -X- -X- O\n\n" + "\n".join("".join(sentence) for sentence in sentences) + "\n")


def _sentence(rng: np.random.Generator) -> list[str]:
    kinds = (("PER", _PEOPLE), ("LOC", _PLACES), ("ORG", _GROUPS))
    parts = []
    for verb in (("visited", "beat", "said", "rejects")[rng.integers(4)], "."):
        kind, names = kinds[rng.integers(3)]
        parts += [f"{word} NNP I-NP {'BI'[place > 0]}-{kind}\n"
                  for place, word in enumerate(names[rng.integers(len(names))].split())]
        parts.append(f"{verb} VBD I-VP O\n")
    return parts
