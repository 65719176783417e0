"""Stands in for networkx.readwrite."""
