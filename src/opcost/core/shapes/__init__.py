"""Shape arithmetic, once for all front ends: what comes out of an operator with such inputs.

Pure functions on tuples of extents. An extent may be unknown (None), and then only what follows from it is. Shapes that do not
fit raise `Mismatch`; the front end that asked says of which operator it speaks.
"""

from opcost.core.shapes.axes import (
    axes_of,
    axis_of,
    broadcast,
    expanded,
    filled,
    flattened,
    inserted,
    permuted,
    reduced,
    repeated,
    replaced,
    reshaped,
    squeezed,
    swapped,
    tiled,
)
from opcost.core.shapes.extents import (
    Dims,
    Extent,
    Mismatch,
    Shape,
    Unknown,
    complete,
    divided,
    known,
    merge,
    product,
    text,
    times,
    total,
)
from opcost.core.shapes.parts import (
    concat,
    diagonal,
    even_parts,
    gathered,
    padded,
    slice_length,
    stack,
)
from opcost.core.shapes.products import dot, einsum, explicit, matmul, tensordot
from opcost.core.shapes.windows import (
    Last,
    adaptive_windows,
    same_padding,
    same_windows,
    spread,
    windows,
)

__all__ = [
    "Dims", "Extent", "Last", "Mismatch", "Shape", "Unknown", "adaptive_windows", "axes_of", "axis_of", "broadcast", "complete",
    "concat", "diagonal", "divided", "dot", "einsum", "even_parts", "expanded", "explicit", "filled", "flattened",
    "gathered", "inserted", "known", "matmul", "merge", "padded", "permuted", "product", "reduced",
    "repeated", "replaced", "reshaped", "same_padding", "same_windows", "slice_length", "spread", "squeezed", "stack",
    "swapped", "tensordot", "text", "tiled", "times", "total", "windows",
]  # fmt: skip
