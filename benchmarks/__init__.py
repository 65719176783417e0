"""Measurements of ps_train, each a tool of its own: `python -m benchmarks.TOOL --help`."""
