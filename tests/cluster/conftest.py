"""TensorFlow in the mode that a task uses, and its servers in this process."""

from __future__ import annotations

from tests.server_fixtures import renew_servers, start_servers, started

__all__ = ["renew_servers", "start_servers", "started"]
