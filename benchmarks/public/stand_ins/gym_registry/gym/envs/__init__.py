"""Environments, and where scripts register their own."""
