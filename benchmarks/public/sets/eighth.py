"""Small data sets for the jobs of `eighth.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST in its forms, CIFAR-10, and BERT's pairs.
"""

from __future__ import annotations

import collections
import json
import pathlib
import pickle
import sys
import types
from collections.abc import Iterable, Mapping, Sequence

import h5py
import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_QUERY = 40  # ids, with those of the beginning, the end, and what fills it up
_PHONES, _FILTERS = 20, 40  # classes of a frame of speech, and its features
_CLASSES = 3862  # of YouTube-8M
_ITEMS, _HISTORY, _MASKED = 200, 20, 4
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TOKENS = 32  # of a text of ELECTRA
_CAPTION_WORDS = 11999
_VOLUME = 48  # voxels, on each side
_FEED = (  # the columns of words of an advertisement, each with the words that the script knows
    ("ages", "1101 1102 1103 1104 1105 1106"), ("age", ""), ("gender", "400 401 402"),
    ("platform", "90110100 90110200"), ("phone", "90101000 90101001"), ("location", "30101 30102"),
    ("network", "60110100 60110200"), ("bidtype", "60211 60214"), ("psid", "70101011 70101012"),
    ("style", "702100 702101 702105"), ("link", "80210 80214"), ("show", "90210 90211"),
    ("position", "7100212 7100213 7100216"), ("zerocate", "20000000 29000000"), ("fircate", "200100 200200"),
    ("seccate", "200101 200103"),
)


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_pictures, _queries, _speech, _boxes, _clips, _feed, _sparse, _comments, _purchases, _words,
                     _texts, _neurons, _captions):
        make_one(root, rng)


def _jpeg(pixels: np.ndarray) -> bytes:
    return tf.io.encode_jpeg(pixels.astype(np.uint8)).numpy()


def _pictures(root: pathlib.Path, rng: np.random.Generator) -> None:
    """pictures/: two folders of two photographs, of which one is red and one is blue."""
    for channel, name in ((0, "red"), (2, "blue")):
        for i in range(2):
            pixels = rng.integers(0, 100, (64, 64, 3))
            pixels[..., channel] += 150
            path = root / "pictures" / name / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_jpeg(pixels))


def _queries(root: pathlib.Path, rng: np.random.Generator) -> None:
    """dssm/: queries and documents that share most of their words, as ids between a 1 and a 2, then zeros."""
    def padded(ids: np.ndarray) -> list[int]:
        return [1, *ids.tolist(), 2, *[0] * (_QUERY - 2 - len(ids))]

    def example() -> dict[str, list[int]]:
        topic = int(rng.integers(3, 180))
        query, document = (rng.integers(topic, topic + 20, int(rng.integers(low, high)))
                           for low, high in ((3, 10), (10, _QUERY - 2)))
        return {"query": padded(query), "doc": padded(document)}

    for part in range(2):
        write_records(root / "dssm" / f"tfrecords.dssm.{part}", (example() for _ in range(500)))


def _speech(root: pathlib.Path, rng: np.random.Generator) -> None:
    """nabu/: the folder of an experiment: its configuration, its cluster, and frames of speech with their classes.

    As the program of this recipe that is to be run first leaves it, with the paths of the data in the files.
    """
    folder = root / "nabu"
    sections = []
    for part, count in (("train", 64), ("dev", 16)):
        lengths = [int(length) for length in rng.integers(20, 60, count)]
        classes = [np.repeat(rng.integers(0, _PHONES, length // 5 + 1), 5)[:length] for length in lengths]
        features = [rng.normal(labels[:, None] * 0.1, 1.0, (len(labels), _FILTERS)) for labels in classes]
        for name, kind, frames in (("fbank", "audio_feature", [array.astype(np.float32) for array in features]),
                                   ("alignments", "alignment", [array.astype(np.int32) for array in classes])):
            store = folder / "data" / f"{part}{name}"
            for i, frame in enumerate(frames):
                write_records(store / "data" / f"file{i}", [{
                    "shape": [np.array(frame.shape, np.int32).tobytes()], "data": [frame.tobytes()]}])
            write_text(store / "pointers.scp", "".join(
                f"utterance{i}\texpdir/data/{part}{name}/data/file{i}\n" for i in range(count)))
            write_text(store / "max_length", str(max(lengths)))
            write_text(store / "dim", str(_FILTERS if name == "fbank" else 1))
            np.save(store / "sequence_length_histogram.npy", np.bincount(lengths, minlength=max(lengths) + 1))
            sections.append((f"{part}{name}", {"type": kind, "dir": f"expdir/data/{part}{name}"}))
    _write_sections(folder / "database.conf", sections)
    _write_sections(folder / "model.cfg", [
        ("io", {"inputs": "features", "outputs": "alignments", "output_dims": _PHONES}),
        ("encoder", {"encoder": "dnn", "num_units": 64, "num_layers": 2, "input_noise": 0, "dropout": 1,
                     "context": 5, "layer_norm": True}),
        ("decoder", {"decoder": "dnn_decoder", "num_layers": 0, "num_units": 64, "layer_norm": True, "dropout": 1})])
    _write_sections(folder / "trainer.cfg", [("trainer", {
        "trainer": "standard", "loss": "average_cross_entropy", "trainlabels": 0, "features": "trainfbank",
        "targets": "alignments", "alignments": "trainalignments", "num_epochs": 4, "initial_learning_rate": 0.001,
        "learning_rate_decay": 0.1, "batch_size": 8, "numbuckets": 1, "valid_frequency": 10, "num_tries": 10})])
    _write_sections(folder / "validation_evaluator.cfg", [("evaluator", {
        "evaluator": "loss_evaluator", "loss": "average_cross_entropy", "batch_size": 8, "features": "devfbank",
        "targets": "alignments", "alignments": "devalignments"})])
    write_text(folder / "cluster" / "cluster",
               "ps,localhost,22220,\nworker,localhost,22221,\nworker,localhost,22222,\n")
    for name in ("model", "processes"):
        write_text(folder / name / "README", "made before the training\n")


def _write_sections(path: pathlib.Path, sections: Iterable[tuple[str, Mapping[str, object]]]) -> None:
    write_text(path, "".join(f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()) + "\n"
                             for name, values in sections))


def _boxes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """boxes/: images with one or two squares of two classes, and the configuration of a detector."""
    def example() -> bytes:
        pixels, values = rng.integers(0, 80, (96, 128, 3)), collections.defaultdict(list)
        for _ in range(int(rng.integers(1, 3))):
            left, top, label = int(rng.integers(0, 80)), int(rng.integers(0, 50)), int(rng.integers(0, 2))
            pixels[top:top + 40, left:left + 40, label] += 150
            for name, value in (("label", label), ("xmin", left), ("xmax", left + 40), ("ymin", top),
                                ("ymax", top + 40)):
                values[name].append([value])
        return _sequence({"image_raw": [_jpeg(pixels)], "filename": [b"squares.jpg"], "width": [128], "height": [96],
                          "depth": [3]}, values)

    _write_serialized(root / "boxes" / "train.tfrecords", (example() for _ in range(16)))
    write_text(root / "boxes" / "config.yml", """\
train:
  run_name: squares
  num_epochs: 2
dataset:
  type: object_detection
  image_preprocessing:
    min_size: 96
    max_size: 128
model:
  type: fasterrcnn
  network:
    num_classes: 2
  base_network:
    architecture: resnet_v1_50
    download: False
  anchors:
    base_size: 64
  rpn:
    proposals:
      post_nms_top_n: 100
""")


def _sequence(context: Mapping[str, Sequence], lists: Mapping[str, Sequence[Sequence]]) -> bytes:
    """Returns a serialized SequenceExample; the lists have integers or bytes for each step."""
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={name: _feature(value) for name, value in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list={
            name: tf.train.FeatureList(feature=[_feature(value) for value in steps]) for name, steps in lists.items()
        })).SerializeToString()


def _feature(value: Sequence) -> tf.train.Feature:
    if isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def _write_serialized(path: pathlib.Path, examples: Iterable[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            writer.write(example)


def _clips(root: pathlib.Path, rng: np.random.Generator) -> None:
    """clips/: videos of 20 to 40 frames, each as 1024 and 128 bytes, with one to three labels."""
    def example() -> bytes:
        frames = int(rng.integers(20, 40))
        return _sequence(
            {"id": [b"clip"], "labels": sorted(set(rng.integers(0, _CLASSES, int(rng.integers(1, 4))).tolist()))},
            {"rgb": [[rng.bytes(1024)] for _ in range(frames)], "audio": [[rng.bytes(128)] for _ in range(frames)]})

    for part in range(2):
        _write_serialized(root / "clips" / f"train{part:04}.tfrecord", (example() for _ in range(64)))


def _feed(root: pathlib.Path, rng: np.random.Generator) -> None:
    """feed/: who saw which advertisement where, seven rates of clicks, and whether it was clicked, without a header."""
    for name, count in (("train", 4000), ("eval", 400)):
        rows = []
        for _ in range(count):
            row = [str(rng.choice(words.split())) if words else str(rng.integers(15, 70)) for _, words in _FEED]
            label = int(rng.random() < (0.6 if row[2] == "400" else 0.1))
            rows.append(",".join([*row, *(str(rate) for rate in rng.integers(0, 100, 7)), str(rng.integers(1, 50)),
                                  str(rng.integers(1, 500)), str(rng.integers(1, 9)), str(label)]))
        write_text(root / "feed" / name / "part-00000.csv", "\n".join(rows) + "\n")


def _sparse(root: pathlib.Path, rng: np.random.Generator) -> None:
    """hogwild/: rows of 10,000 columns of which a few are not zero, and one of ten classes."""
    def example() -> dict[str, list]:
        label, count = int(rng.integers(0, 10)), int(rng.integers(10, 40))
        columns = np.sort(rng.choice(1000, count, replace=False)) + label * 1000
        return {"nz_idx": columns.tolist(), "nz_values": rng.random(count).tolist(), "label": [label]}

    write_records(root / "hogwild" / "train.tfrecords", (example() for _ in range(2000)))


def _comments(root: pathlib.Path, rng: np.random.Generator) -> None:
    """comments/: texts, and which part of their readers found them rude."""
    words = [f"word{i}" for i in range(50)]
    for name, count in (("train", 500), ("eval", 100)):
        examples = []
        for _ in range(count):
            chosen = rng.choice(words, int(rng.integers(5, 15)))
            rude = float(rng.integers(0, 2))
            text = " ".join([*chosen, "idiot"] if rude else chosen)
            examples.append({"comment_text": [text.encode()], "frac_neg": [rude]})
        write_records(root / "comments" / f"{name}.tfrecord", examples)


def _purchases(root: pathlib.Path, rng: np.random.Generator) -> None:
    """bert4rec/: what users bought, some of it masked; the vocabulary is a pickle of the job's own class."""
    folder = root / "bert4rec"
    histories = {f"user_{user}": [f"item_{(int(start) + i) % _ITEMS}" for i in range(_HISTORY)]
                 for user, start in enumerate(rng.integers(0, _ITEMS, 100), 1)}
    counter = collections.Counter({f"item_{i}": 0 for i in range(_ITEMS)})
    for items in histories.values():
        counter.update(items)
    special = ["[pad]", "[MASK]", "[NO_USE]"]
    ids = {token: i for i, token in enumerate([*(item for item, _ in counter.most_common()), *special], 1)}
    values = {"counter": counter, "user_set": set(histories), "user_count": len(histories), "item_count": _ITEMS,
              "special_tokens": set(special), "token_to_ids": ids,
              "id_to_tokens": {i: token for token, i in ids.items()}, "vocab_words": list(ids)}

    def example(user: int, is_test: bool) -> dict[str, list]:
        bought = [ids[item] for item in histories[f"user_{user}"]]
        places = [_HISTORY - 1] if is_test else sorted(rng.choice(_HISTORY, _MASKED, replace=False).tolist())
        shown = [ids["[MASK]"] if i in places else item for i, item in enumerate(bought)]
        unused = [0] * (_MASKED - len(places))
        return {"info": [user], "input_ids": shown, "input_mask": [1] * _HISTORY,
                "masked_lm_positions": [*places, *unused], "masked_lm_ids": [*(bought[i] for i in places), *unused],
                "masked_lm_weights": [*[1.0] * len(places), *map(float, unused)]}

    write_records(folder / "train.tfrecord", (example(user, False) for _ in range(5) for user in range(1, 101)))
    write_records(folder / "test.tfrecord", (example(user, True) for user in range(1, 101)))
    (folder / "ml.vocab").write_bytes(_pickled_as("vocab", "FreqVocab", values))
    (folder / "ml.his").write_bytes(pickle.dumps(
        {user: [[ids[item] for item in items]] for user, items in histories.items()}, 2))
    write_text(folder / "bert_config.json", json.dumps({
        "attention_probs_dropout_prob": 0.2, "hidden_act": "gelu", "hidden_dropout_prob": 0.2, "hidden_size": 32,
        "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": _HISTORY,
        "num_attention_heads": 2, "num_hidden_layers": 2, "type_vocab_size": 2, "vocab_size": len(ids) + 1}))


def _pickled_as(module: str, name: str, values: Mapping[str, object]) -> bytes:
    """Returns the pickle of an object with these attributes, whose class the reader imports from its own module."""
    stand_in = types.ModuleType(module)
    kind = type(name, (), {"__module__": module})
    setattr(stand_in, name, kind)
    value = kind()
    vars(value).update(values)
    before = sys.modules.get(module)
    sys.modules[module] = stand_in
    try:
        return pickle.dumps(value, 2)
    finally:
        del sys.modules[module]
        if before is not None:
            sys.modules[module] = before


def _words(root: pathlib.Path, rng: np.random.Generator) -> None:
    """words/: grey images of words, 31 pixels high, with a bar as bright as its letter where a letter would be."""
    def example(number: int) -> dict[str, list]:
        labels, width = rng.integers(0, len(_LETTERS), int(rng.integers(3, 8))).tolist(), int(rng.integers(80, 140))
        pixels, step = rng.integers(0, 20, (31, width, 1)), width // len(labels)
        for i, label in enumerate(labels):
            pixels[4:27, i * step:i * step + step - 3] += 40 + 3 * label
        return {"image/encoded": [_jpeg(pixels)], "image/labels": labels, "image/width": [width],
                "image/filename": [b"%d.jpg" % number],
                "text/string": ["".join(_LETTERS[label] for label in labels).encode()], "text/length": [len(labels)]}

    for part in range(2):
        write_records(root / "words" / f"words-{part:03}.tfrecord", (example(i) for i in range(200)))


def _texts(root: pathlib.Path, rng: np.random.Generator) -> None:
    """electra/: the folder of a model: a vocabulary, texts of 32 tokens, and the sizes of a tiny model."""
    folder, words = root / "electra", [f"word{i}" for i in range(95)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    write_text(folder / "vocab.txt", "\n".join(vocabulary) + "\n")

    def example() -> dict[str, list[int]]:
        first, second = (int(count) for count in rng.integers(5, 14, 2))
        start, unused = int(rng.integers(0, len(words))), [0] * (_TOKENS - first - second - 3)
        text = [5 + (start + i) % len(words) for i in range(first + second)]
        return {"input_ids": [2, *text[:first], 3, *text[first:], 3, *unused],
                "input_mask": [*[1] * (_TOKENS - len(unused)), *unused],
                "segment_ids": [*[0] * (first + 2), *[1] * (second + 1), *unused]}

    for part in range(2):
        write_records(folder / "pretrain_tfrecords" / f"pretrain_data.tfrecord-{part}-of-2",
                      (example() for _ in range(200)))
    write_text(folder / "hparams.json", json.dumps({
        "num_train_steps": 40, "num_warmup_steps": 10, "train_batch_size": 8, "max_seq_length": _TOKENS,
        "vocab_size": len(vocabulary), "save_checkpoints_steps": 20, "embedding_size": 32,
        "model_hparam_overrides": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                                   "intermediate_size": 128}}))


def _neurons(root: pathlib.Path, rng: np.random.Generator) -> None:
    """neurons/: an image of two bright rods, which of them a voxel is of, and places to begin at, compressed."""
    folder = root / "neurons"
    labels = np.zeros((_VOLUME,) * 3, np.int64)
    labels[:, 8:20, 8:40], labels[:, 28:42, 8:40] = 1, 2
    image = np.where(labels > 0, 160, 90) + rng.normal(0, 15, labels.shape)
    folder.mkdir(parents=True, exist_ok=True)
    for name, key, values in (("image", "raw", np.clip(image, 0, 255).astype(np.uint8)), ("labels", "stack", labels)):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file[key] = values
    write_records(folder / "coords.tfrecord", (
        {"center": rng.integers(16, _VOLUME - 16, 3).tolist(), "label_volume_name": [b"vol1"]} for _ in range(500)),
        "GZIP")


def _captions(root: pathlib.Path, rng: np.random.Generator) -> None:
    """captions/: photographs and the ids of the words that say what they show."""
    def example() -> bytes:
        ids = [1, *rng.integers(3, _CAPTION_WORDS, int(rng.integers(5, 12))).tolist(), 2]
        return _sequence({"image/data": [_jpeg(rng.integers(0, 256, (64, 64, 3)))]},
                         {"image/caption_ids": [[word] for word in ids]})

    for part in range(2):
        _write_serialized(root / "captions" / f"train-{part:05}-of-00002", (example() for _ in range(64)))
