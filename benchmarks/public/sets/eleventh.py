"""Small data sets for the jobs of `eleventh.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST and CIFAR-10 in their forms, and the tiny
BERT of `bleurt`. The detector needs what protoc makes of its repository's protos: that is in protos/ if its clone is
beside the folder.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_DETECTOR, _DETECTOR_PROTOS = "SDatsyuk/tf_object_detection_hvd", "object_detection/protos"
_SIDE = 160  # of the detector's images
_DIGITS = {"train": ("train", 20000), "test": ("t10k", 10000)}  # as many as the script wants, neither more nor less
_TEXT, _WORDS = 32, 100  # tokens of a text for UDA, and its vocabulary
_RATINGS = 485  # columns of a user's and a show's features and, at the end, the rating
_PIECES = 90  # of the vocabulary of XLNet; its model has some more
_CONVOLUTIONS = """{ activation: RELU_6, regularizer { l2_regularizer { weight: 0.00004 } },
          initializer { truncated_normal_initializer { stddev: 0.03 } },
          batch_norm { train: true, scale: true, center: true, decay: 0.9, epsilon: 0.001 } }"""
_PIPELINE = f"""\
model {{
  ssd {{
    num_classes: 2
    box_coder {{ faster_rcnn_box_coder {{ y_scale: 10.0 x_scale: 10.0 height_scale: 5.0 width_scale: 5.0 }} }}
    matcher {{ argmax_matcher {{ matched_threshold: 0.5 unmatched_threshold: 0.5 ignore_thresholds: false
        negatives_lower_than_unmatched: true force_match_for_each_row: true }} }}
    similarity_calculator {{ iou_similarity {{ }} }}
    anchor_generator {{ ssd_anchor_generator {{ num_layers: 6 min_scale: 0.2 max_scale: 0.95
        aspect_ratios: 1.0 aspect_ratios: 2.0 aspect_ratios: 0.5 aspect_ratios: 3.0 aspect_ratios: 0.3333 }} }}
    image_resizer {{ fixed_shape_resizer {{ height: {_SIDE} width: {_SIDE} }} }}
    box_predictor {{ convolutional_box_predictor {{ min_depth: 0 max_depth: 0 num_layers_before_predictor: 0
        use_dropout: false kernel_size: 1 box_code_size: 4
        conv_hyperparams {_CONVOLUTIONS} }} }}
    feature_extractor {{ type: 'ssd_mobilenet_v1' min_depth: 8 depth_multiplier: 0.25
        conv_hyperparams {_CONVOLUTIONS} }}
    loss {{ classification_loss {{ weighted_sigmoid {{ }} }} localization_loss {{ weighted_smooth_l1 {{ }} }}
        hard_example_miner {{ num_hard_examples: 3000 iou_threshold: 0.99 loss_type: CLASSIFICATION
            max_negatives_per_positive: 3 min_negatives_per_image: 0 }}
        classification_weight: 1.0 localization_weight: 1.0 }}
    normalize_loss_by_num_matches: true
    post_processing {{ batch_non_max_suppression {{ score_threshold: 1e-8 iou_threshold: 0.6
        max_detections_per_class: 10 max_total_detections: 10 }} score_converter: SIGMOID }}
  }}
}}
train_config: {{
  batch_size: 2
  optimizer {{ momentum_optimizer: {{ learning_rate: {{ constant_learning_rate {{ learning_rate: 0.001 }} }}
      momentum_optimizer_value: 0.9 }} }}
  num_steps: 20
  data_augmentation_options {{ random_horizontal_flip {{ }} }}
}}
train_input_reader: {{ tf_record_input_reader {{ input_path: "squares/train.record" }}
  label_map_path: "squares/labels.pbtxt" }}
eval_config: {{ num_examples: 4 metrics_set: "coco_detection_metrics" }}
eval_input_reader: {{ tf_record_input_reader {{ input_path: "squares/eval.record" }}
  label_map_path: "squares/labels.pbtxt" shuffle: false num_readers: 1 }}
"""


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_squares, _reviews, _pairs, _shows):
        make_one(root, rng)
    _digits(root, pathlib.Path(mnist))
    _protos(root)


def _digits(root: pathlib.Path, mnist: pathlib.Path) -> None:
    """mnist_rows/: MNIST as text, a label and its pixels a line."""
    (root / "mnist_rows").mkdir(parents=True, exist_ok=True)
    for name, (part, count) in _DIGITS.items():
        with gzip.open(mnist / f"{part}-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, count * 784, 16).reshape(-1, 784)
        with gzip.open(mnist / f"{part}-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, count, 8)
        np.savetxt(root / "mnist_rows" / f"mnist_{name}.csv", np.column_stack([labels, images]), "%d", ",")


def _squares(root: pathlib.Path, rng: np.random.Generator) -> None:
    """squares/: images with one or two squares of two colours, their boxes, and the configuration of a detector."""
    names = (b"red", b"green")

    def example(number: int) -> dict[str, list]:
        pixels, count = rng.integers(0, 80, (_SIDE, _SIDE, 3)), int(rng.integers(1, 3))
        corners, labels = rng.integers(0, _SIDE - 60, (count, 2)), rng.integers(0, 2, count)
        for (top, left), label in zip(corners, labels):
            pixels[top:top + 60, left:left + 60, label] += 150
        low, high = corners / _SIDE, (corners + 60) / _SIDE
        return {"image/encoded": [tf.io.encode_jpeg(pixels.astype(np.uint8)).numpy()], "image/format": [b"jpeg"],
                "image/filename": [b"%d.jpg" % number], "image/source_id": [b"%d" % number],
                "image/height": [_SIDE], "image/width": [_SIDE],
                "image/object/bbox/ymin": low[:, 0].tolist(), "image/object/bbox/xmin": low[:, 1].tolist(),
                "image/object/bbox/ymax": high[:, 0].tolist(), "image/object/bbox/xmax": high[:, 1].tolist(),
                "image/object/class/text": [names[label] for label in labels],
                "image/object/class/label": (labels + 1).tolist()}

    for name, count in (("train", 16), ("eval", 4)):
        write_records(root / "squares" / f"{name}.record", (example(i) for i in range(count)))
    write_text(root / "squares" / "labels.pbtxt", "".join(
        f"item {{\n  id: {i}\n  name: '{name.decode()}'\n}}\n" for i, name in enumerate(names, 1)))
    write_text(root / "squares" / "pipeline.config", _PIPELINE)


def _reviews(root: pathlib.Path, rng: np.random.Generator) -> None:
    """uda/: a few reviews with labels, and more without, each beside its back translation."""
    def text() -> np.ndarray:
        return rng.integers(5, _WORDS, int(rng.integers(8, _TEXT)))

    def features(ids: np.ndarray, prefix: str = "") -> dict[str, list[int]]:
        rest = [0] * (_TEXT - len(ids))
        return {f"{prefix}input_ids": [*ids.tolist(), *rest], f"{prefix}input_mask": [*[1] * len(ids), *rest],
                f"{prefix}input_type_ids": [0] * _TEXT}

    def labelled() -> dict[str, list[int]]:
        ids = text()
        return {**features(ids), "label_ids": [int(ids[0] > _WORDS // 2)]}

    def translated() -> dict[str, list[int]]:
        ids = text()
        back = np.where(rng.random(len(ids)) < 0.2, rng.integers(5, _WORDS, len(ids)), ids)
        return {**features(ids, "ori_"), **features(back, "aug_")}

    write_records(root / "uda" / "train_20" / "tf_examples.tfrecord.0", (labelled() for _ in range(20)))
    write_records(root / "uda" / "unsup" / "bt-0.9" / "0" / "tf_examples.tfrecord.0",
                  (translated() for _ in range(300)))


def _pairs(root: pathlib.Path, rng: np.random.Generator) -> None:
    """stsb/: pairs of sentences and how alike they are; pieces of their words, and a tiny XLNet's configuration."""
    import sentencepiece  # noqa: PLC0415 (only this job needs it)

    folder, words = root / "stsb", [f"word{i}" for i in range(60)]
    rows = ["\t".join(["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1",
                       "sentence2", "score"])]
    sentences = []
    for i in range(200):
        first = rng.choice(words, 8)
        is_kept = rng.random(8) < rng.random()
        pair = [" ".join(first), " ".join(np.where(is_kept, first, rng.choice(words, 8)))]
        sentences += pair
        rows.append("\t".join([str(i), "news", "made-up", "2012", str(i), "none", "none", *pair,
                               f"{5 * is_kept.mean():.3f}"]))
    write_text(folder / "train.tsv", "\n".join(rows) + "\n")
    with open(folder / "spiece.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=file, vocab_size=_PIECES, hard_vocab_limit=False,
            control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"], num_threads=1,
            minloglevel=2)
    write_text(folder / "config.json", json.dumps({
        "d_head": 16, "d_inner": 64, "d_model": 32, "ff_activation": "gelu", "n_head": 2, "n_layer": 2,
        "n_token": _PIECES + 10, "untie_r": True}))


def _shows(root: pathlib.Path, rng: np.random.Generator) -> None:
    """ratings/: what a user likes and what a show has, as numbers, and the user's rating of it."""
    for name, count in (("train", 600), ("eval", 100)):
        values = rng.random((count, _RATINGS))
        values[:, -1] = 1 + 9 * values[:, :10].mean(1)
        (root / "ratings").mkdir(parents=True, exist_ok=True)
        np.savetxt(root / "ratings" / f"{name}.csv", values, "%.3f", ",")


def _protos(root: pathlib.Path) -> None:
    """protos/: the modules of the detector's messages; needs grpcio-tools."""
    clone = root.parent / _DETECTOR
    if importlib.util.find_spec("grpc_tools") is None or not clone.exists():
        return
    (root / "protos").mkdir(parents=True, exist_ok=True)
    files = [str(path.relative_to(clone)) for path in sorted((clone / _DETECTOR_PROTOS).glob("*.proto"))]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{clone}", f"--python_out={root / 'protos'}",
                    *files], check=True)  # in a process of its own: TensorFlow has another protobuf
