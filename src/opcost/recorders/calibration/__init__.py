"""Times single operators on the device at hand, as data for predicting the time of whole models."""
