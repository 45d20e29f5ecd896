"""The operators of a model as its author called them, each with the recorded rows that it became."""
