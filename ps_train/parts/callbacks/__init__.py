"""`--callbacks=module:make`: the user's functions, which the chief calls with what happens in the training.

Start with `part.py`; `thread.py` has what a user sees: `CallbackEvent` and `RunningTraining`. docs/callbacks.md is the
user's page, and the tests are in tests/unit/parts/callbacks, tests/cluster/parts/callbacks,
tests/cluster/test_recipes.py and tests/system/test_sweep.py.
"""
