"""Stands in for polyaxon_client, which talks to a service that keeps track of experiments."""
