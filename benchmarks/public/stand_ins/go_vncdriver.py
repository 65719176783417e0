"""Stands in for the driver of a remote screen: only imported."""
