"""Plug-ins: the models and datasets that a user writes. How does ps_train find, check and configure them?

    --model, --dataset --> loader --> Model, Dataset
    --params           --> params --> the `params` dict of each plug-in

Start with `contracts.py`. Nothing here imports TensorFlow.

    contracts  the functions and values of a plug-in: ModelSpec, Model, Dataset, the modes
    loader     finds the module of a plug-in, in the working directory, in ps_train or elsewhere; checks its functions
    params     reads --params and merges it with the plug-ins' DEFAULT_PARAMS
"""
