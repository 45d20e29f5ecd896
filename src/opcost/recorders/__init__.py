"""Run a model and measure it: one recorder per runtime, each handing over a `Profile`."""
