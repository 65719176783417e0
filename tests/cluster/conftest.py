"""TensorFlow in the mode that a task uses, and its servers in this process."""

from __future__ import annotations

from tests.server_fixtures import start_servers

__all__ = ["start_servers"]
