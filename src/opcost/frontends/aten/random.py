"""Drawn values. Dropout that does not run (evaluation) reaches the dispatcher as nothing at all."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, on


@on(
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform",
    "_philox_normal", "_philox_uniform", "_fill_mem_eff_dropout_mask",
)  # fmt: skip
def _fill(call: Call) -> Translation:
    """What is filled lends only its shape; tensors of probabilities, means and deviations are read."""
    reads = call.tensors("p", "mean", "std", "key")
    if call.base == "bernoulli" and "p" not in call.args:
        reads = call.tensors("self")
    return Translation("random", {}, reads)


@on("dropout", "quantized::dropout")
def _dropout(call: Call) -> Translation:
    """Nothing is drawn where nothing is to be dropped."""
    drops = call.get("train", "training") and call["p"]
    return Translation("random", {"fn": "dropout"}) if drops else Translation("view", {})
