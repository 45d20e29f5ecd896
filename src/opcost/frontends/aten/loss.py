"""Losses that are one operator; those written in smaller operators (KL divergence, cosine, hinge) arrive as these."""

from __future__ import annotations

from opcost.frontends.aten.call import always

_LOSSES = {
    "mse": ("mse_loss",),
    "l1": ("l1_loss",),
    "smooth_l1": ("smooth_l1_loss",),
    "huber": ("huber_loss",),
    "nll": ("nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss2d", "nll_loss2d_forward"),
    "cross_entropy": ("cross_entropy_loss",),
    "bce": ("binary_cross_entropy",),
    "bce_with_logits": ("binary_cross_entropy_with_logits",),
    "kl_div": ("kl_div",),
    "soft_margin": ("soft_margin_loss",),
    "multi_margin": ("multi_margin_loss",),
    "multilabel_margin": ("multilabel_margin_loss", "multilabel_margin_loss_forward"),
    "ctc": ("ctc_loss", "_ctc_loss", "_cudnn_ctc_loss", "miopen_ctc_loss"),
    "poisson_nll": ("poisson_nll_loss",),
    "hinge": ("hinge_embedding_loss", "margin_ranking_loss"),
}

_GRADIENTS = {
    "mse": ("mse_loss_backward",),
    "smooth_l1": ("smooth_l1_loss_backward",),
    "huber": ("huber_loss_backward",),
    "nll": ("nll_loss_backward", "nll_loss2d_backward"),
    "bce": ("binary_cross_entropy_backward",),
    "soft_margin": ("soft_margin_loss_backward",),
    "multi_margin": ("multi_margin_loss_backward",),
    "multilabel_margin": ("multilabel_margin_loss_backward",),
    "ctc": ("_ctc_loss_backward",),
}

for _fn, _names in _LOSSES.items():
    always("loss", _names, fn=_fn)
for _fn, _names in _GRADIENTS.items():
    always("loss", _names, fn=_fn, grad=True)

always("view", ["_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"])
