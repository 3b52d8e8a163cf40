"""Timelines: one step replayed task by task, and its picture for Perfetto."""
