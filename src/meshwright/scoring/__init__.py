"""Scoring: how wrong predictions are and how often intervals hold. Pure functions of arrays."""
