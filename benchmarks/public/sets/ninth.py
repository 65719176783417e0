"""Small data sets for the jobs of `ninth.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST in its forms.
"""

from __future__ import annotations

import json
import pathlib

import h5py
import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_PAIRS, _NOUNS, _ADJECTIVES = 1200, 617, 350  # classes of a photograph
_HIDDEN, _POSITIONS = 32, 64  # of the encoder of sentences
_USERS, _ITEMS, _LIKED = 60, 100, 11  # the last that a user liked is for the test
_FRAMES = 60  # of the drive


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_photographs, _sentences, _urls, _likes, _drive):
        make_one(root, rng)


def _photographs(root: pathlib.Path, rng: np.random.Generator) -> None:
    """anp/: photographs, each with its pair of an adjective and a noun, its noun and its adjective."""
    def example() -> dict[str, list]:
        labels = [int(rng.integers(count)) for count in (_PAIRS, _NOUNS, _ADJECTIVES)]
        pixels = rng.integers(0, 100, (64, 64, 3)) + np.array(labels) % 100
        return {"image/encoded": [tf.io.encode_jpeg(pixels.astype(np.uint8)).numpy()], "image/class/label": labels,
                "image/class/text": [b"nice thing"], "image/filename": [b"photograph.jpg"]}

    for part in range(2):
        write_records(root / "anp" / f"train-{part:05}-of-00002", (example() for _ in range(150)))


def _sentences(root: pathlib.Path, rng: np.random.Generator) -> None:
    """bleurt/: what a sentence should say, what it says, and how well; the embeddings of a tiny BERT."""
    folder, words = root / "bleurt", [f"word{i}" for i in range(95)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    write_text(folder / "vocab.txt", "\n".join(vocabulary) + "\n")
    for name, count in (("train", 64), ("dev", 16)):
        lines = []
        for _ in range(count):
            reference = rng.choice(words, 8)
            is_kept = rng.random(8) < rng.random()
            candidate = np.where(is_kept, reference, rng.choice(words, 8))
            lines.append(json.dumps({"candidate": " ".join(candidate), "reference": " ".join(reference),
                                     "score": float(is_kept.mean())}))
        write_text(folder / f"{name}.jsonl", "\n".join(lines) + "\n")
    write_text(folder / "bert_config.json", json.dumps({
        "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": _HIDDEN,
        "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": _POSITIONS,
        "num_attention_heads": 2, "num_hidden_layers": 2, "type_vocab_size": 2, "vocab_size": len(vocabulary)}))
    sizes = {"word_embeddings": len(vocabulary), "position_embeddings": _POSITIONS, "token_type_embeddings": 2}
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"), tensor_names=[f"bert/embeddings/{name}" for name in sizes],
        shape_and_slices=[""] * len(sizes),
        tensors=[rng.normal(0, 0.02, (size, _HIDDEN)).astype(np.float32) for size in sizes.values()])


def _urls(root: pathlib.Path, rng: np.random.Generator) -> None:
    """urls/: addresses, what their servers say of themselves, and whether they are fraud."""
    header = "url,compromissionType,isHiddenFraudulent,contentLength,serverType,poweredBy,contentType,lastModified"
    for name, count in (("train", 2000), ("eval", 300), ("test", 300)):
        rows = [header]
        for i in range(count):
            is_fraud = bool(rng.integers(2))
            start, end = rng.choice(["www.", ""]), rng.choice(["com", "org", "com.br"])
            query = f"?id={rng.integers(10**9)}%20{i}" if is_fraud else ""
            date = f'"Mon, {rng.integers(10, 29)} Jan {rng.integers(2008, 2014)} 19:31:18 GMT"'
            rows.append(",".join([
                f"http://{start}place{rng.integers(500)}.{end}/page{i}.html{query}",
                str(rng.choice(["defacement", "phishing"])), str(is_fraud), str(rng.integers(0, 20000)),
                str(rng.choice(["Apache/2.2", "nginx", "Microsoft-IIS/6.0"])), str(rng.choice(["PHP/5.3", "Unknown"])),
                str(rng.choice(["text/html", "text/html; charset=utf-8"])), str(rng.choice([date, "Unknown"]))]))
        write_text(root / "urls" / f"{name}.csv", "\n".join(rows) + "\n")


def _likes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """warp/: users, items and how often each was liked, who liked which, and one more of each user for the test."""
    folder = root / "warp"
    liked = [rng.choice(_ITEMS, _LIKED, replace=False).tolist() for _ in range(_USERS)]
    counts = np.bincount(np.concatenate(liked), minlength=_ITEMS)
    write_text(folder / "users", "".join(f"{user}\tuser{user}\n" for user in range(_USERS)))
    write_text(folder / "items", "".join(f"{item}\titem{item}\t{max(count, 2)}\n" for item, count in enumerate(counts)))
    for part in range(2):
        write_text(folder / "pairs" / f"part-{part}", "".join(
            f"{user}\t{item}\n" for user in range(part, _USERS, 2) for item in liked[user][:-1]))
    write_text(folder / "test" / "part-0", "".join(
        f"{user}\t{items[-1]}\t{'|'.join(map(str, items[:-1]))}\n" for user, items in enumerate(liked)))


def _drive(root: pathlib.Path, rng: np.random.Generator) -> None:
    """drive/: what the camera of a car saw, and apart from that its speed and the angle of its wheel."""
    folder = root / "drive"
    values = {"camera": {"X": rng.integers(0, 256, (_FRAMES, 3, 160, 320), np.uint8)},
              "labels": {"speed": rng.uniform(0, 30, _FRAMES), "steering_angle": rng.normal(0, 20, _FRAMES)}}
    for part, arrays in values.items():
        (folder / part / "training").mkdir(parents=True, exist_ok=True)
        with h5py.File(folder / part / "training" / "drive.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
