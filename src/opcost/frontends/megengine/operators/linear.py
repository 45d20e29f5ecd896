"""Matrix products and what else linear algebra has."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.core.shapes import Dims, Mismatch, Shape, axis_of, divided, inserted, matmul, product, replaced, times
from opcost.frontends.megengine.node import Meaning, Node, Rule, means
from opcost.frontends.megengine.operators.convolution import accumulated

_PACKS = {"MK4": 4, "MK4_DOT": 4, "MK8": 8}


def _unpacked(node: Node) -> tuple[Dims, Dims, int]:
    """Both matrices, and the pack in which their elements lie: (m/p, k/p, p, p) and (k/p, n, p)."""
    left, right = node.dims(0), node.dims(1)
    pack = _PACKS.get(node.word("format"), 1)
    if pack > 1:
        if len(left) != 4 or len(right) != 3:
            raise Mismatch(f"a packed product takes 4 and 3 axes, not {len(left)} and {len(right)}")
        return (times(left[0], pack), times(left[1], pack)), (times(right[0], pack), right[1]), pack
    if len(left) < 2 or len(right) < 2:
        raise Mismatch("a matrix has two axes")
    return left, right, pack


def _shapes(node: Node) -> list[Shape]:
    left, right, pack = _unpacked(node)
    *batch, rows, columns = matmul(
        left, right, transpose_a=node.flag("transposeA"), transpose_b=node.flag("transposeB")
    )
    if pack > 1:
        return [(divided(rows, pack), columns, pack)]
    return [(*batch, rows, columns)]


def _meaning(node: Node) -> Meaning:
    left, right, _ = _unpacked(node)
    depth = left[-2 if node.flag("transposeA") else -1]
    if depth is None:
        depth = right[-1 if node.flag("transposeB") else -2]
    attrs: dict[str, Attr] = {} if depth is None else {"depth": depth}
    return Meaning("matmul", attrs, (0, 1))


def _sums(node: Node) -> list[str]:
    return [accumulated(node.dtypes[0])]


def _dot_meaning(node: Node) -> Meaning:
    depth = max(product(node.dims(index)) or 1 for index in (0, 1))
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
    dims = node.dims(0)
    axis = axis_of(node.whole("axisa"), len(dims))
    return [inserted(replaced(dims, axis), node.whole("axisc"), dims[axis])]


RULES = {
    "MatrixMul": Rule(_shapes, _meaning, _sums),
    "BatchedMatrixMul": Rule(_shapes, _meaning, _sums),
    "Dot": Rule(lambda node: [(1,)], _dot_meaning, _sums),
    "MatrixInverse": Rule(_square, means("linalg", fn="inverse")),
    "SVD": Rule(_svd_shapes, means("linalg", fn="svd")),
    "Cross": Rule(_cross_shapes, means("elementwise", fn="cross")),
}
