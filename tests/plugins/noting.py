"""Callbacks that note their events in the train_dir, and then do what the parameter `callback` of the model says."""

import json
import pathlib

from tests.plugins import tiny
from tests.plugins.tiny import model_fn  # noqa: F401 it is a plug-in, too

DEFAULT_PARAMS = {**tiny.DEFAULT_PARAMS, "callback": "note", "at": "progress", "chief_batches": -1}


def input_fn(mode, params, shard):
    """That of tiny, of which the chief may have only so many batches."""
    dataset = tiny.input_fn(mode, params, shard)
    return dataset.take(params["chief_batches"]) if mode == "train" and shard[0] == 0 else dataset


def make(training):
    """Returns a callback that notes, raises or stops, at the events of the kind `at`, or of a task that did `at`."""
    action, at = training.params.get("callback"), training.params.get("at")
    path = pathlib.Path(training.train_dir, "events.jsonl")
    if action == "raise_at_once":
        raise ValueError("a fault in make")
    if action == "make_nothing":
        return None

    def note(event):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([event.kind, event.step, dict(event.values)]) + "\n")
        if at not in (event.kind, event.values.get("what")):
            return
        if action == "raise":
            raise ValueError(f"a fault in the callback at {at}")
        if action == "stop":
            training.stop(f"enough at {event.step}")

    return note


def callbacks(training):
    """The callbacks of this module as a model: none, if the flag names them."""
    return [] if "callbacks" in training.flags else [make(training)]


def takes_nothing():
    """Has the wrong signature."""
