"""Parts of a graph, whatever the update mode: where variables are, how they travel, what a plug-in adds.

    plugin_calls  the user's input_fn and model_fn        optimizers  --optimizer
    placement     which variable is on which ps           transfer    dense variables travel together
    nan_guard     stops what is not finite                simplify    fewer reads, constants where they are used

Start with `plugin_calls.py`.
"""
