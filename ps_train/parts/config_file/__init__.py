"""`--config=run.yaml` (or .toml, .json): flags in a file; `ps_train config` prints all, and where each comes from.

Start with `reading.py`; `verb.py` has `ps_train config`. docs/config_files.md is the user's page, and the tests are in
tests/unit/parts/config_file.
"""
