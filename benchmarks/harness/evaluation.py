"""The accuracy of recorded parameters on the test set: after the runs, for all peers by the same code.

A run's folder gets `curve.json`, a list of [secs, batches, accuracy or null]; the parameters are then removed.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.harness import examples, plug_in
from benchmarks.harness.measures import Point
from benchmarks.harness.recording import Parameters, Recording
from ps_train import EVAL
from ps_train.runtime import installed

TARGET_ACCURACY = 0.97
_EVERY_AFTERWARDS = 5  # samples after the target are for the plot only


def complete(folders: Sequence[pathlib.Path]) -> None:
    """Gives each run that has none its curve."""
    missing = [folder for folder in folders if not (folder / "curve.json").exists()]
    evaluators: dict[str, Evaluator] = {}
    for folder in missing:
        setting = json.loads((folder / "run.json").read_text(encoding="utf-8"))["setting"]
        key = json.dumps([setting[name] for name in ("data_dir", "model", "params")])
        if setting["has_accuracy"] and key not in evaluators:
            evaluators[key] = Evaluator(setting["data_dir"], setting["model"], setting["params"])
        curve = curve_of(Recording(str(folder)), evaluators.get(key))
        (folder / "curve.json").write_text(json.dumps(curve), encoding="utf-8")
        (folder / "parameters.f32").unlink()


def read_curve(folder: pathlib.Path) -> list[Point]:
    """Returns what `complete` wrote."""
    return [Point(*point) for point in json.loads((folder / "curve.json").read_text(encoding="utf-8"))]


def curve_of(recording: Recording, evaluator: Evaluator | None) -> list[Point]:
    """Returns a point for each sample: evaluated up to the target accuracy, and then now and then and at the end."""
    is_reached = False
    accuracies: list[float | None] = [None] * len(recording.times)
    if evaluator is not None:
        for index, parameters in enumerate(recording.snapshots()):
            if not is_reached or index % _EVERY_AFTERWARDS == 0 or index == len(accuracies) - 1:
                accuracies[index] = accuracy = evaluator.accuracy(parameters)
                is_reached = is_reached or accuracy >= TARGET_ACCURACY
    first_secs = recording.times[0]
    return [Point(secs - first_secs, batches, accuracy)
            for secs, batches, accuracy in zip(recording.times, recording.batches, accuracies)]


class Evaluator:
    """A model on the test set of a dataset."""

    def __init__(self, data_dir: str, model: str, params: str) -> None:
        """Builds the graph; TensorFlow is imported here, when no run is going on any more."""
        installed.import_tensorflow_quietly()
        import tensorflow.compat.v1 as tf  # noqa: PLC0415 (a runner that still starts tasks has no use for it)

        tf.disable_v2_behavior()
        tf.enable_resource_variables()  # the mode of ps_train, which tests in this process go on in
        test = examples.load(data_dir).test
        self._images, self._labels = examples.scaled(test.images), test.labels
        with tf.Graph().as_default() as graph:
            self._features = tf.placeholder(tf.float32, [None, self._images.shape[1]])
            labels = tf.placeholder(tf.int32, [None])
            spec = plug_in.load(model, params).build(self._features, labels, EVAL)
            self._classes = spec.predictions["classes"]
            self._variables = {variable.op.name: variable for variable in tf.trainable_variables()}
            self._session = tf.Session(graph=graph)
            self._session.run(tf.global_variables_initializer())

    def accuracy(self, parameters: Parameters) -> float:
        """Returns the share of test examples that the model with these parameters is right on."""
        self._load(parameters)
        right = 0
        for start in range(0, len(self._labels), 1000):
            rows = slice(start, start + 1000)
            classes = self._session.run(self._classes, {self._features: self._images[rows]})
            right += int(np.sum(classes == self._labels[rows]))
        return right / len(self._labels)

    def accuracy_of_checkpoint(self, train_dir: str) -> float:
        """Returns the same for the parameters in the newest checkpoint of a folder."""
        import tensorflow as tf  # noqa: PLC0415 (it is there already, see above)

        reader = tf.train.load_checkpoint(train_dir)
        return self.accuracy({name: reader.get_tensor(name) for name in self._variables})

    def _load(self, parameters: Mapping[str, np.ndarray]) -> None:
        if parameters.keys() != self._variables.keys():
            raise ValueError(f"recorded are {sorted(parameters)}, and the model has {sorted(self._variables)}")
        for name, variable in self._variables.items():
            variable.load(parameters[name], self._session)
