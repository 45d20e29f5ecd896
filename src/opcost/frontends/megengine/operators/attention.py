"""Multi-head attention in one operator: projections, scores, their softmax, the weighted values, and the way out."""

from __future__ import annotations

from typing import NamedTuple

from opcost.core.shapes import Extent, Shape, product, total
from opcost.frontends.megengine.node import Meaning, Node, Rule


class _Sizes(NamedTuple):
    batch: Extent
    queries: Extent
    keys: Extent
    q: Extent
    k: Extent
    v: Extent
    out: Extent
    """Features after each projection; a projection of size 0 is left out."""


def _sizes(node: Node) -> _Sizes:
    """Inputs are queries, keys and values as (batch, length, features), then all weights in one."""
    batch, queries, q = node.ranked(0, 3)
    _, keys, k = node.ranked(1, 3)
    v = node.ranked(2, 3)[2]
    more = (node.word("tensor_combination_type") in ("ONLY_BIASKV", "ALL")) + node.flag("add_zero_attn")
    v = node.whole("vproj_size") or v
    return _Sizes(
        batch=batch,
        queries=queries,
        keys=total((keys, more)),
        q=node.whole("qproj_size") or q,
        k=node.whole("kproj_size") or k,
        v=v,
        out=node.whole("oproj_size") or v,
    )


def _shapes(node: Node) -> list[Shape]:
    """The result, the weights of the attention, and two stores for a backward pass."""
    sizes = _sizes(node)
    heads = product((sizes.batch, node.whole("num_heads")))
    return [(sizes.batch, sizes.queries, sizes.out), (heads, sizes.queries, sizes.keys), (None,), (None,)]


def _meaning(node: Node) -> Meaning:
    """All products; the softmax between them is not among the FLOPs."""
    sizes = _sizes(node)
    inputs = [node.dims(index) for index in range(3)]
    terms = [product((sizes.batch, sizes.queries, sizes.keys, size)) for size in (sizes.q, sizes.v)]
    for name, (batch, length, features), size in zip("qkv", inputs, (sizes.q, sizes.k, sizes.v), strict=True):
        if node.whole(f"{name}proj_size"):
            terms.append(product((batch, length, features, size)))
    if node.whole("oproj_size"):
        terms.append(product((sizes.batch, sizes.queries, sizes.v, sizes.out)))
    if None in terms:
        return Meaning("unknown", outputs=(0,))
    return Meaning("matmul", {"macs": sum(term or 0 for term in terms), "bias": node.flag("obias")}, outputs=(0,))


RULES = {"MultiHeadAttn": Rule(_shapes, _meaning)}
