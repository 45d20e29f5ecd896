"""Checkpoints, read without their frameworks and without their weights: one file per format, each with a `READER`."""

MOST_TENSORS = 100_000
"""Of one file. The largest checkpoints have some 200,000 in a hundred files; a hostile one must not fill the memory."""
MOST_AXES = 32
LARGEST_EXTENT = (1 << 63) - 1
