"""What a user writes, models and datasets, and how they are found and checked.

    --model, --dataset --> loader --> Model, Dataset (contracts)
    --params           --> params --> the `params` dict that each of them gets

Start with `contracts.py`. Nothing here imports TensorFlow.
"""
