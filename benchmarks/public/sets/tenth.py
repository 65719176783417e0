"""Small data sets for the jobs of `tenth.json`: all drawn with a fixed seed.

What a module before this one made in the same folder is used again: MNIST and CIFAR-10. Two jobs need what protoc
makes of their repository's protos: that is in protos/ if their clones are beside the folder.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
from collections.abc import Sequence

import h5py
import numpy as np
import tensorflow as tf

from benchmarks.public.data import write_records, write_text

_TOKENS = 64  # of an article of Grover
_PIECE = 32  # tokens of a text for ALBERT, TAPAS and LaserTagger
_MASKED = 4
_WORDS = 100
_TAGS = ("KEEP", "DELETE", *(f"{tag}|{phrase}" for tag in ("KEEP", "DELETE") for phrase in (".", ",", "and", "the")))
_CLASSES = 4716  # of YouTube-8M in 2017
_PROTOS = {"alibaba/EasyRec": "easy_rec/python/protos", "google-research/tapas": "tapas/protos"}
_IMAGE, _GRID, _CHANNELS = (768, 1152), 48, 4  # of the climate; its weather is the same on squares of this size
_RELATIONS = ("nsubj", "dobj", "det", "amod")
_CTR_CLUSTER = {"ps": ["localhost:22220"], "chief": ["localhost:22221"], "worker": ["localhost:22222"]}
_SUMMARIES = {  # what the dialogue model's file of settings says, beside its paths
    "adagrad_init_acc": 0.01, "optimizer": "adam", "adam_lr": 0.0004, "lr": 0.015, "use_learning_rate_halving": False,
    "learning_rate_change_after": 8, "learning_rate_change_interval": 2, "gpu_device_id": "0", "batch_size": 8,
    "use_regularizer": False, "beta_l2": 1e-5, "max_grad_norm": 2.0, "rand_unif_init_mag": 0.02,
    "trunc_norm_init_std": 1e-4, "max_to_keep": 3, "save_model_secs": 60, "use_save_at": False, "save_steps": 10,
    "use_stop_after": True, "stop_steps": 20, "tf_example_format": True, "min_dec_steps": 3, "max_dec_steps": 12,
    "max_enc_steps": 40, "max_query_steps": 12, "exp_name": "holle", "vocab_size": 300, "emb_dim": 16,
    "emb_trainable": True, "use_glove": False, "glove_path": "none", "use_elmo": False, "elmo_embedding_layer": "elmo",
    "elmo_trainable": True, "use_query_elmo": False, "use_elmo_glove": False, "use_bert": False,
    "bert_embedding_layer": "none", "use_query_bert": False, "bert_trainable": False, "bert_path": "none",
    "bert_vocab_file_path": "none", "encoder_lstm_layers": 1, "hidden_dim": 16, "lstm_dropout": 0.7,
    "lstm_type": "basic", "no_lstm_encoder": False, "use_gru": False, "use_lstm": True, "query_encoder": True,
    "query_encoder_lstm_layers": 1, "no_lstm_query_encoder": False, "use_gcn_before_lstm": False,
    "use_gcn_lstm_parallel": False, "use_label_information": True, "concat_gcn_lstm": False,
    "concat_with_word_embedding": True, "word_gcn": False, "word_gcn_dim": 16, "word_gcn_dropout": 1.0,
    "word_gcn_edge_dropout": 1.0, "word_gcn_fusion": False, "word_gcn_gating": True, "word_gcn_layers": 2,
    "word_gcn_skip": True, "query_gcn": False, "query_gcn_dim": 16, "query_gcn_dropout": 1.0,
    "query_gcn_edge_dropout": 1.0, "query_gcn_fusion": False, "query_gcn_gating": True, "query_gcn_layers": 1,
    "query_gcn_skip": True, "use_coref_graph": False, "use_default_graph": True, "use_entity_graph": False,
    "use_lexical_graph": False, "flow_alone": False, "flow_combined": False, "beam_size": 4, "pointer_gen": True,
}


def make(folder: str, mnist: str) -> None:
    """Makes all data sets in a folder."""
    del mnist
    root, rng = pathlib.Path(folder), np.random.default_rng(0)
    for make_one in (_articles, _videos, _advertisements, _replies, _avazu, _edits, _digits, _nodes, _pieces, _tables,
                     _games, _climate):
        make_one(root, rng)
    _weights(root)
    _protos(root)


def _articles(root: pathlib.Path, rng: np.random.Generator) -> None:
    """grover/: articles as ids, each with one more than the model reads, and a small model's configuration."""
    write_text(root / "grover" / "tiny.json", json.dumps({
        "vocab_size": 300, "hidden_size": 32, "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1,
        "hidden_act": "gelu", "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": _TOKENS,
        "num_attention_heads": 2, "num_hidden_layers": 2}))
    for part in range(2):
        write_records(root / "grover" / f"train{part:04}.tfrecord", (
            {"input_ids": ((np.arange(_TOKENS + 1) * int(rng.integers(1, 9))) % 300).tolist()} for _ in range(200)))


def _videos(root: pathlib.Path, rng: np.random.Generator) -> None:
    """videos/: 20 to 40 frames, each as 1024 and 128 bytes, with one to three labels, as in the first challenge."""
    def example() -> bytes:
        frames, labels = int(rng.integers(20, 40)), rng.integers(0, _CLASSES, int(rng.integers(1, 4)))
        return tf.train.SequenceExample(
            context=tf.train.Features(feature={
                "video_id": _bytes(b"clip"), "labels": tf.train.Feature(int64_list=tf.train.Int64List(value=labels))}),
            feature_lists=tf.train.FeatureLists(feature_list={
                name: tf.train.FeatureList(feature=[_bytes(rng.bytes(size)) for _ in range(frames)])
                for name, size in (("rgb", 1024), ("audio", 128))})).SerializeToString()

    (root / "videos").mkdir(parents=True, exist_ok=True)
    for part in range(2):
        with tf.io.TFRecordWriter(str(root / "videos" / f"train{part:04}.tfrecord")) as writer:
            for _ in range(64):
                writer.write(example())


def _bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _advertisements(root: pathlib.Path, rng: np.random.Generator) -> None:
    """ctr/: for each task of a cluster the configuration that it reads, with fewer and smaller columns.

    JSON is YAML as well; the clicks themselves are in the job's repository.
    """
    del rng
    features: dict[str, dict] = {
        **{name: {"type": "category", "transform": "hash_bucket", "parameter": size} for name, size in (
            ("adplan_id", 1000), ("idea_id", 2000), ("city_id", 1000), ("category", 500), ("u", 10000),
            ("user_cates", 1000), ("ucomp", 1000))},
        "network": {"type": "category", "transform": "vocab", "parameter": [0, 1, 2, 3, 4]},
        "idea_type": {"type": "category", "transform": "identity", "parameter": 15},
        "ugender": {"type": "category", "transform": "vocab", "parameter": ["male", "female"]},
        "age": {"type": "continuous", "transform": "min_max", "parameter": {
            "normalization": [10, 90], "boundaries": [20, 30, 40, 50, 60]}},
    }
    crosses = {"adplan_id&category": {"hash_bucket_size": 1, "is_deep": 1},
               "age&ugender": {"hash_bucket_size": 1, "is_deep": 1}}
    model = {
        "linear_optimizer": "tf.train.FtrlOptimizer(learning_rate=0.1,l1_regularization_strength=0.5,"
                            "l2_regularization_strength=1)",
        "linear_initial_learning_rate": 0.05, "linear_decay_rate": 0.8, "dnn_hidden_units": [64, 32],
        "dnn_connected_mode": "simple", "dnn_optimizer": "Adagrad", "dnn_initial_learning_rate": 0.05,
        "dnn_decay_rate": 0.8, "dnn_activation_function": "relu", "dnn_l1": 0.1, "dnn_l2": 0.1, "dnn_dropout": None,
        "dnn_batch_normalization": 1, "cnn_use_flag": 0, "cnn_optimizer": "Adagrad",
        "cnn_initial_learning_rate": 0.05, "cnn_decay_rate": 0.8}
    train = {
        "model_dir": "../model", "model_type": "wide_deep", "train_data": "../data/train",
        "eval_data": "../data/eval", "test_data": "../data/test", "image_train_data": None, "image_eval_data": None,
        "image_test_data": None, "dynamic_train": True, "train_epochs": 1, "epochs_per_eval": 1, "batch_size": 256,
        "keep_train": 0, "checkpoint_path": None, "pos_sample_loss_weight": None, "neg_sample_loss_weight": None,
        "multivalue": 1, "num_examples": 10000, "num_parallel_calls": None}
    runs = {"tf_random_seed": 123, "save_summary_steps": 1000, "save_checkpoints_steps": None,
            "save_checkpoints_secs": 1800, "keep_checkpoint_max": 5, "keep_checkpoint_every_n_hours": 1,
            "log_step_count_steps": 5}
    for job in _CTR_CLUSTER:
        task = {"is_distribution": 1, "cluster": _CTR_CLUSTER, "job_name": job, "task_index": 0}
        for name, value in (("feature", features), ("cross_feature", crosses), ("model", model),
                            ("train", {"train": train, "distribution": task, "runconfig": runs})):
            write_text(root / "ctr" / job / f"{name}.yaml", json.dumps(value))


def _replies(root: pathlib.Path, rng: np.random.Generator) -> None:
    """holle/: what is known of a film, what was said last, and the reply, which copies some of it; the settings."""
    folder, words = root / "holle", [f"word{i}" for i in range(250)]

    def example() -> bytes:
        article = rng.choice([*words, "unheard"], int(rng.integers(20, 40)))
        reply, query = article[2:10], rng.choice(words, int(rng.integers(4, 12)))
        edges = [(i, i + 1, str(rng.choice(_RELATIONS))) for i in range(len(article) - 1)]
        values = {"article": " ".join(article), "abstract": f"<s> {' '.join(reply)} </s>", "query": " ".join(query),
                  "word_edge_list": str(edges)}
        return tf.train.Example(features=tf.train.Features(feature={
            name: _bytes(value.encode()) for name, value in values.items()})).SerializeToString()

    write_text(folder / "vocab", "".join(f"{word} {250 - i}\n" for i, word in enumerate(words)))
    for part in range(2):
        examples = [example() for _ in range(100)]
        (folder / f"train_{part:03}.bin").write_bytes(b"".join(
            struct.pack("q", len(one)) + one for one in examples))
    paths = {"log_root": "logs", "vocab_path": "holle/vocab",
             **{f"{name}_path": f"holle/{name}_*.bin" for name in ("train", "dev", "test")}}
    write_text(folder / "config.yaml", json.dumps({**_SUMMARIES, **paths}))


def _avazu(root: pathlib.Path, rng: np.random.Generator) -> None:
    """avazu/: clicks in the 23 columns of EasyRec's samples, without a header."""
    for name, count in (("train", 4000), ("eval", 400)):
        rows = []
        for _ in range(count):
            place = int(rng.integers(0, 7))
            label = int(rng.random() < (0.6 if place == 1 else 0.1))
            words = [f"{i:08x}" for i in rng.integers(0, 200, 9)]
            rows.append(",".join(map(str, [
                label, int(rng.integers(0, 24)), int(rng.integers(1000, 1016)), place, *words,
                *(int(i) for i in rng.integers(0, 5, 2)), *(int(i) for i in rng.integers(0, 400, 5)),
                int(rng.integers(0, 200)), int(rng.integers(100, 1500)), int(rng.integers(1, 26))])))
        write_text(root / "avazu" / f"{name}.csv", "\n".join(rows) + "\n")


def _edits(root: pathlib.Path, rng: np.random.Generator) -> None:
    """lasertagger/: texts as ids, a tag for each; the tags, and a small model with a decoder."""
    folder = root / "lasertagger"
    write_text(folder / "label_map.txt", "\n".join(_TAGS) + "\n")
    write_text(folder / "config.json", json.dumps({
        **_bert_config(), "type_vocab_size": 2, "use_t2t_decoder": True, "decoder_num_hidden_layers": 1,
        "decoder_hidden_size": 32, "decoder_num_attention_heads": 2, "decoder_filter_size": 64,
        "use_full_attention": False}))

    def example() -> dict[str, Sequence[int]]:
        length = int(rng.integers(10, _PIECE))
        ids = rng.integers(5, _WORDS, length)
        return {"input_ids": _filled(ids), "input_mask": _filled(np.ones(length, int)),
                "segment_ids": [0] * _PIECE, "labels": _filled(ids % len(_TAGS)),
                "labels_mask": _filled(np.ones(length, int))}

    write_records(folder / "train.tf_record", (example() for _ in range(320)))


def _bert_config() -> dict[str, object]:
    return {"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 32,
            "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": 64,
            "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": _WORDS}


def _filled(ids: np.ndarray) -> list[int]:
    return [*ids.tolist(), *[0] * (_PIECE - len(ids))]


def _digits(root: pathlib.Path, rng: np.random.Generator) -> None:
    """mnist_strings/: images and labels, both as bytes."""
    del rng
    arrays = np.load(root / "mnist.npz")
    for name, part, begin, end in (("train", "train", 0, 5000), ("eval", "train", 5000, 5500),
                                   ("test", "test", 0, 500)):
        write_records(root / "mnist_strings" / f"{name}.tfrecord", (
            {"image": [image.tobytes()], "label": [label.astype(np.uint8).tobytes()]}
            for image, label in zip(arrays[f"x_{part}"][begin:end], arrays[f"y_{part}"][begin:end])))


def _nodes(root: pathlib.Path, rng: np.random.Generator) -> None:
    """nodes/node_list.txt: the numbers of three machines of a Slurm job, as its own program writes them."""
    del rng
    write_text(root / "nodes" / "node_list.txt", "10\n11\n12\n")


def _pieces(root: pathlib.Path, rng: np.random.Generator) -> None:
    """albert/: two pieces of a text, some tokens masked, and whether they are in order; a small model."""
    write_text(root / "albert" / "config.json", json.dumps({
        **_bert_config(), "attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "embedding_size": 16,
        "num_hidden_groups": 1, "inner_group_num": 1, "type_vocab_size": 2}))
    write_records(root / "albert" / "train.tfrecord", (_masked(rng) for _ in range(400)))


def _masked(rng: np.random.Generator) -> dict[str, list]:
    """Returns the features of a text of which a few tokens are masked."""
    ids = (int(rng.integers(5, _WORDS)) + np.arange(_PIECE)) % (_WORDS - 5) + 5
    places = np.sort(rng.choice(_PIECE, _MASKED, replace=False))
    shown = ids.copy()
    shown[places] = 4
    return {"input_ids": shown.tolist(), "input_mask": [1] * _PIECE,
            "segment_ids": [int(i >= _PIECE // 2) for i in range(_PIECE)], "masked_lm_positions": places.tolist(),
            "masked_lm_ids": ids[places].tolist(), "masked_lm_weights": [1.0] * _MASKED,
            "next_sentence_labels": [int(rng.integers(2))]}


def _tables(root: pathlib.Path, rng: np.random.Generator) -> None:
    """tapas/: the same beside a table of four columns, by their rows and columns; a small model."""
    write_text(root / "tapas" / "bert_config.json", json.dumps({
        **_bert_config(), "type_vocab_size": [3, 256, 256, 2, 256, 256, 10]}))
    is_cell = np.arange(_PIECE) >= _PIECE // 2
    columns, rows = np.arange(_PIECE) % 4 + 1, np.arange(_PIECE) // 4 + 1
    write_records(root / "tapas" / "train.tfrecord", (
        {**_masked(rng), "column_ids": (columns * is_cell).tolist(), "row_ids": (rows * is_cell).tolist()}
        for _ in range(400)))


def _games(root: pathlib.Path, rng: np.random.Generator) -> None:
    """impala/config.json: the settings of a learner with two actors, and smaller ones than those of 20."""
    del rng
    write_text(root / "impala" / "config.json", json.dumps({"impala": {
        "server_ip": "localhost", "server_port": 22220, "num_actors": 2, "env": ["BreakoutDeterministic-v4"] * 2,
        "available_action": [6, 6], "batch_size": 4, "queue_size": 32, "discount_factor": 0.99,
        "model_input": [84, 84, 4], "model_output": 6, "reward_clipping": "abs_one", "trajectory": 10,
        "lstm_size": 64, "start_learning_rate": 0.0006, "end_learning_rate": 0.0, "learning_frame": 1000000,
        "entropy_coef": 0.05, "baseline_loss_coef": 1.0, "gradient_clip_norm": 40.0}}))


def _climate(root: pathlib.Path, rng: np.random.Generator) -> None:
    """climate/: weather and its classes on the grid of the simulations, four channels of it, and their statistics."""
    for part, count in (("train", 4), ("validation", 2)):
        folder = root / "climate" / part
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            labels = _squares(rng.choice(3, [side // _GRID for side in _IMAGE], p=[0.8, 0.1, 0.1]))
            weather = np.stack([_squares(rng.normal(size=[side // _GRID for side in _IMAGE])) + labels
                                for _ in range(_CHANNELS)])
            with h5py.File(folder / f"data-{i}.h5", "w") as file:
                file.create_dataset("climate/data", data=weather.astype(np.float32), compression="gzip")
                file.create_dataset("climate/labels", data=labels.astype(np.float32), compression="gzip")
        with h5py.File(folder / "stats.h5", "w") as file:  # mean, maximum, minimum, deviation
            file["climate/stats"] = np.tile(np.array([0.3, 6.0, -5.0, 1.2], np.float32), (_CHANNELS, 1))


def _squares(values: np.ndarray) -> np.ndarray:
    return values.repeat(_GRID, 0).repeat(_GRID, 1)


def _weights(root: pathlib.Path) -> None:
    """resnet50/: a ResNet-50 for CIFAR-10, which the job's tasks would all write where there is none; needs Keras 2."""
    import tf_keras  # noqa: PLC0415 (only this job needs it)

    (root / "resnet50").mkdir(parents=True, exist_ok=True)
    tf_keras.utils.set_random_seed(0)
    model = tf_keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=10)
    model.save_weights(str(root / "resnet50" / "my_model_weights.h5"))


def _protos(root: pathlib.Path) -> None:
    """protos/: the modules of the repositories' messages; needs grpcio-tools."""
    if importlib.util.find_spec("grpc_tools") is None:
        return
    (root / "protos").mkdir(parents=True, exist_ok=True)
    for repository, folder in _PROTOS.items():
        clone = root.parent / repository
        files = [str(path.relative_to(clone)) for path in sorted((clone / folder).glob("*.proto"))]
        if files:  # in a process of its own: TensorFlow has another protobuf
            subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{clone}", f"--python_out={root / 'protos'}",
                            *files], check=True)
