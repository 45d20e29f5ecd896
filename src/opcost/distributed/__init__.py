"""Layouts of a model over many ranks, as data."""
