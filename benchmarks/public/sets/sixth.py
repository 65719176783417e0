"""Small data sets for the jobs of `sixth.json`: all drawn with a fixed seed, MNIST as `field` made it before."""

from __future__ import annotations

import json
import math
import pathlib
import pickle
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text
from benchmarks.public.sets.field import write_python2_pickle

_TEXT8_BYTES = 31344016  # the word2vec example refuses an archive of another size
_DISTINCT_WORDS = 50000  # as many as it has rows
_GPT2_WIDTH, _GPT2_CONTEXT = 32, 1024
_WEATHER, _DISTRIBUTION = 180, 5  # columns of the energy prices
_PIXELS = 64


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_clv, _sentences, _energy, _fasttext, _text8, _karolinska, _cifar10, _gpt2, _criteo_letters, _t2t,
                     _ptb):
        make_one(root, rng)


def _clv(root: pathlib.Path, rng: np.random.Generator) -> None:
    """clv/: customers' purchases, in the 16 columns of the lifetime value sample."""
    for name, count in (("train", 1000), ("eval", 200), ("test", 200)):
        rows = []
        for i in range(count):
            orders, basket = int(rng.integers(1, 40)), float(rng.uniform(5, 200))
            spent, days = orders * basket, int(rng.integers(30, 365))
            row = [f"c{i}", spent, spent, orders, orders, days // 2, days, days / orders, basket, basket / 10,
                   orders // 10, int(orders >= 10), orders, spent, spent, spent * 1.2]
            rows.append(",".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row))
        write_text(root / "clv" / f"{name}.csv", "\n".join(rows) + "\n")


def _sentences(root: pathlib.Path, rng: np.random.Generator) -> None:
    """sentences/: a vocabulary, its size, and sentences of two classes."""
    words = [f"parola{i}" for i in range(400)]
    write_text(root / "sentences" / "vocab_list_5k_v1.tsv", "\n".join(["#=KS=#", *words]) + "\n")
    write_text(root / "sentences" / "n_words_5k_v1.tsv", f"{len(words)}\n")
    for name, count in (("train", 4000), ("valid", 400)):
        rows = []
        for _ in range(count):
            label = int(rng.integers(2))
            chosen = rng.integers(200 * label, 200 * label + 200, int(rng.integers(3, 16)))
            rows.append(f"{' '.join(words[i] for i in chosen)}\t{label}")
        write_text(root / "sentences" / f"{name}_data_length3-16_v1.tsv", "\n".join(rows) + "\n")


def _energy(root: pathlib.Path, rng: np.random.Generator) -> None:
    """energy/: prices by hour with the weather, and the means and deviations of the weather."""
    names = ["price", "date", "day", "hour", *(f"distribution{i}" for i in range(_DISTRIBUTION)),
             *(f"weather{i}" for i in range(_WEATHER))]
    for name, count in (("train", 1000), ("valid", 200)):
        rows = [",".join(names)]
        for i in range(count):
            weather, hour = rng.normal(10.0, 3.0, _WEATHER), i % 24
            numbers = [*rng.random(_DISTRIBUTION), *weather]
            rows.append(f"{40 + hour + weather[0]:.3f},2018-01-{i % 28 + 1:02},{i // 24 % 7},{hour},"
                        + ",".join(f"{number:.3f}" for number in numbers))
        write_text(root / "energy" / f"{name}.csv", "\n".join(rows) + "\n")
    for name, value in (("mean", 10.0), ("std", 3.0)):
        (root / "energy" / f"{name}.pkl").write_bytes(pickle.dumps([value] * _WEATHER, 0))


def _fasttext(root: pathlib.Path, rng: np.random.Generator) -> None:
    """fasttext/: batches of 64 words, each of some hashes of its letters, with a word beside it."""
    write_records(root / "fasttext" / "batches.tfrecord", (
        {"inputs": rng.integers(1, 2000, 64 * int(rng.integers(4, 9))).tolist(),
         "labels": rng.integers(0, 500, 64).tolist()} for _ in range(400)))


def _text8(root: pathlib.Path, rng: np.random.Generator) -> None:
    """text8/text8.zip: words, all that are distinct among them, and in a second file what is missing of the size."""
    (root / "text8").mkdir(parents=True, exist_ok=True)
    often = (rng.pareto(1.0, 300000) * 10).astype(int) % _DISTINCT_WORDS
    places = rng.permutation(np.concatenate([np.arange(_DISTINCT_WORDS + 10), often]))
    text = " ".join(f"w{i}" for i in places).encode()

    def write(padding: int) -> int:
        with zipfile.ZipFile(root / "text8" / "text8.zip", "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("text8", text)
            archive.writestr("padding", bytes(padding))
        return (root / "text8" / "text8.zip").stat().st_size

    write(_TEXT8_BYTES - write(0))


def _karolinska(root: pathlib.Path, rng: np.random.Generator) -> None:
    """karolinska/: images of cells, with the class and the weight of each pixel."""
    shape = {"height": [_PIXELS], "width": [_PIXELS], "channels": [1]}
    for name, count in (("train_0", 40), ("val_0", 8)):
        examples = []
        for _ in range(count):
            image = rng.integers(0, 256, (_PIXELS, _PIXELS), np.uint8)
            parts = {"feature": image, "label": (image > 128).astype(np.uint8) * 255,
                     "weight": np.full_like(image, 255)}
            examples.append({f"{part}/{key}": value for part, pixels in parts.items()
                             for key, value in {"img": [pixels.tobytes()], **shape}.items()})
        write_records(root / "karolinska" / f"{name}.tfrecords", examples)


def _cifar10(root: pathlib.Path, rng: np.random.Generator) -> None:
    """cifar10_few/: five Python batches of 26 images, one batch of 128 in all; cifar10_h5/train.h5 of 640."""
    (root / "cifar10_few").mkdir(parents=True, exist_ok=True)
    for i in range(1, 6):
        labels = rng.integers(0, 10, 26, np.uint8)
        images = rng.integers(0, 128, (26, 3072), np.uint8) + labels[:, None] * 12
        write_python2_pickle(root / "cifar10_few" / f"data_batch_{i}", {"data": images, "labels": labels.tolist()})
    (root / "cifar10_h5").mkdir(parents=True, exist_ok=True)
    labels = rng.integers(0, 10, 640)
    with h5py.File(root / "cifar10_h5" / "train.h5", "w") as file:
        file["label"] = labels.astype(np.int32)
        file["data"] = rng.normal(labels[:, None, None, None] * 0.1, 1.0, (640, 3, 32, 32)).astype(np.float32)


def _gpt2(root: pathlib.Path, rng: np.random.Generator) -> None:
    """gpt2/: a text, and as tiny/ a model of one layer whose symbols are the letters and two pairs of them."""
    tiny = root / "gpt2" / "tiny"
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    symbols = [chr(i) for i in plain] + [chr(256 + i) for i in range(256 - len(plain))] + ["th", "the"]
    write_text(tiny / "encoder.json", json.dumps({symbol: i for i, symbol in enumerate(symbols)}))
    write_text(tiny / "vocab.bpe", "#version: 0.2\nt h\nth e\n")
    write_text(tiny / "hparams.json", json.dumps({
        "n_vocab": len(symbols), "n_ctx": _GPT2_CONTEXT, "n_embd": _GPT2_WIDTH, "n_head": 2, "n_layer": 1}))
    write_text(root / "gpt2" / "corpus.txt", " ".join(rng.choice(["the", "cat", "sees", "that", "bird"], 6000)))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in _gpt2_shapes(len(symbols)).items():
            is_drawn = name.endswith(("/w", "wte", "wpe"))
            start = rng.normal(0.0, 0.02, shape) if is_drawn else np.full(shape, name.endswith("/g"))
            tf.compat.v1.Variable(start.astype(np.float32), use_resource=False, name=f"model/{name}")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(tiny / "model.ckpt"))


def _gpt2_shapes(symbols: int) -> dict[str, list[int]]:
    """Returns variable -> shape of GPT-2 with one layer."""
    width = _GPT2_WIDTH
    shapes = {"wpe": [_GPT2_CONTEXT, width], "wte": [symbols, width]}
    for name in ("h0/ln_1", "h0/ln_2", "ln_f"):
        shapes |= {f"{name}/g": [width], f"{name}/b": [width]}
    for name, before, after in (("attn/c_attn", width, 3 * width), ("attn/c_proj", width, width),
                                ("mlp/c_fc", width, 4 * width), ("mlp/c_proj", 4 * width, width)):
        shapes |= {f"h0/{name}/w": [1, before, after], f"h0/{name}/b": [after]}
    return shapes


def _criteo_letters(root: pathlib.Path, rng: np.random.Generator) -> None:
    """criteo_letters/: a label, 13 numbers and 26 words, as DeepRec's model zoo reads them."""
    for name, count in (("train", 4000), ("eval", 500)):
        rows = []
        for _ in range(count):
            ids = rng.integers(0, 500, 26)
            numbers = [int(ids[0] < 125), *rng.integers(0, 1000, 13)]
            rows.append(",".join([*map(str, numbers), *(f"{i:08x}" for i in ids)]))
        write_text(root / "criteo_letters" / f"{name}.csv", "\n".join(rows) + "\n")


def _t2t(root: pathlib.Path, rng: np.random.Generator) -> None:
    """t2t/: digits and the same backwards, as tensor2tensor's generator writes them: from 2 on, with a 1 at the end."""
    for name, count in (("train", 3000), ("dev", 100)):
        lines = [rng.integers(2, 12, int(rng.integers(1, 41))).tolist() for _ in range(count)]
        write_records(root / "t2t" / f"algorithmic_reverse_decimal40-{name}-00000-of-00001", (
            {"inputs": [*line, 1], "targets": [*line[::-1], 1]} for line in lines))


def _ptb(root: pathlib.Path, rng: np.random.Generator) -> None:
    """ptb/: text of 10,000 words, the mark of a line's end among them."""
    words = [f"w{i}" for i in range(9999)]
    for name, count in (("train", 1), ("valid", 0), ("test", 0)):
        places = np.concatenate([np.arange(9999)] * count + [(rng.pareto(1.0, 3000) * 10).astype(int) % 9999])
        text = [words[i] for i in rng.permutation(places)]
        lines = [" ".join(text[i * 20:i * 20 + 20]) for i in range(math.ceil(len(text) / 20))]
        write_text(root / "ptb" / f"ptb.{name}.txt", "".join(f" {line} \n" for line in lines))
