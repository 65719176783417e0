"""Small data sets for the jobs of `seventh.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: `mnist_small`, the census, and CIFAR-10.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import struct

import h5py
import numpy as np

from benchmarks.public.data import write_records, write_text

_PLACES = ("kitchen", "garden", "office", "hallway", "bathroom", "bedroom")
_PEOPLE = ("mary", "john", "sandra", "daniel")
_STORY, _SENTENCE = 10, 6  # sentences of a story, words of a sentence
_FACE = 50  # pixels
_CUBE = 64  # voxels
_VOLUME = (32, 32, 16, 6)  # of a brain: voxels, and the channels of its images
_TITLE_CLASSES, _TITLE_WORDS = 14, 500
_ENTITIES, _RELATIONS, _EMBEDDING = 200, 8, 100
_NODES = 32  # of each randomly wired part


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_shop, _stories, _flights, _events, _volumes, _faces, _sequences, _titles, _voc, _wires,
                     _few_digits, _cubes, _triples, _census):
        make_one(root, rng)


def _shop(root: pathlib.Path, rng: np.random.Generator) -> None:
    """shop/: what a customer did before, what is shown, and whether it was clicked and paid, as TFRecords."""
    def example() -> dict[str, list]:
        pid = int(rng.integers(0, 2000))
        ids = {name: int(rng.integers(0, 500)) for name in ("sellerId", "brandId", "cate1Id", "cateId")}
        values: dict[str, list] = {"productId": [pid], **{name: [value] for name, value in ids.items()}}
        for name, weights in (("Bids", "bid"), ("C1ids", "c1id"), ("Cids", "cid"), ("Sids", "sid"), ("Pids", "pid")):
            count = int(rng.integers(1, 6))
            values[f"behavior{name}"] = rng.integers(0, 500, count).tolist()
            values[f"{weights}Weights"] = rng.random(count).tolist()
        for name in ("matchScore", "popScore", "brandPrefer", "cate2Prefer", "catePrefer", "sellerPrefer"):
            values[name] = [float(rng.random())]
        for name, end in (("matchType", 9), ("position", 200), ("triggerNum", 50), ("triggerRank", 50), ("type", 2),
                          ("hour", 24)):
            values[name] = [int(rng.integers(0, end))]
        values |= {"phoneBrand": [b"brand%d" % (pid % 20)], "phoneResolution": [b"1080x1920"],
                   "phoneOs": [[b"android", b"ios"][pid % 2]], "tab": [b"ALL"]}
        click = int(rng.random() < (0.8 if pid < 500 else 0.1))
        return {"click": [click], "pay": [click * int(rng.random() < 0.3)], **values}

    for name, count in (("train", 2000), ("eval", 200)):
        write_records(root / "shop" / name / "part-0.tfrecord", (example() for _ in range(count)))


def _stories(root: pathlib.Path, rng: np.random.Generator) -> None:
    """babi/: ten sentences of who went where, and the question where one of them is."""
    vocabulary = ["<pad>", "went", "to", "the", "where", "is", "?", ".", *_PEOPLE, *_PLACES]
    ids = {word: i for i, word in enumerate(vocabulary)}

    def example() -> dict[str, list[int]]:
        people, places = rng.integers(0, len(_PEOPLE), _STORY), rng.integers(0, len(_PLACES), _STORY)
        story = [[ids[word] for word in (_PEOPLE[person], "went", "to", "the", _PLACES[place], ".")]
                 for person, place in zip(people, places)]
        asked = int(people[-1 - int(rng.integers(0, 3))])
        last = int(places[np.flatnonzero(people == asked)[-1]])
        query = [ids["where"], ids["is"], ids[_PEOPLE[asked]], ids["?"]]
        return {"story": sum(story, []), "query": query, "answer": [ids[_PLACES[last]]]}

    name = "qa1_single-supporting-fact_10k"
    for part, count in (("train", 640), ("test", 160)):
        write_records(root / "babi" / f"{name}_{part}.tfrecords", (example() for _ in range(count)))
    write_text(root / "babi" / f"{name}.json", json.dumps({
        "task_size": 640, "max_query_length": 4, "max_story_length": _STORY, "max_sentence_length": _SENTENCE,
        "vocab": vocabulary, "vocab_size": len(vocabulary)}))


def _flights(root: pathlib.Path, rng: np.random.Generator) -> None:
    """flights/: whether a flight was on time, with its delays, its carrier and its airports."""
    carriers, airports = ["AA", "UA", "DL", "WN", "B6"], [f"AP{i}" for i in range(40)]
    for name, count in (("train", 3000), ("test", 500)):
        rows = []
        for _ in range(count):
            delay, taxi = float(rng.normal(10, 20)), float(rng.uniform(5, 30))
            place = (rng.uniform(25, 48), rng.uniform(-120, -72), rng.uniform(25, 48), rng.uniform(-120, -72))
            numbers = [delay, taxi, rng.uniform(100, 2500), rng.normal(10, 5), rng.normal(5, 5)]
            row = [f"{float(delay + taxi < 30):.1f}", *(f"{number:.2f}" for number in numbers), rng.choice(carriers),
                   *(f"{number:.3f}" for number in place), rng.choice(airports), rng.choice(airports)]
            rows.append(",".join(map(str, row)))
        write_text(root / "flights" / f"{name}.csv", "\n".join(rows) + "\n")


def _events(root: pathlib.Path, rng: np.random.Generator) -> None:
    """events/: images of collisions in two files for two workers, and the configuration, for a CPU: NHWC, 64 images.

    The folders of the run are there before, as after an earlier run: every task makes them where they are missing.
    """
    folder = root / "events"
    for name in ("logs", "models"):
        write_text(folder / "run" / name / "README", "of an earlier run\n")
    for name in ("train0", "train1", "val0", "val1"):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            labels = rng.integers(0, 2, 64)
            images = rng.random((64, 3, 64, 64)) * (1 + labels[:, None, None, None])
            file["data"], file["label"] = images.astype(np.float32), labels
            for weight in ("normweight", "weight", "psr"):
                file[weight] = np.ones(64, np.float32)
    write_text(folder / "config.json", json.dumps({
        "input_shape": [64, 64, 3], "inputpath": "events", "outputpath": "events/run", "trainsamples": 128,
        "arch": "hsw", "mode": "sync", "num_hot_spares": 0, "display_interval": 2, "save_interval": 1,
        "learning_rate": 0.00001, "dropout_p": 0.5, "optimizer": "ADAM", "weight_decay": 0, "num_fc_units": 512,
        "num_layers": 3, "momentum": 0.9, "num_epochs": 2, "train_batch_size": 16, "validation_batch_size": 16,
        "batch_size_per_node": False, "batch_norm": False, "scaling_improvements": False, "time": True,
        "create_summary": False, "restart": False, "conv_params": {
            "data_format": "NHWC", "num_filters": 128, "filter_size": 3, "padding": "SAME", "activation": "ReLU",
            "initializer": "HE"}}))


def _volumes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """volumes/: brains of six channels with a lesion, one a file."""
    for name, count in (("train", 8), ("eval", 2)):
        for i in range(count):
            truth = np.zeros(_VOLUME[:3], np.uint8)
            truth[8:20, 8:20, 4:10] = 1
            image = rng.normal(truth[..., None], 1.0, _VOLUME).astype(np.float32)
            write_records(root / "volumes" / name / f"brain{i}.tfrecord", [{
                "shape": [np.array(_VOLUME, np.int32).tobytes()], "img_raw": [image.tobytes()],
                "gt_raw": [truth.tobytes()], "example_name": [b"brain%d" % i]}])


def _faces(root: pathlib.Path, rng: np.random.Generator) -> None:
    """faces/: grey images of a light disc."""
    distance = np.hypot(*np.mgrid[:_FACE, :_FACE] - _FACE / 2)
    write_records(root / "faces" / "train.tfrecords", (
        {"image_raw": np.clip((distance < rng.uniform(10, 20)) * 180 + rng.integers(0, 60, distance.shape), 0, 255)
         .astype(int).ravel().tolist()} for _ in range(640)))


def _sequences(root: pathlib.Path, rng: np.random.Generator) -> None:
    """sequences/: ten values of a sine, the last two of which are to be found."""
    for name, count in (("train", 100), ("valid", 40)):
        starts = rng.uniform(0, 6, count)
        rows = [",".join(f"{value:.4f}" for value in np.sin(start + np.arange(10) * 0.3)) for start in starts]
        write_text(root / "sequences" / f"{name}.csv", "\n".join(rows) + "\n")


def _titles(root: pathlib.Path, rng: np.random.Generator) -> None:
    """titles/: the vocabulary, the sizes, and texts of fourteen classes behind their class and their title."""
    words, share = [f"word{i}" for i in range(_TITLE_WORDS)], _TITLE_WORDS // _TITLE_CLASSES
    write_text(root / "titles" / "words.txt", "".join(f"{word}\n" for word in ["<pad>", *words]))
    for name, count in (("train", 2000), ("eval", 200)):
        rows = []
        for label in rng.integers(0, _TITLE_CLASSES, count):
            own = rng.integers(label * share, (label + 1) * share, int(rng.integers(5, 40)))
            rows.append(f"{label + 1},title,{' '.join(words[i] for i in own)}")
        write_text(root / "titles" / f"{name}.csv", "\n".join(rows) + "\n")
    write_text(root / "titles" / "dataset_params.json", json.dumps({
        "train_size": 2000, "test_size": 200, "vocab_size": _TITLE_WORDS + 2, "pad_word": "<pad>",
        "num_oov_buckets": 1}))


def _voc(root: pathlib.Path, rng: np.random.Generator) -> None:
    """voc/VOC2007: images with a box in each; bitmaps, which OpenCV knows by their first bytes."""
    folder, width, height = root / "voc" / "VOC2007", 64, 48
    names = [f"{i:06}" for i in range(1, 9)]
    write_text(folder / "ImageSets" / "Main" / "trainval.txt", "".join(f"{name}\n" for name in names))
    (folder / "JPEGImages").mkdir(parents=True, exist_ok=True)
    header = struct.pack("<2sIHHI", b"BM", 54 + width * height * 3, 0, 0, 54) + struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, 24, 0, width * height * 3, 2835, 2835, 0, 0)
    for name in names:
        pixels = rng.integers(0, 80, (height, width, 3), np.uint8)
        left, low = int(rng.integers(2, 30)), int(rng.integers(2, 20))
        pixels[low:low + 20, left:left + 20] += 120
        (folder / "JPEGImages" / f"{name}.jpg").write_bytes(header + pixels[::-1].tobytes())
        box = {"xmin": left, "ymin": low, "xmax": left + 20, "ymax": low + 20}
        write_text(folder / "Annotations" / f"{name}.xml", "<annotation><object><name>cat</name><bndbox>" + "".join(
            f"<{key}>{value}</{key}>" for key, value in box.items()) + "</bndbox></object></annotation>\n")


def _wires(root: pathlib.Path, rng: np.random.Generator) -> None:
    """wires/: three graphs as the script that is to be run first writes them, and its MNIST example with few epochs."""
    for part in range(3):
        edges = set()
        for i in range(_NODES):
            for j in (i + 1, i + 2):
                other = j % _NODES if rng.random() > 0.75 else (i + int(rng.integers(1, _NODES))) % _NODES
                edges.add((min(i, other), max(i, other)))
        lines = [" ".join(map(str, [i, *(b for a, b in sorted(edges) if a == i)])) for i in range(_NODES)]
        write_text(root / "wires" / "rand_graph" / f"dag_{part}.txt", "\n".join(lines) + "\n")
    write_text(root / "wires" / "mnist.json", json.dumps({
        "Data": {"name": "mnist", "root_path": "", "num_class": 10, "input_size": 28, "batch_size": 64},
        "Augmentation": {"color": True, "affine": True, "flip": True},
        "Graph": {"mode": "ws", "ws": {"n": _NODES, "k": 4, "p": 0.75}, "num_random_dag_parts": 3, "dag_def": []},
        "Model": {"arch": "mnist", "base_channel": 32, "weight_decay": 5e-5, "dropout": 0.5},
        "Train": {"epoch": 2, "optimizer": "sgd", "lr_policy": "cos_lr",
                  "step_lr": {"time": [10000], "value": [1e-3, 1e-4]},
                  "cos_lr": {"init": 1e-2, "step": 500000, "warmup": 5},
                  "exp_lr": {"init": 1e-2, "decay_rate": 0.1, "decay_step": 10000}, "label_smooth": 0.1},
        "Monitor": {"log_step": 5, "ckpt_save_epoch": 1, "max_eval_step": 1000}}))


def _few_digits(root: pathlib.Path, rng: np.random.Generator) -> None:
    """mnist_few/: 1,000 and 200 of the digits of mnist_small, not compressed."""
    del rng
    (root / "mnist_few").mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 1000), ("t10k", 200)):
        for kind, header_bytes, item_bytes in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(root / "mnist_small" / f"{part}-{kind}-ubyte.gz") as file:
                header, body = file.read(header_bytes), file.read(count * item_bytes)
            small = header[:4] + count.to_bytes(4, "big") + header[8:] + body
            (root / "mnist_few" / f"{part}-{kind}-ubyte").write_bytes(small)


def _cubes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """cubes/: twenty times the same cube of voxels, as the script's own generator makes them."""
    del rng
    voxels = np.zeros((_CUBE, _CUBE, _CUBE, 1), np.uint8)
    voxels[16:48, 16:48, 16:48] = 1
    name = "point_cloud_64px_dataitems_20_uint8.tfrecord"
    write_records(root / "cubes" / name, ({"voxels": [voxels.tobytes()]} for _ in range(20)))
    write_text(root / "cubes" / f"{name}.metadata", json.dumps({"img_shape": voxels.shape, "d_type": "uint8"}))


def _triples(root: pathlib.Path, rng: np.random.Generator) -> None:
    """FB15k-237/: who stands in which relation to whom, the numbers of both, and vectors to begin with."""
    folder = root / "triples" / "FB15k-237"
    names = {"entity": [f"/m/{i:04}" for i in range(_ENTITIES)], "relation": [f"/r/{i}" for i in range(_RELATIONS)]}
    for kind, words in names.items():
        write_text(folder / f"{kind}2id.txt", "".join(f"{word}\t{i}\n" for i, word in enumerate(words)))
        vectors = rng.normal(0.0, 0.1, (len(words), _EMBEDDING))
        write_text(folder / f"{kind}2vec{_EMBEDDING}.init", "".join(
            "\t".join(f"{value:.5f}" for value in vector) + "\n" for vector in vectors))
    for name, count in (("train", 2000), ("valid", 100), ("test", 100)):
        heads = np.arange(count) % _ENTITIES if name == "train" else rng.integers(0, _ENTITIES, count)
        relations = rng.integers(0, _RELATIONS, count)
        rows = [(names["entity"][h], names["relation"][r], names["entity"][(h * 7 + r) % _ENTITIES])
                for h, r in zip(heads, relations)]
        write_text(folder / f"{name}.txt", "".join("\t".join(row) + "\n" for row in rows))


def _census(root: pathlib.Path, rng: np.random.Generator) -> None:
    """census_data/: the census as tensorflow/models cleans it: no blanks, no first line, no full stops."""
    del rng
    for name in ("adult.data", "adult.test"):
        lines = (root / "census" / name).read_text(encoding="utf-8").splitlines()
        rows = [line.replace(", ", ",").removesuffix(".") for line in lines if not line.startswith("|")]
        write_text(root / "uai" / "census_data" / name, "\n".join(rows) + "\n")
