"""The script imports them only."""
