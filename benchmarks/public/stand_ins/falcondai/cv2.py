"""Stands in for OpenCV, which is imported but not used for a pole; only names that defaults of arguments need."""

INTER_NEAREST, INTER_LINEAR, INTER_AREA = 0, 1, 3
