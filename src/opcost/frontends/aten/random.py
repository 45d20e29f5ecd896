"""Drawn values. Dropout that does not run (evaluation) reaches the dispatcher as nothing at all."""

from __future__ import annotations

from opcost.frontends.aten.call import Call, Translation, always, on

always(
    "random",
    (
        "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal_functional",
        "poisson", "binomial", "multinomial", "_standard_gamma", "_sample_dirichlet",
        "_philox_key_split", "_philox_key_fold_in",
        "_sobol_engine_draw", "_sobol_engine_ff", "_sobol_engine_scramble", "_sobol_engine_initialize_state",
        "rngprims::philox_rand",
    ),
)  # fmt: skip
always(
    "random",
    ("native_dropout", "_fused_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"),
    fn="dropout",
)


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
    training = call.get("train", "training")
    return Translation("random", {"fn": "dropout"}) if training else Translation("view", {})


always("create", ["_cudnn_init_dropout_state"])
