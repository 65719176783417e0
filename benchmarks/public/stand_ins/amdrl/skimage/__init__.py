"""Stands in for scikit-image."""
