"""The version of opcost: said here alone, so that the parts that tell it need not import the package's public modules."""

__version__ = "0.2.0"
