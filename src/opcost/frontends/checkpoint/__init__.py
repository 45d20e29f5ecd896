"""Checkpoints, read without their frameworks and without their weights: one file per format, each with a `READER`."""

MOST_TENSORS = 100_000
"""Of one file. The largest checkpoints have some 200,000 in a hundred files; a hostile one must not fill the memory."""
MOST_AXES = 32
LARGEST_EXTENT = (1 << 63) - 1


def is_possible(shape: object) -> bool:
    """Whether this is a shape that a tensor can have."""
    if not isinstance(shape, tuple) or len(shape) > MOST_AXES:
        return False
    return all(type(extent) is int and 0 <= extent <= LARGEST_EXTENT for extent in shape)
