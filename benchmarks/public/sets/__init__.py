"""The sets of public jobs, NAME.json, and for some NAME.py, which makes the small data that they read."""
