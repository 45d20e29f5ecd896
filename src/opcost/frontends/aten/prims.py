"""The primitive operators into which exported programs may have been taken apart; most share aten's names."""

from __future__ import annotations

from opcost.core.graph import Attr
from opcost.frontends.aten.call import Call, Translation, on


@on("prims::fft_c2c", "prims::fft_r2c", "prims::fft_c2r")
def _fft(call: Call) -> Translation:
    """The real side holds the whole length of the last axis."""
    x = call.outs[0] if call.base == "fft_c2r" else call["self"]
    attrs: dict[str, Attr] = {"lengths": tuple(x.shape[d] for d in call["dim"])}
    if call.base != "fft_c2c":
        attrs["real"] = True
    return Translation("fft", attrs)
