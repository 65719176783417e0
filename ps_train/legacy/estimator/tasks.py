"""Gives Estimator other servers and sessions, and an evaluator that ends when training is over.

    train_and_evaluate   ps, chief, worker --> Server --> MonitoredTrainingSession
                         evaluator         --> evaluates each new checkpoint, and always the last one
"""

from __future__ import annotations
def replace():
    pass
