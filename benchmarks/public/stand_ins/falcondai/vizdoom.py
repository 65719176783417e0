"""Stands in for ViZDoom, which is imported but not played."""
