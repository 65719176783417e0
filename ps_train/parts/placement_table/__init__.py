"""`--log_placement`: which variable is on which ps, and how large it is. `part.py` has it all, but the flag.

The user's page is docs/update-modes.md.
"""
