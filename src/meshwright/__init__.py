"""Meshwright: the performance engineer's workbench for GPU clusters."""
