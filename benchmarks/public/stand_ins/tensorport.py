"""Stands in for tensorport, which is no longer offered: where its data and logs are outside of its cloud."""

import os


def get_data_path(dataset_name, local_root, local_repo="", path=""):
    """Returns the folder of the data."""
    del dataset_name
    return os.path.join(os.path.abspath(local_root), local_repo, path.lstrip("/"))


def get_logs_path(root):
    """Returns the folder of the logs."""
    return root
