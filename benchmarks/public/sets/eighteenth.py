"""Small data sets for the jobs of `eighteenth.json`: all drawn with a fixed seed."""

from __future__ import annotations

import json
import pathlib
import wave

import h5py
import numpy as np

from benchmarks.public.data import write_text

_RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
_FAMILIES, _LENGTH = 5, 100  # of proteins
_ITEMS = 256  # of what is recommended
_RATE = 16000  # samples a second
_NODES, _FEATURES, _CLASSES = 400, 20, 6


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(19)
    for make_one in (_proteins, _movies, _plays, _pictures, _keywords, _phrases, _graph):
        make_one(root, rng)


def _proteins(root: pathlib.Path, rng: np.random.Generator) -> None:
    """proteins/: a family, a tab and a sequence that holds the family's motif."""
    motifs = ["".join(rng.choice(list(_RESIDUES), 10)) for _ in range(_FAMILIES)]
    for name, count in (("train", 400), ("test", 80)):
        lines = []
        for _ in range(count):
            family, place = rng.integers(_FAMILIES), rng.integers(_LENGTH - 10)
            letters = "".join(rng.choice(list(_RESIDUES), _LENGTH))
            lines.append(f"{family}\t{letters[:place]}{motifs[family]}{letters[place + 10:]}\n")
        write_text(root / "proteins" / f"{name}.txt", "".join(lines))


def _movies(root: pathlib.Path, rng: np.random.Generator) -> None:
    """movies/side.csv: user, movie and what is known of both, as deep-match reads MovieLens, eight columns a line."""
    lines = []
    for _ in range(3000):
        user, genres = int(rng.integers(100)), "\x1d".join(rng.choice(["Drama", "Comedy", "War"], 2))
        movie = user % 10 * 20 + int(rng.integers(20))
        lines.append("\x01".join([str(user), str(movie), "MF"[user % 2], str(18 + user % 40), str(user % 20),
                                  f"{10000 + user}", f"Movie {movie}", genres]))
    write_text(root / "movies" / "side.csv", "\n".join(lines) + "\n")


def _plays(root: pathlib.Path, rng: np.random.Generator) -> None:
    """plays/ml-20m/preprocessed/: sparse matrices of users and items, as SciPy's save_npz writes them."""
    folder = root / "plays" / "ml-20m" / "preprocessed"
    folder.mkdir(parents=True, exist_ok=True)
    for name, users in (("train_data", 512), ("vad_data_true", 64), ("vad_data_test", 64), ("test_data_true", 64),
                        ("test_data_test", 64)):
        rows = [np.sort(rng.choice(_ITEMS // 4, 12, replace=False)) + i % 4 * (_ITEMS // 4) for i in range(users)]
        np.savez(folder / f"{name}.npz", indices=np.concatenate(rows).astype(np.int32),
                 indptr=np.arange(0, 12 * users + 1, 12, dtype=np.int32), format=np.array(b"csr"),
                 shape=np.array([users, _ITEMS]), data=np.ones(12 * users))


def _pictures(root: pathlib.Path, rng: np.random.Generator) -> None:
    """pictures/: data.hdf5 with an image and a label in each group, and id.txt with the groups' names."""
    folder = root / "pictures"
    names = [f"{i:04}" for i in range(200)]
    write_text(folder / "id.txt", "".join(f"{name}\n" for name in names))
    with h5py.File(folder / "data.hdf5", "w") as file:
        for name in names:
            label = int(rng.integers(10))
            group = file.create_group(name)
            group["image"] = np.clip(rng.normal(25 * label, 20, (32, 32, 3)), 0, 255).astype(np.uint8)
            group["label"] = np.eye(10, dtype=bool)[label]


def _keywords(root: pathlib.Path, rng: np.random.Generator) -> None:
    """keywords/WORD/: a second of a tone in noise for each speaker; _background_noise_ has longer noise."""
    times = np.arange(_RATE) / _RATE
    for word, pitch in (("yes", 300), ("no", 700), ("cat", 1100), ("tree", 1500)):
        for speaker in range(40):
            tone = np.sin(2 * np.pi * (pitch + speaker) * times) + rng.normal(0, 0.2, _RATE)
            _write_wave(root / "keywords" / word / f"{speaker:08x}_nohash_0.wav", tone)
    _write_wave(root / "keywords" / "_background_noise_" / "noise.wav", rng.normal(0, 0.3, 3 * _RATE))


def _write_wave(path: pathlib.Path, sound: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes((np.clip(sound, -1.5, 1.5) * 20000).astype("<i2").tobytes())


def _phrases(root: pathlib.Path, rng: np.random.Generator) -> None:
    """phrases/: sentences of two languages, of which one has the other's words in turned order, and vocabularies."""
    for language in ("vi", "en"):
        words = ["<unk>", "<s>", "</s>", *(f"{language}{i}" for i in range(60))]
        write_text(root / "phrases" / f"vocab.{language}", "".join(f"{word}\n" for word in words))
    for name, count in (("train", 1500), ("tst2012", 60), ("tst2013", 60)):
        sentences = [rng.integers(0, 60, rng.integers(3, 9)).tolist() for _ in range(count)]
        for language, step in (("vi", 1), ("en", -1)):
            lines = (" ".join(f"{language}{i}" for i in sentence[::step]) for sentence in sentences)
            write_text(root / "phrases" / f"{name}.{language}", "".join(f"{line}\n" for line in lines))


def _graph(root: pathlib.Path, rng: np.random.Generator) -> None:
    """graph/toy-*: nodes of some classes, linked to others of their own, as GraphSAGE reads PPI."""
    labels = rng.integers(0, _CLASSES, _NODES)
    links = []
    for node in range(_NODES):
        alike = np.flatnonzero(labels == labels[node])
        links.extend({"source": node, "target": int(other)} for other in rng.choice(alike, 4) if other != node)
    nodes = [{"id": node, "val": node % 10 == 0, "test": node % 10 == 1} for node in range(_NODES)]
    graph = {"directed": False, "graph": {}, "multigraph": False, "nodes": nodes, "links": links}
    classes = {str(i): [int(labels[i] == k) for k in range(_CLASSES)] for i in range(_NODES)}
    for name, value in (("G", graph), ("id_map", {str(i): i for i in range(_NODES)}), ("class_map", classes)):
        write_text(root / "graph" / f"toy-{name}.json", json.dumps(value))
    features = np.eye(_FEATURES)[labels] + rng.normal(0, 0.5, (_NODES, _FEATURES))
    np.save(root / "graph" / "toy-feats.npy", features)
