"""Stands in for networkx 1.11, which imports no longer: an undirected graph whose methods return lists."""

__version__ = "1.11"


class Graph:
    """Nodes and edges, each with a dict of attributes."""

    def __init__(self):
        self.node, self._adjacent = {}, {}

    def add_node(self, name, **attributes):
        self.node.setdefault(name, {}).update(attributes)
        self._adjacent.setdefault(name, {})

    def add_edge(self, one, other, **attributes):
        self.add_node(one)
        self.add_node(other)
        attributes = {**self._adjacent[one].get(other, {}), **attributes}
        self._adjacent[one][other] = self._adjacent[other][one] = attributes

    def remove_node(self, name):
        for other in self._adjacent.pop(name):
            self._adjacent.get(other, {}).pop(name, None)
        del self.node[name]

    def nodes(self):
        return list(self.node)

    def edges(self):
        seen = set()
        for one, others in self._adjacent.items():
            seen.update((one, other) for other in others if (other, one) not in seen)
        return list(seen)

    def neighbors(self, name):
        return list(self._adjacent[name])

    def degree(self, name):
        return len(self._adjacent[name])

    def __getitem__(self, name):
        return self._adjacent[name]

    def __len__(self):
        return len(self.node)
