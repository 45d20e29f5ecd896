"""Attention in one kernel, or by its products where no kernel takes it, and dropout."""

from __future__ import annotations

from opcost.core.shapes import broadcast
from opcost.frontends.aten.call import Call
from opcost.frontends.aten.composite.parts import Parts, new, of
from opcost.frontends.aten.composite.products import product
from opcost.frontends.aten.tensor import Tensor, type_name


@of("scaled_dot_product_attention")
def _attention(do: Parts, call: Call) -> None:
    q, k, v, mask, y = call["query"], call["key"], call["value"], call["attn_mask"], call.outs[0]
    causal, gone = bool(call["is_causal"]), call["dropout_p"]
    whole = all(x.dim() == 4 for x in (q, k, v)) and not gone and q.shape[-1] == v.shape[-1]
    if mask is not None and type_name(mask) == "bool":
        mask = _weights_of(do, mask, q)
    if whole:
        kept = new(q.shape[:-1], q, "float64" if type_name(q) == "float64" else "float32")
        do(
            "_scaled_dot_product_flash_attention_for_cpu",
            y, kept, query=q, key=k, value=v, attn_mask=mask, is_causal=causal,
        )  # fmt: skip
        return
    q = do.like("mul.Tensor", q, other=1.0)
    if causal:
        square = new((q.shape[-2], k.shape[-2]), q, "bool")
        mask = _weights_of(do, do.like("tril", do("ones", square)), q)
    turned = do.turned(k)
    turned = do.like("mul.Tensor", turned, other=1.0)
    scores = new((*broadcast([q.shape[:-2], k.shape[:-2]]), q.shape[-2], k.shape[-2]), q)
    product(do, q, turned, scores)
    if mask is not None:
        scores = do("add.Tensor", new(scores.shape, scores), self=scores, other=mask)  # type: ignore[assignment]
    chances = do.like("_safe_softmax", scores, dim=-1)
    if gone:
        chances = _dropped(do, chances, new(chances.shape, chances))
    product(do, chances, v, y)


def _weights_of(do: Parts, mask: Tensor, like: Tensor) -> Tensor:
    """A mask of truths as numbers to add."""
    zero, far = (do("scalar_tensor", new((), like)) for _ in range(2))
    return do("where.self", new(mask.shape, like), condition=mask, self=zero, other=far)


@of("dropout")
def _dropout(do: Parts, call: Call) -> bool | None:
    if not call["train"] or not call["p"]:
        return False
    _dropped(do, call["input"], call.outs[0])
    return None


def _dropped(do: Parts, x: Tensor, y: Tensor) -> Tensor:
    noise = do.in_place("bernoulli_.float", do.like("empty_like", x))
    return do("mul.Tensor", y, self=x, other=do.in_place("div_.Scalar", noise, other=1.0))
