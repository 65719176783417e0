"""Stands in for universe: environments in lists of one, and filters of what they return."""


def configure_logging():
    """There is nothing to configure."""
