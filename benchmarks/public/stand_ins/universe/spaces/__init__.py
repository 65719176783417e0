"""Only imported."""
