"""Inputs for a model that was given none, from the model, its configuration and its library: tables of shapes, one engine."""
