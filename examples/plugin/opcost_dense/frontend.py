"""A front end: `net.dense` is a list of widths, `dense 8 16 4`; between them lie matrix products, each followed by a squash."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from opcost.plugins import CountOptions, FrontEnd, FrontendOption, Graph, Module, Op, SourceError, TensorSpec, Value


class DenseFrontEnd(FrontEnd):
    """Files only: there are no live objects of this framework."""

    name = "dense"
    framework = "opcost_dense"
    suffixes = (".dense",)
    options = (FrontendOption("rows", int, "The rows of the input of a .dense file, 1 without it.", "N"),)

    def sniff(self, head: bytes, path: Path) -> bool:
        return head.startswith(b"dense ")

    def load(self, source: Any, options: CountOptions) -> Graph:
        try:
            widths = [int(word) for word in Path(source).read_text("utf-8").split()[1:]]
        except ValueError as exc:
            raise SourceError(f"{source} holds a width that is not a number: {exc}") from exc
        rows = options.own.get("rows", 1)
        values: list[Value] = []
        ops: list[Op] = []

        def tensor(name: str, role: Any, *shape: int) -> int:
            values.append(Value(len(values), name, TensorSpec(shape, "float32"), role, storage=len(values)))
            return len(values) - 1

        x = tensor("x", "input", rows, widths[0])
        weights = []
        for place, (wide, narrow) in enumerate(pairwise(widths)):
            weights.append((f"w{place}", tensor(f"w{place}", "param", wide, narrow)))
            product = tensor(f"product{place}", "activation", rows, narrow)
            ops.append(Op(len(ops), "matmul", "dense::product", (x, weights[-1][1]), (product,), {"depth": wide}))
            x = tensor(f"squashed{place}", "activation", rows, narrow)
            ops.append(Op(len(ops), "unknown", "dense::squash", (product,), (x,), {}))
        return Graph(
            source=Path(source).name,
            framework=self.name,
            values=tuple(values),
            ops=tuple(ops),
            modules=(Module(path="", type="Dense", parameters=tuple(weights), calls=1),),
            inputs=(0,),
            outputs=(x,),
        )


FRONTEND: FrontEnd = DenseFrontEnd()
