"""A copy of a model as one rank of a mesh has it, without the other ranks and without data."""
