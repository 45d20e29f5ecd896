"""Graphs of one rank of other layouts, from few recordings: equal to recordings of those layouts in every number."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from opcost.analysis.layouts.rank import Blocks, RankGraphs, with_passes
from opcost.analysis.layouts.sizes import (
    Groups,
    LayoutSizes,
    NotDetermined,
    ShardSize,
    SizedGraphs,
    ranks_beside,
    telling_ranks,
)
from opcost.analysis.layouts.variants import without
from opcost.analysis.memory import memory, storage_bytes
from opcost.api import count_graph
from opcost.core.graph import Graph
from opcost.core.repeating import same
from opcost.distributed.layouts import Layout
from opcost.distributed.mesh import Mesh

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

from language_net import Decoder, tokens  # noqa: E402

OPTIONS: list[dict[str, Any]] = [
    {},
    {"precision": "bf16-mixed", "device": "h100"},
    {"dtype": "bfloat16", "reduce_dtype": "float32"},  # gradients are summed in a type that is not their own
]


def recorded(blocks: int | None, layout: Layout, *, vocabulary: int = 256, **options: Any) -> Graph:
    graph = count_graph(
        Decoder(blocks or 3, vocabulary), tokens(layout.batch), mesh=layout.mesh, accumulate=layout.passes,
        reshard=layout.reshard, checkpoint="layers.*" if layout.checkpoint == "full" else (),
        **{"optimizer": "adamw", **options},
    )[1]  # fmt: skip
    assert graph is not None
    return graph


def plain(graph: Graph) -> Graph:
    """Without calls, notes, and marks of the profiler, which are no operators."""
    modules = tuple(replace(module, inputs=(), outputs=(), calls=0) for module in graph.modules)
    marks = {op.id for op in graph.ops if op.raw.startswith("profiler::")}
    return without(replace(graph, modules=modules, notes=()), marks)


def assert_same(found: Graph, expected: Graph) -> None:
    """The same operators on the same tensors, and as much memory during each of them."""
    found.check()
    found, expected = plain(found), plain(expected)
    assert same(found, expected)
    curves = [memory(graph, storage_bytes(graph)) for graph in (found, expected)]
    assert curves[0].curve == curves[1].curve
    assert curves[0].parts == curves[1].parts


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mixed", "bfloat16"])
@pytest.mark.parametrize("checkpoint", ["none", "full"])
@pytest.mark.parametrize("tp", [1, 2])
def test_layouts_follow_from_few_recordings(options: dict[str, Any], checkpoint: str, tp: int) -> None:
    """With other ranks, copies, batches and passes, and with or without gathers in the backward pass."""
    made = []

    def record(blocks: int | None, layout: Layout) -> Graph:
        made.append(layout)
        return recorded(blocks, layout, **options)

    layouts = [
        Layout(
            mesh=Mesh(replicate=copies, fsdp=ranks, tp=tp),
            batch=batch,
            passes=passes,
            checkpoint=checkpoint,
            reshard=reshard,
        )
        for (ranks, batch), copies, passes, reshard in product(
            ((3, 2), (4, 3), (64, 2), (5, 5)), (1, 2), (1, 3), (True, False)
        )
    ]
    graphs = RankGraphs(record, Blocks(["layers"]), layouts[0], [2, 3, 5])
    for layout in layouts[OPTIONS.index(options) :: 5 * tp]:
        found = graphs.of(layout)
        assert found.further == 0
        assert_same(with_passes(found.more, layout), recorded(None, layout, **options))
    assert len(made) == 3  # one, one with other ranks, and one with another batch


@pytest.mark.parametrize("mesh", [Mesh(replicate=4), Mesh(tp=2), Mesh()], ids=str)
@pytest.mark.parametrize("passes", [1, 3])
def test_layouts_without_shards(mesh: Mesh, passes: int) -> None:
    layout = Layout(mesh=mesh, batch=5, passes=passes)
    graphs = RankGraphs(recorded, Blocks(["layers"]), layout, [2, 3, 5])
    assert_same(with_passes(graphs.of(layout).more, layout), recorded(None, layout))


@pytest.mark.parametrize(
    "layout",
    [
        Layout(mesh=Mesh(fsdp=4), batch=3, passes=1, checkpoint="full"),
        Layout(mesh=Mesh(replicate=2, fsdp=8), batch=2, passes=4, reshard=False),
        Layout(mesh=Mesh(fsdp=2, tp=2), batch=2, passes=2),
    ],
    ids=str,
)
def test_many_blocks_follow_from_few(layout: Layout) -> None:
    """The peak, what a pass keeps, and the parameters of 14 blocks, to the byte."""
    graphs = RankGraphs(recorded, Blocks(["layers"], "layers", (5, 6, 7), 14), layout, [2, 3])
    found = graphs.of(layout)
    assert found.further in (14 - 6, 14 - 7)
    few = [memory(graph, storage_bytes(graph)) for graph in (found.fewer, found.more)]
    expected = recorded(14, layout)
    whole = memory(expected, storage_bytes(expected))
    assert found.highest(few[0].curve, few[1].curve) == whole.peak_bytes
    assert found.grown(few[0].base_bytes, few[1].base_bytes) == whole.base_bytes
    params = [
        {"params": sum(value.spec.numel for value in graph.values if value.role == "param")}
        for graph in (found.fewer, found.more, expected)
    ]
    assert found.all_grown(params[0], params[1]) == params[2]
    assert {last for _, last in found.counterparts} == set(range(len(found.more.ops)))


def test_rows_that_do_not_divide() -> None:
    """Each of 6 ranks has ceil(251 / 6) = 42 rows of the embedding, and gathers 6 times as many."""
    layout = Layout(mesh=Mesh(fsdp=6), batch=2, passes=1)
    graphs = RankGraphs(lambda blocks, each: recorded(blocks, each, vocabulary=251), Blocks(["layers"]), layout, [2])
    found = graphs.of(layout).more
    assert_same(with_passes(found, layout), recorded(None, layout, vocabulary=251))
    shards = {value.name: value.spec.dims for value in found.values if value.role == "param"}
    assert shards["tok_embeddings.weight"] == (42, 64)


@pytest.mark.parametrize("copies", [1, 2])
def test_parameters_are_divided_among_parts_of_a_sequence_too(copies: int) -> None:
    """Beside two ranks for the parts of a sequence, and alone on these."""
    made = []

    def record(blocks: int | None, layout: Layout) -> Graph:
        made.append(layout)
        return recorded(blocks, layout)

    layouts = [
        Layout(mesh=Mesh(replicate=copies, fsdp=ranks, cp=2), batch=batch, passes=copies, reshard=copies == 1)
        for ranks, batch in ((3, 2), (1, 3), (8, 2))
    ]
    graphs = RankGraphs(record, Blocks(["layers"]), layouts[0], [2, 3])
    for layout in layouts:
        assert_same(with_passes(graphs.of(layout).more, layout), recorded(None, layout))
    assert len(made) == 3


def test_a_batch_of_one_that_does_something_else_has_recordings_of_its_own() -> None:
    """`squeeze` of a batch of one drops a dimension."""
    import torch
    from torch import Tensor, nn

    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x).squeeze()
            return y if y.dim() == 1 else y * 2

    def record(_: int | None, layout: Layout) -> Graph:
        graph = count_graph(
            Squeezed(), torch.ones(layout.batch, 4), mesh=layout.mesh, backward=True, accumulate=layout.passes
        )
        assert graph[1] is not None
        return graph[1]

    layouts = [Layout(mesh=Mesh(fsdp=3), batch=batch, passes=2) for batch in (1, 2, 4, 7)]
    graphs = RankGraphs(record, Blocks([]), layouts[0], [1, 2, 4, 7])
    for layout in layouts:
        assert_same(with_passes(graphs.of(layout).more, layout), record(None, layout))


# -- sizes -----------------------------------------------------------------------------------------------------------------


def test_the_size_of_shards() -> None:
    assert ShardSize(((10, 3), (4, 1)), of_all=False).at(4) == 3 * 3 + 1
    assert ShardSize(((10, 3), (4, 1)), of_all=True).at(4) == 4 * (3 * 3 + 1)
    assert (ranks_beside(1).at(7), ranks_beside(3).at(7)) == (7, 21)
    assert ShardSize(((10, 3),), of_all=True, beside=2).at(2) == 4 * 3 * 3


def test_ranks_that_divide_rows_tell_nothing() -> None:
    """64 and 96 rows are divided evenly by 2 as by 4, so what is gathered has the same size, and would not with 5 ranks."""
    layout = Layout(mesh=Mesh(fsdp=2), batch=2, passes=2)
    base, other = (recorded(None, Layout(mesh=Mesh(fsdp=ranks), batch=2, passes=2)) for ranks in (2, 4))
    sized = SizedGraphs({LayoutSizes(2, 2): base, LayoutSizes(4, 2): other}, Groups(["layers"]))
    with pytest.raises(NotDetermined):
        sized.with_sizes(sized.graph, LayoutSizes(5, 2))
    ranks = telling_ranks(base, 2, Groups(["layers"]))
    assert all(rows % ranks for rows in (64, 96, 32, 256))
    assert recorded(None, layout).ops


def test_other_structure_is_not_used() -> None:
    base = recorded(None, Layout(mesh=Mesh(fsdp=2), batch=2, passes=2))
    other = recorded(4, Layout(mesh=Mesh(fsdp=61), batch=2, passes=2))
    sized = SizedGraphs({LayoutSizes(2, 2): base, LayoutSizes(61, 2): other}, Groups(["layers"]))
    with pytest.raises(NotDetermined):
        sized.with_sizes(sized.graph, LayoutSizes(4, 2))
