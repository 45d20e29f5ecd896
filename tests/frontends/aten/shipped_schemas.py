"""Writes the schemas of PyTorch's operators that `opcost.frontends.aten` ships, from the PyTorch that is installed:

python tests/frontends/aten/shipped_schemas.py > src/opcost/frontends/aten/schemas.txt
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
import torch.ao.quantization.fx._decomposed

from opcost.frontends.aten.composite import COMPOSITES
from opcost.frontends.aten.resolve import find_handler
from opcost.frontends.aten.schema import Schema, parse

LIBRARIES = ("aten", "prims", "quantized", "quantized_decomposed")
NOT_EXPORTED = re.compile("_test_|_foreach_|_fused_|cudnn|miopen|mkldnn|mps")
"""Operators over lists of parameters, and those of single devices below the ones that a program names."""


def dispatched() -> Iterator[str]:
    """The schema of every operator that can be called, as text."""
    callable_names = set(torch._C._dispatch_get_all_op_names())
    for schema in torch._C._jit_get_all_schemas():
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if full in callable_names:
            yield str(schema)


def is_shipped(schema: Schema) -> bool:
    """What a program may hold and the table knows; programs return their results, so no `out=`."""
    library, _, base = schema.name.partition("::")
    if library not in LIBRARIES or any(argument.out for argument in schema.arguments) or NOT_EXPORTED.search(base):
        return False
    return schema.name in COMPOSITES or getattr(find_handler(schema)[1], "__name__", "") != "_unknown"


def lines() -> list[str]:
    return sorted({text for text in dispatched() if is_shipped(parse(text))})


if __name__ == "__main__":
    print(*lines(), sep="\n")
