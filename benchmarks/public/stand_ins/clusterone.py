"""Stands in for clusterone, which pins packages of Python 2: where its data and logs are outside of its cloud."""

import os


def get_data_path(dataset_name, local_root, local_repo, path):
    """Returns the folder of the data."""
    return os.path.join(os.path.abspath(local_root), local_repo, path.lstrip("/"))


def get_logs_path(root):
    """Returns the folder of the logs."""
    return root
