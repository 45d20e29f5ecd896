"""Inputs for a model that was given none, from what the model and its library say of themselves: one file per family."""
