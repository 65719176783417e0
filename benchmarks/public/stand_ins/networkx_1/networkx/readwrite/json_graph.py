"""Stands in for networkx.readwrite.json_graph: a link has the places of two nodes, as networkx 1 writes it."""

import networkx


def node_link_graph(data):
    """Returns the graph that `data` describes."""
    graph = networkx.Graph()
    names = [node["id"] for node in data["nodes"]]
    for node in data["nodes"]:
        graph.add_node(node["id"], **{key: value for key, value in node.items() if key != "id"})
    for link in data["links"]:
        graph.add_edge(names[link["source"]], names[link["target"]])
    return graph
