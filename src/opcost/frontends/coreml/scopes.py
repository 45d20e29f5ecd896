"""What Core ML's operators tell of the parts that stored tensors play."""

from __future__ import annotations

from opcost.core.graph import Role
from opcost.frontends.nodes.call import Made
from opcost.frontends.nodes.model import Node
from opcost.frontends.nodes.scopes import Scopes

_STATISTICS = ("mean", "variance")
_WEIGHTS = ("weight", "bias", "weight_ih", "weight_hh", "x", "y", "gamma", "beta", "input", "alpha", "values")
"""Arguments whose constants are weights, unless they are whole numbers of many bits."""


class CoremlScopes(Scopes):
    """Names of weights have underscores where modules had dots, so that all that is told are scopes with a slash."""

    def path_of_weight(self, name: str) -> str | None:
        return None

    def role(self, node: Node, place: int, made: Made) -> Role:
        name = next((key for key, places in node.attrs["@"].items() if place in places), "")
        if name in _STATISTICS and "norm" in node.op:
            return "buffer"
        weights = name.removesuffix("_back") in _WEIGHTS and made.dtype not in ("int32", "int64", "bool")
        return "param" if weights and made.shape else "const"
