"""Only imported."""

keycode = None
