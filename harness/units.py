"""Durations and sizes as people write them in scenario files."""
