"""Stands in for PIL's top-level module, which Pillow has as `PIL.Image` only."""

from PIL.Image import fromarray, open  # noqa: A004, F401 (the script calls it by this name)
