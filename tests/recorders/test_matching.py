"""Which counted operator is which recorded one, by hand-made events of compiled code."""

from __future__ import annotations

import torch

import opcost
from opcost.core.profile import Kernel
from opcost.core.report import Row
from opcost.recorders.torch.events import STEP, DeviceEvent, HostEvent, Nesting
from opcost.recorders.torch.rows import Matcher, rows_of

LONG, SHORT = 7, 5
REGION = "## Call CompiledFxGraph fabc ##"


class TwoProducts(torch.nn.Module):
    def forward(self, x: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return x.T @ (x @ square)


def counted() -> list[Row]:
    """Rows of (short, long) x (long, long) and of (long, short) x (short, long)."""
    report = opcost.count(TwoProducts(), (torch.ones(SHORT, LONG), torch.ones(LONG, LONG)))
    return [row for row in report.rows if row.op.kind == "matmul"]


def host(name: str, start: int, end: int, *shapes: tuple[int, ...], correlation: int = 0) -> HostEvent:
    runtime = name.startswith("cuda")
    return HostEvent(start, end, name, 1, 1, 0, -1, False, correlation, runtime, shapes, ("float",) * len(shapes))


def region(*events: HostEvent, kernels: tuple[DeviceEvent, ...] = ()) -> Nesting:
    return Nesting([host(f"{STEP}0", 0, 1000), host(REGION, 10, 900), *events], kernels, ("",))


def test_where_to_write_is_no_operand() -> None:
    """Compiled code hands every product its output too, and that must not make it another product."""
    first, second = counted()
    nesting = region(host("aten::mm", 20, 30, (LONG, SHORT), (SHORT, LONG), (LONG, LONG)))
    (found,) = Matcher((first, second)).match(nesting.roots).values()
    assert found == (second,)


def test_a_product_fused_with_a_sum_is_still_that_product() -> None:
    first, second = counted()
    added = host("aten::addmm", 20, 30, (SHORT, LONG), (SHORT, LONG), (LONG, LONG), (SHORT, LONG))
    (found,) = Matcher((first, second)).match(region(added).roots).values()
    assert found == (first,)


def test_a_replayed_cuda_graph_has_the_cost_of_all_that_is_in_it() -> None:
    rows = counted()
    kernels = tuple(DeviceEvent(Kernel("gemm", "gpu:0", "7", 40 + n, 5), 900, 0) for n in range(2))
    nesting = region(host("cudaGraphLaunch", 20, 30, correlation=900), kernels=kernels)
    matcher = Matcher(rows)
    (row,) = rows_of(nesting.roots, matcher.match(nesting.roots), with_device=True)
    assert row.cost is not None
    assert row.cost.macs == SHORT * LONG * LONG + LONG * SHORT * LONG
    assert (row.type, row.module, row.device_ns) == (REGION, "", 10)
    assert matcher.unmatched((0,)) == []
