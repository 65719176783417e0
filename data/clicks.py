"""The dataset plug-in of synthetic clicks, drawn from a model that is known: no files, any number of ids.

Run with --dataset=data.clicks. `data.click_model.model` draws the examples: the logit of a click is a sum of a weight
of each id, of products of the vectors of some pairs of ids, and of weighted numbers. So the probability of each click
is known, and with it the best AUC and log loss that any model can reach on the evaluation split (`best_scores`), and
those of the best model without interactions. A factorisation machine can express the whole model.

It is for testing that embeddings learn, how fast, and what a fault costs. These are not real clicks: fields are
independent, nothing changes in time, only pairs interact, and ids follow a Zipf law. A result on it says nothing about
how models rank on real data.

How near a model comes to the best scores: fitting p numbers to n examples costs about p / (2 n) nats of log loss, and
an AUC of 0.002 is about 0.003 nats. With the usual 20 pairs drawn at random, a factorisation machine needs about 80
floats for each id, which no feasible n fits: at 3000 ids and 8 million examples it stays 0.013 below the best AUC. With
`group=26` all fields interact and 4 floats do. `vocab=1000,group=26` is for tests of how exactly a mode learns: DeepFM
comes within 0.002 in 6 million examples (docs/embeddings.md). To see whether a model learns at all, take any.

    python -m data.clicks --write=DIR --examples=1000000 --files=4    Criteo's format, for --dataset=data.criteo
    python -m data.clicks --write=DIR --form=tfrecord                 for --dataset=data.click_records
    python -m data.clicks                                             prints the best scores

The examples are drawn by numpy inside the worker's process, so it does not work with --existing_servers.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train
from ps_train.errors import ConfigError, DataError, PsTrainError
from ps_train.plugins.contracts import Dataset
from ps_train.plugins.params import resolve_params

from .click_model import scores, writing
from .click_model.model import ClickModel, Examples
from .criteo import NUM_CATEGORIES, NUM_NUMBERS
from .tabular.pipeline import EVAL_BATCH_SIZE, check_hash_buckets

DEFAULT_PARAMS: dict[str, Any] = {
    "vocab": 1_000_000,  # ids over all fields
    "fields": NUM_CATEGORIES,  # categories of an example
    "zipf": 1.1,  # exponent of the Zipf law of the ids of a field
    "pairs": 20,  # pairs of fields that interact
    "group": 0,  # this many fields interact, each with each, instead of the pairs; 0: the pairs
    "data_seed": 1,  # of the model and of all examples
    "num_examples": 0,  # of an epoch, the same in each; 0: new examples without end
    "eval_examples": 50_000,
    "hash_buckets": 0,  # ids are in [0, hash_buckets); 0: in [0, 2^63)
}

_CHUNK_EXAMPLES = 4096  # drawn at once
_FEW_CHUNKS = 64  # of an epoch, if it has enough examples: several workers have a share
_EVAL, _EPOCH, _STREAM = range(3)  # no two of them have an example in common


class BestScores(NamedTuple):
    """What is possible on the evaluation split.

    Attributes:
      auc, log_loss: of the true probabilities.
      linear_auc, linear_log_loss: of the closest sum of functions of a single field or number, without interactions;
        about what logistic regression can reach.
    """

    auc: float
    log_loss: float
    linear_auc: float
    linear_log_loss: float


def prepare(params: Mapping[str, Any]) -> None:
    """Checks the parameters; fetches no file.

    Raises:
      ConfigError: one is out of bounds.
    """
    check_hash_buckets(params)
    limits = {"vocab": (100, 2**32 - 1), "fields": (2, 1000), "pairs": (0, 10**4), "zipf": (0.01, 10.0),
              "num_examples": (0, 10**12), "eval_examples": (1, 10**8), "data_seed": (0, 2**62)}
    if params["group"] not in (0, *range(2, params["fields"] + 1)):
        raise ConfigError("parameter_out_of_range", f"--params: group={params['group']}; allowed: 0 for pairs drawn "
                          f"at random, or 2 to {params['fields']}, the fields")
    for name, (least, most) in limits.items():
        if not least <= params[name] <= most:
            raise ConfigError("parameter_out_of_range", f"--params: {name}={params[name]}; allowed: {least} to {most}")


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns examples as ({"numbers": float32 [batch, 13], "ids": int64 [batch, fields]}, labels float32 [batch]).

    Args:
      mode: "train" gives this worker's examples without end; any other mode those of the evaluation split once, in
        order.
      params: those above, `batch_size` and `seed`. The same seed gives the same examples in the same order; without
        one, an endless training has other examples in each run.
      shard: (index, count), the chunks whose number modulo the count is the index.

    Raises:
      ConfigError: a parameter is out of bounds.
      DataError: there are fewer chunks than workers.
    """
    prepare(params)
    source = _Source.of(mode, params)
    numbers = source.numbers(shard, params["seed"])
    training = mode == ps_train.TRAIN
    return ps_train.range_batches(
        numbers, _reading(source), params["batch_size"] if training else EVAL_BATCH_SIZE,
        shuffle=training, seed=params["seed"], marks=False)  # chunks are no ranges of files


class _Source(NamedTuple):
    """Where the examples of a mode come from: chunks, each drawn by its number.

    Attributes:
      kind: _EVAL, _EPOCH or _STREAM.
      sizes: examples in each chunk; of a stream, () as all are full.
      params: those of the dataset.
      model: draws them.
    """

    kind: int
    sizes: tuple[int, ...]
    params: Mapping[str, Any]
    model: ClickModel

    @classmethod
    def of(cls, mode: str, params: Mapping[str, Any]) -> _Source:
        num_examples = params["num_examples" if mode == ps_train.TRAIN else "eval_examples"]
        kind = _EVAL if mode != ps_train.TRAIN else _EPOCH if num_examples else _STREAM
        return cls(kind, chunk_sizes(num_examples), params, click_model(params))

    def numbers(self, shard: tuple[int, int], seed: int | None) -> tf.data.Dataset:
        """Returns the numbers of this worker's chunks, int64, in the order of reading."""
        index, count = shard
        if self.kind == _STREAM:
            start = 0 if seed is not None else int(np.random.default_rng().integers(2**40)) * count
            return tf.data.Dataset.range(start + index, 2**62, count)
        if self.kind != _EVAL and count > len(self.sizes):  # a share of an evaluation may be empty
            raise DataError("too_few_ranges", f"data.clicks: {len(self.sizes)} chunks of examples for {count} "
                            "workers, and each needs one; use fewer workers or more examples")
        numbers = tf.data.Dataset.range(index, len(self.sizes), count)
        if self.kind == _EVAL:
            return numbers
        return numbers.shuffle(len(self.sizes), seed=None if seed is None else seed + index).repeat()

    def draw(self, number: int, *, with_linear: bool = False) -> Examples:
        """Returns the examples of a chunk, always the same."""
        size = self.sizes[number] if self.sizes else _CHUNK_EXAMPLES
        own_seed = (self.params["seed"] or 0) if self.kind == _STREAM else 0
        rng = np.random.default_rng((self.params["data_seed"], self.kind, own_seed, number))
        drawn = self.model.draw(size, rng, with_linear=with_linear)
        buckets = self.params["hash_buckets"]
        return drawn._replace(ids=drawn.ids % buckets) if buckets else drawn

    def all_chunks(self, *, with_linear: bool = False) -> Iterator[Examples]:
        return (self.draw(number, with_linear=with_linear) for number in range(len(self.sizes)))


def _reading(source: _Source) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns the function that makes a dataset of one chunk of its number."""
    def draw(number: np.ndarray) -> tuple[np.ndarray, ...]:
        drawn = source.draw(int(number))
        return drawn.numbers, drawn.ids, drawn.labels

    @tf.autograph.experimental.do_not_convert
    def features_and_labels(number: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        numbers, ids, labels = tf.numpy_function(draw, [number], [tf.float32, tf.int64, tf.float32])
        features = {"numbers": tf.ensure_shape(numbers, [None, source.model.num_numbers]),
                    "ids": tf.ensure_shape(ids, [None, source.model.num_fields])}
        return features, tf.ensure_shape(labels, [None])

    return lambda number: tf.data.Dataset.from_tensors(number).map(features_and_labels)


def chunk_sizes(num_examples: int) -> tuple[int, ...]:
    """Returns the sizes of the chunks of an epoch: 4096 but for the last, and less if there are few examples."""
    size = min(_CHUNK_EXAMPLES, max(1, num_examples // _FEW_CHUNKS))
    full, rest = divmod(num_examples, size)
    return (*[size] * full, *([rest] if rest else []))


@functools.lru_cache(maxsize=4)
def _model(*values: Any) -> ClickModel:
    vocab, fields, zipf, pairs, seed, group = values
    return ClickModel(
        vocab=vocab, num_fields=fields, num_numbers=NUM_NUMBERS, zipf=zipf, pairs=pairs, seed=seed, group=group)


def click_model(params: Mapping[str, Any]) -> ClickModel:
    """Returns the model from which the examples are drawn."""
    return _model(*(params[name] for name in ("vocab", "fields", "zipf", "pairs", "data_seed", "group")))


def best_scores(params: Mapping[str, Any]) -> BestScores:
    """Returns the scores of the true probabilities on the evaluation split, computed from all of its examples."""
    chunks = list(_Source.of(ps_train.EVAL, params).all_chunks(with_linear=True))
    labels, logits, linear = (np.concatenate([getattr(chunk, name) for chunk in chunks])
                              for name in ("labels", "logits", "linear_logits"))
    return BestScores(scores.auc(logits, labels), scores.log_loss(logits, labels), scores.auc(linear, labels),
                      scores.log_loss(linear, labels))


def write(folder: str, params: Mapping[str, Any], *, num_files: int, form: str) -> list[str]:
    """Writes the `num_examples` of an epoch to `num_files` files and the evaluation split to one; returns the paths.

    Raises:
      ConfigError: Criteo's format has no such number of fields.
    """
    prepare(params)
    if form == writing.TSV and params["fields"] != NUM_CATEGORIES:
        raise ConfigError("parameter_out_of_range", f"--params: fields={params['fields']}; allowed: {NUM_CATEGORIES}, "
                          f"as in Criteo's format; or give --form={writing.TFRECORD}")
    train, held_out = (_Source.of(mode, params) for mode in (ps_train.TRAIN, ps_train.EVAL))
    return [*writing.write_split(folder, "train", form, num_files, train.all_chunks()),
            *writing.write_split(folder, "eval", form, 1, held_out.all_chunks())]


def main(argv: list[str]) -> None:
    """Writes files, or prints the best scores."""
    parser = argparse.ArgumentParser(prog="python -m data.clicks", description="Synthetic clicks.")
    parser.add_argument("--write", metavar="DIR", help="folder for the files; without it, print the best scores")
    parser.add_argument("--examples", type=int, default=1_000_000, help="training examples (default %(default)s)")
    parser.add_argument("--files", type=int, default=4, help="training files (default %(default)s)")
    parser.add_argument("--form", choices=(writing.TSV, writing.TFRECORD), default=writing.TSV)
    parser.add_argument("--params", default="", help="name=value,... as for ps_train")
    given = parser.parse_args(argv)
    if given.files < 1 or given.examples < 1:
        parser.error("--files and --examples: allowed: 1 or more")
    try:
        dataset = Dataset("data.clicks", input_fn, prepare, DEFAULT_PARAMS)
        params = {**resolve_params(given.params, [dataset], {"seed": 0})[0], "num_examples": given.examples}
        prepare(params)
        if given.write:
            print("\n".join(write(given.write, params, num_files=given.files, form=given.form)))
        for name, value in best_scores(params)._asdict().items():
            print(f"{name} {value:.4f}")
    except PsTrainError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
