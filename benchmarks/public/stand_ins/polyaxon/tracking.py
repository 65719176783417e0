"""What a script tells the service, which is not there."""


class Run:
    """An experiment that nobody keeps."""

    def log_data_ref(self, content, name):
        """Takes what the data is."""

    def log_metrics(self, step=None, **metrics):
        """Takes the metrics of a step."""
