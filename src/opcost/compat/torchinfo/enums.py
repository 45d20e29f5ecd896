"""The words that `summary` takes, as enums; plain strings of the same value do as well."""

from __future__ import annotations

from enum import Enum, IntEnum, unique


@unique
class Mode(str, Enum):
    """Whether the model is summarised as in training or as in inference."""

    TRAIN = "train"
    EVAL = "eval"


@unique
class RowSettings(str, Enum):
    """What a row shows beside the layer's type, and which rows are left out."""

    DEPTH = "depth"
    VAR_NAMES = "var_names"
    ASCII_ONLY = "ascii_only"
    HIDE_RECURSIVE_LAYERS = "hide_recursive_layers"


@unique
class ColumnSettings(str, Enum):
    """The columns there are."""

    KERNEL_SIZE = "kernel_size"
    INPUT_SIZE = "input_size"
    OUTPUT_SIZE = "output_size"
    NUM_PARAMS = "num_params"
    PARAMS_PERCENT = "params_percent"
    MULT_ADDS = "mult_adds"
    TRAINABLE = "trainable"


@unique
class Units(str, Enum):
    """The unit of a total; AUTO takes the largest that leaves at least one, but no smaller than a million."""

    AUTO = "auto"
    MEGABYTES = "M"
    GIGABYTES = "G"
    TERABYTES = "T"
    NONE = ""


@unique
class Verbosity(IntEnum):
    """Print nothing, the table, or the table with the parameters of every layer."""

    QUIET = 0
    DEFAULT = 1
    VERBOSE = 2
