"""The stores of a table on several ps in one graph, which a test uses by ids."""

from __future__ import annotations

import numpy as np

from ps_train.parts.tables.index import COUNTS
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.tables.store import Store
from ps_train.parts.tables.store_ops import StoreOps
from tests.cluster.parts.tables.owners import owners_of
from tests.tensorflow_mode import tf


class ShardedTable:
    """A table in a session; every `ps` is in this process unless a device is given."""

    def __init__(self, rule, num_ps=1, dim=2, name="items", device="", target="", **spec):
        """Makes the table; it has room for no rows until `reset`."""
        self.num_ps, self.dim = num_ps, dim
        self._is_dynamic = "num_rows" not in spec
        self._graph = tf.Graph()
        with self._graph.as_default():
            stores = [Store(TableSpec(name, dim, rule=rule, **spec), ps=ps, num_ps=num_ps, device=device)
                      for ps in range(num_ps)]
            self.width = stores[0].width
            self._ids = [tf.placeholder(tf.int64, [None]) for _ in stores]
            self._given = [tf.placeholder(tf.float32, [None, dim]) for _ in stores]
            self._updates = [store.update(ids, given) for store, ids, given in zip(stores, self._ids, self._given)]
            self._rows = [store.read(ids, with_slots=True) for store, ids in zip(stores, self._ids)]
            self._values = [store.read(ids) for store, ids in zip(stores, self._ids)]
            self._changes = [tf.placeholder(tf.float32, [None, self.width]) for _ in stores]
            self._merges = [store.merge(ids, own) for store, ids, own in zip(stores, self._ids, self._changes)]
            self.ops = [StoreOps(store) for store in stores]
        self.session = tf.Session(target, graph=self._graph)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session.close()

    def reset(self):
        """Empties it."""
        for ops in self.ops:
            ops.reset(self.session)
        return self

    def update(self, ids, gradients):
        """Updates the rows of ids, each named once, on every ps at once."""
        ids, gradients = np.asarray(ids, np.int64), np.asarray(gradients, np.float32)
        self.session.run(self._updates, self._feed(ids, self._given, gradients))

    def merge(self, ids, changes):
        """Adds changes of whole rows."""
        ids, changes = np.asarray(ids, np.int64), np.asarray(changes, np.float32)
        self.session.run(self._merges, self._feed(ids, self._changes, changes))

    def _feed(self, ids, placeholders, rows):
        feed, owners = {}, self._owners(ids)
        for ps, (placeholder, given) in enumerate(zip(self._ids, placeholders)):
            feed[placeholder], feed[given] = ids[owners == ps], rows[owners == ps]
        return feed

    def _owners(self, ids):
        return owners_of(ids, self.num_ps, is_dynamic=self._is_dynamic)

    def values(self, ids):
        """Returns float32 [n, dim]."""
        return self._read(self._values, ids, self.dim)

    def rows(self, ids):
        """Returns values and slots, float32 [n, width]."""
        return self._read(self._rows, ids, self.width)

    def _read(self, tensors, ids, width):
        ids = np.asarray(ids, np.int64)
        owners = self._owners(ids)
        parts = self.session.run(tensors, {own: ids[owners == ps] for ps, own in enumerate(self._ids)})
        found = np.zeros([len(ids), width], np.float32)
        for ps, part in enumerate(parts):
            found[owners == ps] = part
        return found

    def counts(self, ps=0):
        """Returns the counts of one ps by name."""
        return dict(zip(COUNTS, map(int, self.session.run(self.ops[ps].counts))))

    def drop_before(self, oldest):
        """Drops the rows that were last touched before update `oldest`."""
        for ps, ops in enumerate(self.ops):
            ops.drop(self.session, oldest, self.counts(ps)["used"])
