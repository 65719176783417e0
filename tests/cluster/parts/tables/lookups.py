"""Models with embedding tables of any number of ps, all in one process."""

from __future__ import annotations

from ps_train.parts.tables import connection, registry
from ps_train.parts.tables.rules import Sgd
from ps_train.parts.tables.table_files import TableFiles
from tests.tensorflow_mode import tf

_RULE = Sgd(1.0)


class Model:
    """A model's lookups in a graph of one process that stands for so many ps, with a session."""

    def __init__(self, build, num_ps=1, sorts_ids=False, rule=_RULE, local_device="", wire_dtype=None):
        """Calls `build`, which returns the scalar loss, and connects its lookups."""
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.registry = registry.install_registry([""] * num_ps, rule, wire_dtype=wire_dtype)
            self.registry.begin_build()
            self.loss = build()
            self.connected = connection.connect_lookups(sorts_ids=sorts_ids)
            names = list(self.connected.pulled)
            found = tf.gradients(self.loss, list(self.connected.pulled.values()))
            pairs = self.connected.push(self.connected.gradients_by_id(dict(zip(names, found))))
            stores = {store.rows.ref(): store for store in self.registry.all_stores()}
            self.gradients = [gradient for gradient, _ in pairs]
            self.train_op = tf.group(
                *(stores[rows.ref()].update(one.indices, one.values) for one, rows in pairs))
            self.tables = TableFiles(self.registry, local_device)
        self.session = tf.Session(graph=self.graph)
        self.tables.reset(self.session)

    def __enter__(self):
        return self.session

    def __exit__(self, *_):
        self.session.close()
