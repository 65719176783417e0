"""Tools for those who work on ps_train."""
