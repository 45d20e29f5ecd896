"""Checkpoints, read without their frameworks and without their weights: one file per format, each with a `READER`."""
