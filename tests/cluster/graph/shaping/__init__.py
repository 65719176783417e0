"""Schedules, clipping, weight decay and optimizers of the user's, against a plain session."""
