"""Stands in for polyaxon, a service that keeps track of experiments."""
