"""contrib.learn's KMeansClustering: the Estimator's, with the methods and names that it had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.learn import Fitting

_KMEANS = tf.estimator.experimental.KMeans
_OLD = {_KMEANS.CLUSTER_INDEX: "cluster_idx", _KMEANS.ALL_DISTANCES: "all_scores"}  # prediction -> contrib.learn's name


class _Clusters(Fitting):
    """What contrib.learn had besides. No class that is derived from the Estimator may replace its `evaluate`."""

    takes_names = False
    SCORES, CLUSTER_IDX, CLUSTERS, ALL_SCORES = "scores", "cluster_idx", "clusters", "all_scores"

    def predictions(self, *args: Any, **kwargs: Any) -> Iterator[dict]:
        """Yields the predictions of each row, by contrib.learn's names."""
        for each in super().predictions(*args, **kwargs):
            yield {_OLD.get(name, name): value for name, value in each.items()}

    def predict_cluster_idx(self, input_fn: Callable | None = None) -> Iterator[int]:
        """Yields the number of each row's cluster."""
        return (each[self.CLUSTER_IDX] for each in self.predictions(input_fn=input_fn))

    def transform(self, input_fn: Callable | None = None, as_iterable: bool = False) -> Any:
        """Returns the distances of each row to all clusters, float [n, clusters], or yields them."""
        found = (each[self.ALL_SCORES] for each in self.predictions(input_fn=input_fn, is_one_batch=not as_iterable))
        return found if as_iterable else np.array(list(found))

    def evaluate(self, *args: Any, **kwargs: Any) -> dict:  # type: ignore[override]
        """Evaluates; `scores` is the sum of the distances to the nearest clusters."""
        found = super().evaluate(*args, **kwargs)
        return {**found, self.SCORES: found[_KMEANS.SCORE]}

    def score(self, input_fn: Callable | None = None, steps: int | None = None) -> float:  # type: ignore[override]
        """Returns the sum of the distances to the nearest clusters."""
        return float(self.evaluate(input_fn=input_fn, steps=steps)[self.SCORES])

    def clusters(self) -> np.ndarray:
        """Returns the centres of the clusters, float [clusters, dimension]."""
        return self.cluster_centers()  # type: ignore[attr-defined]


class LearnKMeansClustering(_Clusters, _KMEANS):
    """Clusters of rows, float [n, dimension]."""

    def __init__(self, num_clusters: int, model_dir: str | None = None, initial_clusters: Any = _KMEANS.RANDOM_INIT,
                 distance_metric: str = _KMEANS.SQUARED_EUCLIDEAN_DISTANCE, random_seed: int = 0,
                 use_mini_batch: bool = True, mini_batch_steps_per_iteration: int = 1,
                 kmeans_plus_plus_num_retries: int = 2, relative_tolerance: float | None = None,
                 config: Any = None) -> None:
        """Takes what the Estimator takes, and `random_seed` for its seed."""
        super().__init__(
            num_clusters, model_dir=model_dir, initial_clusters=initial_clusters, distance_metric=distance_metric,
            seed=random_seed, use_mini_batch=use_mini_batch,
            mini_batch_steps_per_iteration=mini_batch_steps_per_iteration,
            kmeans_plus_plus_num_retries=kmeans_plus_plus_num_retries, relative_tolerance=relative_tolerance,
            config=config)
