"""Writes what `opcost.frontends.aten` ships about PyTorch's operators, from the PyTorch that is installed.

python tests/frontends/aten/shipped_schemas.py > src/opcost/frontends/aten/schemas.txt
python tests/frontends/aten/shipped_schemas.py implicit > src/opcost/frontends/aten/implicit.txt
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import torch
import torch.ao.quantization.fx._decomposed

from opcost.frontends.aten.composite import COMPOSITES
from opcost.frontends.aten.schema import UNKNOWN, Schema, find_handler, parse

LIBRARIES = ("aten", "prims", "quantized", "quantized_decomposed")
OF_NO_USE = re.compile("_test_|mps")
"""Operators for tests, and those of a device whose traces are not read."""


def dispatched() -> Iterator[str]:
    """The schema of every operator that can be called, as text."""
    callable_names = set(torch._C._dispatch_get_all_op_names())
    for schema in torch._C._jit_get_all_schemas():
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if full in callable_names:
            yield str(schema)


def is_shipped(schema: Schema) -> bool:
    """What a program or a trace may hold and the table knows; not the forms with `out=`, which the plain ones cover."""
    library, _, base = schema.name.partition("::")
    if library not in LIBRARIES or any(argument.out for argument in schema.arguments) or OF_NO_USE.search(base):
        return False
    return schema.name in COMPOSITES or find_handler(schema)[1] is not UNKNOWN


def lines() -> list[str]:
    return sorted({text for text in dispatched() if is_shipped(parse(text))})


def implicit() -> list[str]:
    """The shipped operators that PyTorch takes apart before any device sees them; a few have kernels nevertheless."""
    is_registered = torch._C._dispatch_has_kernel_for_dispatch_key
    names = (line.partition("(")[0] for line in lines())
    return [
        name for name in names if is_registered(name, "CompositeImplicitAutograd") and not is_registered(name, "CPU")
    ]


if __name__ == "__main__":
    print(*(implicit() if "implicit" in sys.argv else lines()), sep="\n")
