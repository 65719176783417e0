"""What a script tells the service, which is not there, and what it learns of its cluster and of its folders."""

import json
import os


def get_data_paths():
    """Returns where the data sets are: nowhere."""
    return {}


def get_outputs_path():
    """Returns where the outputs go."""
    return "outputs"


class Experiment:
    """An experiment that nobody keeps."""

    def get_tf_config(self, envvar="TF_CONFIG"):
        """Returns the cluster, as the service describes it to a task."""
        return json.loads(os.environ.get(envvar, "{}"))

    def log_run_env(self):
        """Takes where the experiment runs."""
