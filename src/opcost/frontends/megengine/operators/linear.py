"""Matrix products and what else linear algebra has."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.megengine.node import (
    Extent,
    Meaning,
    Mismatch,
    Node,
    Rule,
    Shape,
    axis_of,
    broadcast,
    means,
    product,
)
from opcost.frontends.megengine.operators.convolution import accumulated


def _operands(node: Node) -> tuple[Extent, Extent, Extent, Extent]:
    """Rows and depth of the left matrix, depth and columns of the right one; packed matrices are unfolded."""
    left, right = node.dims(0), node.dims(1)
    pack = {"MK4": 4, "MK4_DOT": 4, "MK8": 8}.get(node.word("format"), 1)
    if pack > 1:  # (m/p, k/p, p, p) and (k/p, n, p)
        if len(left) != 4 or len(right) != 3:
            raise Mismatch(f"a packed product takes 4 and 3 axes, not {len(left)} and {len(right)}")
        return product((left[0], pack)), product((left[1], pack)), product((right[0], pack)), right[1]
    if len(left) < 2 or len(right) < 2:
        raise Mismatch("a matrix has two axes")
    rows, depth = left[-2:]
    other, columns = right[-2:]
    if node.flag("transposeA"):
        rows, depth = depth, rows
    if node.flag("transposeB"):
        other, columns = columns, other
    return rows, depth, other, columns


def _checked(node: Node) -> tuple[Extent, Extent, Extent]:
    rows, depth, other, columns = _operands(node)
    if None not in (depth, other) and depth != other:
        raise Mismatch(f"rows of {depth} meet columns of {other}")
    return rows, depth if depth is not None else other, columns


def _shapes(node: Node) -> list[Shape]:
    rows, _, columns = _checked(node)
    pack = {"MK4": 4, "MK4_DOT": 4, "MK8": 8}.get(node.word("format"), 1)
    if pack > 1:
        return [(None if rows is None else rows // pack, columns, pack)]
    batch = broadcast((node.dims(0)[:-2], node.dims(1)[:-2])) or ()
    return [(*batch, rows, columns)]


def _meaning(node: Node) -> Meaning:
    depth = _checked(node)[1]
    attrs: dict[str, Attr] = {} if depth is None else {"depth": depth}
    return Meaning("matmul", attrs, (0, 1))


def _sums(node: Node) -> list[str]:
    return [accumulated(node.dtypes[0])]


def _dot_meaning(node: Node) -> Meaning:
    depth = max((product(node.dims(index)) or 1 for index in (0, 1)), default=1)
    return Meaning("matmul", {"depth": depth}, (0, 1))


def _square(node: Node) -> list[Shape]:
    dims = node.dims(0)
    if len(dims) < 2 or (None not in dims[-2:] and dims[-1] != dims[-2]):
        raise Mismatch("a square matrix is needed")
    return [dims]


def _svd_shapes(node: Node) -> list[Shape]:
    *batch, rows, columns = node.dims(0)
    least = None if rows is None or columns is None else min(rows, columns)
    if not node.flag("compute_uv"):
        return [(*batch, least)]
    full = node.flag("full_matrices")
    return [
        (*batch, rows, rows if full else least),
        (*batch, least),
        (*batch, columns if full else least, columns),
    ]


def _cross_shapes(node: Node) -> list[Shape]:
    dims = list(node.dims(0))
    axis = axis_of(node.whole("axisa"), len(dims))
    extent = dims.pop(axis)
    dims.insert(axis_of(node.whole("axisc"), len(dims) + 1), extent)
    return [tuple(dims)]


RULES = {
    "MatrixMul": Rule(_shapes, _meaning, _sums),
    "BatchedMatrixMul": Rule(_shapes, _meaning, _sums),
    "Dot": Rule(lambda node: [(1,)], _dot_meaning, _sums),
    "MatrixInverse": Rule(_square, means("linalg", fn="inverse")),
    "SVD": Rule(_svd_shapes, means("linalg", fn="svd")),
    "Cross": Rule(_cross_shapes, means("elementwise", fn="cross")),
}
