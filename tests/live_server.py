"""A live model in Python, with the signatures by which pushes reach it; it begins with the model in the folder."""

from __future__ import annotations

import numpy as np

from ps_train.parts.live import pushes
from tests.push_reader import PushReader


class LiveServer:
    """What a server of a live model has; `call` answers as its signatures do.

    Attributes:
      tables: name of a table -> id -> row, a list of floats.
      dense: the bytes of all dense variables.
      number: of the last push; 0 before a model is loaded.
      num_loads: how often a model was loaded.
    """

    def __init__(self, folder):
        """Has no model yet."""
        self.folder, self.number, self.training, self.num_loads = str(folder), 0, "", 0
        self.tables, self.dense, self.commits = {}, b"", []

    def load_if_needed(self):
        """Loads the newest model of the folder, without pushes, if the pushes since its own do not reach back."""
        current = pushes.read_current(self.folder)
        if current is None or (current.training == self.training and self.number >= current.model_number):
            return
        try:
            reader = PushReader(self.folder).load(current)
        except OSError:  # a newer one has replaced it
            return
        self.tables, self.dense = reader.tables, reader.dense
        self.number, self.training, self.num_loads = reader.number, reader.training, self.num_loads + 1

    def call(self, signature, inputs):
        """Answers one call."""
        if signature == "live_status":
            return {"number": np.int64(self.number), "training": np.array(self.training.encode(), object)}
        if signature == "live_commit":
            if inputs["previous"] != self.number:
                raise ValueError(f"the number is {self.number}, not {inputs['previous']}")
            self.number, self.dense = int(inputs["number"]), inputs["dense"].tobytes()
            self.commits.append(self.number)
            return {"number": np.int64(self.number)}
        name = signature.removeprefix("live_rows/")
        if inputs["number"] != self.number + 1:
            raise ValueError(f"the number is {self.number}, so push {inputs['number']} cannot come")
        table = self.tables.setdefault(name, {})
        table.update(zip(inputs["ids"].tolist(), inputs["rows"].tolist()))
        for key in inputs["dropped"].tolist():
            table.pop(key, None)
        return {"used": np.int64(len(table)), "capacity": np.int64(2 * len(table))}
