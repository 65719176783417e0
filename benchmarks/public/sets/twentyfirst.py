"""Small data sets for the jobs of `twentyfirst.json`: all drawn with a fixed seed."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_COLUMNS = {  # of the vehicles: words, and what each adds to the target
    "str1": {"red": 2, "blue": 6, "green": 4, "pink": -5, "yellow": -6, "brown": -1, "black": 7},
    "str2": {"abc": 10, "def": 1, "ghi": 1, "jkl": 1, "mno": 1, "pqr": 1},
    "str3": {"car": 5, "truck": 10, "van": 15, "bike": 20, "train": 25, "drone": 30},
}
_NUMBERS = ("num1", "num2", "num3")
_TRANSFORMS = {  # as in the tests of the job's repository
    "num1": {"transform": "scale"}, "num2": {"transform": "scale", "value": 4}, "str1": {"transform": "one_hot"},
    "str2": {"transform": "embedding", "embedding_dim": 3}, "target": {"transform": "target"},
    "key": {"transform": "key"}}
_GENE_FILE = "word2vec_dataset_40000"  # the size of its vocabulary is written into the job's code
_GENE_WORDS, _SENTENCES, _SENTENCE_WORDS = 500, 128, 17  # 66 pairs a sentence: whole batches of 128 for two workers
_TAGS, _USED_TAGS, _SAMPLES = 188, 50, 8000  # of a song
_SHOE_KINDS = ("Boots/Ankle", "Shoes/Oxfords", "Sandals/Flat", "Slippers/Boot")
_USERS, _ITEMS, _ENTITIES, _RELATIONS = 300, 200, 400, 6
_NUMERIC, _FIELDS, _FEATURES = 13, 39, 1000  # of Criteo's clicks
_BRANDS, _THINGS, _LISTINGS = 20, 15, 300


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(22)
    for make_one in (_vehicles, _genes, _songs, _shoes, _ripples, _folds, _listings, _moves):
        make_one(root, rng)


def _vehicles(root: pathlib.Path, rng: np.random.Generator) -> None:
    """vehicles/: rows of a key, a target, numbers and words, and what the job's local_preprocess.py makes of them."""
    rows = {name: [_vehicle(rng) for _ in range(count)] for name, count in (("train", 1000), ("eval", 200))}
    for name, values in rows.items():
        lines = (",".join(map(str, (f"{name}{i}", *row))) for i, row in enumerate(values))
        write_text(root / "vehicles" / f"{name}.csv", "".join(f"{line}\n" for line in lines))
    numbers = dict(zip(("target", *_NUMBERS), np.array([row[:4] for row in rows["train"]]).T))
    stats = {name: {"min": float(x.min()), "max": float(x.max()), "mean": float(x.mean())}
             for name, x in numbers.items()}
    kinds = {"key": "STRING", "target": "FLOAT", "num1": "FLOAT", "num2": "INTEGER", "num3": "FLOAT",
             **dict.fromkeys(_COLUMNS, "STRING")}
    schema = [{"mode": "NULLABLE", "name": name, "type": kind} for name, kind in kinds.items()]
    for name, value in (("preprocess/stats", stats), ("preprocess/schema", schema), ("features", _TRANSFORMS)):
        write_text(root / "vehicles" / f"{name}.json", json.dumps(value))
    for name, words in _COLUMNS.items():
        write_text(root / "vehicles" / "preprocess" / f"vocab_{name}.csv", "\n".join(words))


def _vehicle(rng: np.random.Generator) -> list:
    numbers = [round(rng.uniform(0, 30), 3), int(rng.integers(21)), round(rng.uniform(0, 10), 3)]
    words = [str(rng.choice(list(values))) for values in _COLUMNS.values()]
    added = sum(values[word] for values, word in zip(_COLUMNS.values(), words))
    return [round(0.5 + 0.5 * numbers[0] - 2.5 * numbers[1] + numbers[2] + added, 3), *numbers, *words]


def _genes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """genes/: sentences as the numbers of their words, their dictionary, counts and labels; the last word is rare."""
    words = [f"gene{i}" for i in range(1, _GENE_WORDS)] + ["rare"]
    numbers = [*range(1, _GENE_WORDS), 0]
    starts = rng.integers(0, _GENE_WORDS, (_SENTENCES, 1))  # words that stand together are of about the same number
    places = (starts + rng.integers(0, 20, (_SENTENCES, _SENTENCE_WORDS))) % _GENE_WORDS
    counts = np.bincount(places.ravel(), minlength=_GENE_WORDS) + 1
    pairs = list(zip(words, numbers, counts.tolist()))
    texts = {
        "": "".join(" ".join(str(numbers[place]) for place in row) + "\n" for row in places),
        "_dict": "".join(f"{word} {number}\n" for word, number, _ in pairs),
        "_count": "".join(f"{word} = {count}\n" for word, _, count in pairs),
        ".tsv": "word\tcount\tid\n" + "".join(f"{word}\t{count}\t{number}\n" for word, number, count in pairs),
    }
    for end, text in texts.items():
        write_text(root / "genes" / f"{_GENE_FILE}{end}", text)


def _songs(root: pathlib.Path, rng: np.random.Generator) -> None:
    """songs/: samples of songs that have a tone of each of their tags, as the job's extract_ds_tfr.py writes them."""
    times = np.arange(_SAMPLES) / _SAMPLES
    for name, count in (("train", 300), ("valid", 120)):
        examples = []
        for _ in range(count):
            tags = np.zeros(_TAGS, np.int32)
            tags[rng.choice(_USED_TAGS, 3, replace=False)] = 1
            tones = sum(np.sin(2 * np.pi * 40 * (tag + 1) * times) for tag in np.flatnonzero(tags))
            song = (300 * tones + rng.normal(0, 50, _SAMPLES)).astype(np.int32)
            examples.append({"song": [song.tobytes()], "tags": [tags.tobytes()]})
        write_records(root / "songs" / f"{name}_rawdata.tfrecords", examples)
    write_text(root / "songs" / "raw_metadata.json", json.dumps({
        "label_map": [f"tag{i}" for i in range(_TAGS)], "max_num_samples": _SAMPLES, "max_num_tags": _TAGS,
        "sample_depth": 1}))


def _shoes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """shoes/: 400 small pictures, in folders of their kinds and makers, of a colored shape on white."""
    for i in range(400):
        image = np.full((102, 136, 3), 255, np.uint8)
        top, left = rng.integers(20, 50, 2)
        image[top:top + rng.integers(20, 45), left:left + rng.integers(40, 80)] = rng.integers(0, 200, 3)
        path = root / "shoes" / _SHOE_KINDS[i % 4] / f"maker{i % 5}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_jpeg(image).numpy())


def _ripples(root: pathlib.Path, rng: np.random.Generator) -> None:
    """ripples/: films that users liked or not, and a graph of what the films are about."""
    subjects = np.concatenate([np.arange(_ITEMS, _ENTITIES), rng.integers(_ITEMS, _ENTITIES, 3 * _ITEMS)])
    triples = [(i % _ITEMS, rng.integers(_RELATIONS), subject) for i, subject in enumerate(subjects)]
    triples += [(subject, rng.integers(_RELATIONS), rng.integers(_ITEMS)) for subject in range(_ITEMS, _ENTITIES)]
    users, items = rng.integers(0, _USERS, 8192), rng.integers(0, _ITEMS, 8192)
    likes = ((users % 4 == items % 4) ^ (rng.random(8192) < 0.3)).astype(int)
    for name, rows in (("kg", triples), ("ratings", zip(users, items, likes))):
        lines = ("\t".join(map(str, row)) for row in rows)
        write_text(root / "ripples" / f"{name}_final.txt", "".join(f"{line}\n" for line in lines))


def _folds(root: pathlib.Path, rng: np.random.Generator) -> None:
    """folds/Criteo/: ten parts of features, of their values and of clicks, as the job's Dataprocess leaves them."""
    folder = root / "folds" / "Criteo"
    for part in range(1, 11):
        features = np.concatenate([np.tile(np.arange(_NUMERIC), (1024, 1)),
                                   rng.integers(_NUMERIC, _FEATURES, (1024, _FIELDS - _NUMERIC))], axis=1)
        values = np.ones((1024, _FIELDS))
        values[:, :_NUMERIC] = rng.random((1024, _NUMERIC))
        clicks = (values[:, 0] + features[:, -1] / _FEATURES > 1.2).astype(np.int32)
        (folder / f"part{part}").mkdir(parents=True, exist_ok=True)
        for name, array in (("i", features), ("x2", values), ("y", clicks)):
            np.save(folder / f"part{part}" / f"train_{name}.npy", array)
    np.save(folder / "feature_size.npy", np.array([_FEATURES]))


def _listings(root: pathlib.Path, rng: np.random.Generator) -> None:
    """listings/: what is sold, and queries with the numbers of all that has their maker and thing."""
    makers, things = rng.integers(0, _BRANDS, _LISTINGS), rng.integers(0, _THINGS, _LISTINGS)
    titles = [f"maker{maker} thing{thing} size {rng.integers(9)} new" for maker, thing in zip(makers, things)]

    def queries(count: int) -> Iterable[str]:
        for listing in rng.integers(0, _LISTINGS, count):
            fitting = np.flatnonzero((makers == makers[listing]) & (things == things[listing]))
            yield f"maker{makers[listing]} thing{things[listing]}\t{'|'.join(f'Item#{i}' for i in fitting)}\n"

    texts = {"targetIDs": (f"{title}\tItem#{i}\n" for i, title in enumerate(titles)),
             "TrainPairs": queries(672), "EvalPairs": queries(64)}
    path = root / "listings" / "DataSet.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, lines in texts.items():
            content = "".join(lines).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _moves(root: pathlib.Path, rng: np.random.Generator) -> None:
    """moves/: the file that `tdchess-tictactoe` adds to; its repository lacks the folder."""
    del rng
    write_text(root / "moves" / "move_log.txt", "")
