"""Stands in for SciPy of 2017: the two functions that are used, of which one is no longer there."""
