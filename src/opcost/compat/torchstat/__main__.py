"""torchstat's command line: `python -m opcost.compat.torchstat -f FILE -m MODEL [-s 3x224x224]`."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from opcost.compat.torchstat.statistics import stat


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the model that a class or function in a file makes."""
    parser = argparse.ArgumentParser(prog="torchstat", description="Torch model statistics")
    parser.add_argument("--file", "-f", help="Module file.")
    parser.add_argument("--model", "-m", help="Model name")
    parser.add_argument(
        "--size", "-s", default="3x224x224", help="Input size. channels x height x width (default: 3x224x224)"
    )
    told = parser.parse_args(arguments)
    try:
        model = _model(told.file, told.model)
    except Exception:  # noqa: BLE001 - whatever the file does
        print(f"Tried to import {told.model} from {told.file}. but failed.")
        traceback.print_exc()
        sys.exit()
    stat(model, tuple(int(extent) for extent in told.size.split("x")))


def _model(file: str, name: str) -> Any:
    spec = spec_from_file_location("models", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a file of Python code")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


if __name__ == "__main__":
    main()
