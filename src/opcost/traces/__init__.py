"""Traces and profiles of other tools, read into one form: `opcost.core.profile.Profile`."""
