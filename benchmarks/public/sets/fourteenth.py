"""Small data sets for jobs of `fourteenth.json` and `fifteenth.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST as one file of NumPy.
"""

from __future__ import annotations

import pathlib
import pickle
import wave

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_GENRES = (  # noqa: SIM905 (shorter)
    "unknown action adventure animation children comedy crime documentary drama fantasy filmnoir horror "
    "musical mystery romance scifi thriller war western").split()
_COLUMNS = (  # noqa: SIM905 (shorter)
    "user_id item_id rating timestamp datetime year month day week dayofweek age gender occupation zipcode "
    "zipcode1 zipcode2 zipcode3 title release video_release imdb").split()
_JOBS = ("writer", "student", "engineer", "artist")
_ITEMS = 309  # SR-GNN's `sample` has 310 nodes, counted from 1
_PIXELS, _DATES, _CLASSES = 24, 6, 18  # of a tile of land; class 0 is unknown
_SIDE = 64  # of a house number's picture
_RATE = 16000
_STATIONS = ("Soosh", "Kwoob", "Preels", "Tworld", "Bluck", "Frook")
_LINES = ("Green", "Purple", "Red", "Blue")


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(17)
    for make_one in (_slim, _films, _cypher, _land, _house, _sounds, _quizzes, _sessions, _motions):
        make_one(root, rng)


def _slim(root: pathlib.Path, rng: np.random.Generator) -> None:
    """slim_mnist/: a part of MNIST as TF-Slim's download_and_convert_mnist.py leaves it, PNG in records."""
    del rng
    with np.load(root / "mnist.npz") as whole:
        for name, count in (("train", 2048), ("test", 256)):
            images, labels = whole[f"x_{name}"][:count], whole[f"y_{name}"][:count]
            write_records(root / "slim_mnist" / f"mnist_{name}.tfrecord", (
                {"image/encoded": [tf.io.encode_png(image[..., None]).numpy()], "image/format": [b"png"],
                 "image/class/label": [int(label)], "image/height": [28], "image/width": [28]}
                for image, label in zip(images, labels)))


def _films(root: pathlib.Path, rng: np.random.Generator) -> None:
    """films/: MovieLens 100K, joined into one table with a header, as the repository's ml_100k.py writes it."""
    header = [*_COLUMNS, *_GENRES, "release_date", "release_year"]
    for name, count in (("train", 4000), ("test", 600)):
        lines = [",".join(header)]
        for _ in range(count):
            user, film = int(rng.integers(1, 200)), int(rng.integers(1, 400))
            genres = rng.integers(0, 2, len(_GENRES))
            stars = 5 if (user + film) % 3 == 0 else int(rng.integers(1, 5))
            values = [user, film, stars, 880000000 + user, "1997-11-21 08:00:00", 1997, 11, 21, 47, 4,
                      18 + user % 50, "FM"[user % 2], _JOBS[user % len(_JOBS)], f"{10000 + user}", f"{user % 10}",
                      f"{user % 100}", f"{user % 1000}", f"Film {film}", "01-Jan-1995", "", f"http://film/{film}",
                      *genres, "1995-01-01", 1930 + film % 68]
            lines.append(",".join(str(value) for value in values))
        write_text(root / "films" / f"{name}.csv", "\n".join(lines) + "\n")


def _cypher(root: pathlib.Path, rng: np.random.Generator) -> None:
    """cypher/: questions and their queries, tokenized as the repository's build_data.py does, and the vocabulary."""
    pairs = []
    for _ in range(600):
        kind, station, line = rng.integers(0, 3), _STATIONS[rng.integers(0, 6)], _LINES[rng.integers(0, 4)]
        pairs.append([
            (f"How many stations are on the {line} line ?",
             f'MATCH ( n ) - [ r ] - ( m ) WHERE r . line_name = " {line} " RETURN count ( n )'),
            (f"How clean is {station} ?", f'MATCH ( n ) WHERE n . name = " {station} " RETURN n . cleanliness'),
            (f"Is {station} on the {line} line ?",
             f'MATCH ( n ) - [ r ] - ( m ) WHERE n . name = " {station} " RETURN r . line_name = " {line} "'),
        ][kind])
    pairs = [tuple(text.replace(" ", " <space> ", 2) for text in pair) for pair in pairs]
    for name, begin, end in (("train", 0, 480), ("eval", 480, 560), ("predict", 560, 576), ("all", 0, 600)):
        for side, what in enumerate(("src", "tgt")):
            write_text(root / "cypher" / f"{name}_{what}.txt",
                       "".join(f"{pair[side]}\n" for pair in pairs[begin:end]))
    words = sorted({word for pair in pairs for text in pair for word in text.split()} - {"<space>"})
    letters = [f"<{letter}>" for low in "abcdefghijklmnopqrstuvwxyz" for letter in (low, low.upper())]
    write_text(root / "cypher" / "vocab.txt",
               "".join(f"{word}\n" for word in ["<unk>", "<sos>", "<eos>", "<space>", *letters, *words]))


def _land(root: pathlib.Path, rng: np.random.Generator) -> None:
    """land/: tiles of a year of Sentinel-2's pictures, as the data of "Multi-Temporal Land Cover Classification"."""
    folder = root / "land"
    shapes = {"x10": (_DATES, _PIXELS, _PIXELS, 4), "x20": (_DATES, _PIXELS // 2, _PIXELS // 2, 6),
              "x60": (_DATES, _PIXELS // 6, _PIXELS // 6, 3)}
    ids = range(1, 41)
    for tile in ids:
        labels = np.repeat(np.repeat(rng.integers(1, _CLASSES, (4, 4)), 6, 0), 6, 1)
        pictures = {name: rng.integers(1, 1000, shape) for name, shape in shapes.items()}
        pictures["x10"] = pictures["x10"] + 400 * labels[None, :, :, None]
        features = {}
        for name, picture in pictures.items():
            features[f"{name}/data"] = [picture.astype(np.int64).tobytes()]
            features[f"{name}/shape"] = list(picture.shape)
        features["dates/doy"] = [np.linspace(10, 350, _DATES).astype(np.int64).tobytes()]
        features["dates/year"] = [np.full(_DATES, 2016, np.int64).tobytes()]
        features["dates/shape"] = [_DATES]
        features["labels/data"] = [np.repeat(labels[None], _DATES, 0).astype(np.int64).tobytes()]
        features["labels/shape"] = [_DATES, _PIXELS, _PIXELS]
        write_records(folder / "data16" / f"{tile}.tfrecord", [features])
    write_text(folder / "geotransforms.csv", "".join(f"{i},{4500000.0 + 240 * i},10,0,5300000.0,0,-10,32632\n"
                                                     for i in ids))
    write_text(folder / "classes.txt", "".join(f"{i}|class {i}\n" for i in range(_CLASSES)))
    write_text(folder / "dataset.ini", f"[2016]\ndatadir = data16\npix10 = {_PIXELS}\nnobs = {_DATES}\n"
                                       "nbands10 = 4\nnbands20 = 6\nnbands60 = 3\ntiletable = tiles\n")
    for name, part in (("train_fold0", ids[:32]), ("test_fold0", ids[32:]), ("eval", ids[32:])):
        write_text(folder / "tileids" / f"{name}.tileids", "".join(f"{i}\n" for i in part))


def _house(root: pathlib.Path, rng: np.random.Generator) -> None:
    """house/train.raw.tfrecords: numbers of one to five digits, drawn as stripes, as num-seq-recognizer packs SVHN."""
    def examples():
        for _ in range(256):
            digits = [int(digit) for digit in rng.integers(0, 10, rng.integers(1, 6))]
            picture = rng.integers(0, 60, (_SIDE, _SIDE * 2, 3))
            for place, digit in enumerate(digits):
                picture[8:56, 10 + 20 * place:26 + 20 * place] += 18 * digit
            box = [10, 8, min(20 * len(digits), 2 * _SIDE - 10), 48]
            boxes = [value for place in range(5) for value in
                     ([10 + 20 * place, 8, 16, 48] if place < len(digits) else [0, 0, 0, 0])]
            yield {"label": digits + [10] * (5 - len(digits)), "length": [len(digits)], "bbox": box,
                   "sep_bbox_list": boxes, "image_png": [tf.io.encode_png(picture.astype(np.uint8)).numpy()]}
    write_records(root / "house" / "train.raw.tfrecords", examples())


def _sounds(root: pathlib.Path, rng: np.random.Generator) -> None:
    """sounds/: tones of two seconds with noise, WAV of 16 bits, mono."""
    (root / "sounds").mkdir(parents=True, exist_ok=True)
    for number in range(16):
        time = np.arange(2 * _RATE) / _RATE
        tone = np.sin(2 * np.pi * 110 * (1 + number) * time) * np.exp(-time) + rng.normal(0.0, 0.02, time.shape)
        with wave.open(str(root / "sounds" / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(_RATE)
            file.writeframes((np.clip(tone, -1, 1) * 32000).astype("<i2").tobytes())


def _quizzes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """quizzes/sudoku.csv: solved Sudokus and the same with blanks, one after the other in a line."""
    lines = ["quizzes,solutions"]
    for _ in range(3000):
        rows = [3 * band + row for band in rng.permutation(3) for row in rng.permutation(3)]
        columns = [3 * band + column for band in rng.permutation(3) for column in rng.permutation(3)]
        digits = 1 + rng.permutation(9)
        grid = [digits[(3 * (row % 3) + row // 3 + column) % 9] for row in rows for column in columns]
        blank = rng.random(81) < 0.5
        lines.append("".join("0" if is_blank else str(digit) for digit, is_blank in zip(grid, blank)) + ","
                     + "".join(str(digit) for digit in grid))
    write_text(root / "quizzes" / "sudoku.csv", "\n".join(lines) + "\n")


def _sessions(root: pathlib.Path, rng: np.random.Generator) -> None:
    """sessions/: what was clicked before, and what then, pickled as SR-GNN's preprocess.py does."""
    (root / "sessions").mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 1200), ("test", 200)):
        before, then = [], []
        for _ in range(count):
            start, step = rng.integers(1, _ITEMS + 1), rng.integers(1, 4)
            clicks = [int((start - 1 + step * i) % _ITEMS + 1) for i in range(rng.integers(3, 8))]
            before.append(clicks[:-1])
            then.append(clicks[-1])
        (root / "sessions" / f"{name}.txt").write_bytes(pickle.dumps((before, then), protocol=2))


def _motions(root: pathlib.Path, rng: np.random.Generator) -> None:
    """motions/: spectra of two sensors, 20 times 10 times 6 values, as DeepSense's hhar_to_tfrecords.py packs them."""
    for name, count in (("train", 1200), ("eval", 1193)):
        labels = rng.integers(0, 6, count)
        write_records(root / "motions" / f"{name}.tfrecords", (
            {"acc": (rng.normal(0.0, 1.0, 1200) + label / 2).tolist(),
             "gyro": (rng.normal(0.0, 1.0, 1200) - label / 4).tolist(), "label": [int(label)]} for label in labels))
