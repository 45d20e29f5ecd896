"""What one operator takes on a device: cases of the sizes that models have, and their timing."""
