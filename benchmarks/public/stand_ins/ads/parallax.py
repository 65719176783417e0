"""Stands in for a package that a script imports and does not use."""
