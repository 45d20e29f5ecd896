"""The modules of a model and their calls, with what ran in each."""
