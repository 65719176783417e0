"""AUC and log loss of predicted probabilities, exactly, in numpy."""

from __future__ import annotations

import numpy as np


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the probability that a positive example has a higher score than a negative one; ties count half."""
    values, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    is_positive = labels > 0
    num_positive = int(is_positive.sum())
    rank_sum = mean_ranks[inverse[is_positive]].sum()
    pairs = num_positive * (len(values[inverse]) - num_positive)
    return float((rank_sum - num_positive * (num_positive + 1) / 2) / pairs)


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean of -log p(label), p = sigmoid(logit) for label 1."""
    return float(np.mean(np.logaddexp(0.0, np.where(labels > 0, -logits, logits))))
