from __future__ import annotations

from typing import Any

import pytest
import torch

aten = torch.ops.aten
FLOAT = 4
INDEX = 8


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(6),
        lambda x: x.t(),
        lambda x: x[0],
        lambda x: x[:, 1:],
        lambda x: x.expand(4, 2, 3),
        lambda x: x.unbind(0),
        lambda x: x.split(1),
        lambda x: x.detach(),
        lambda x: torch.ops.aten._unsafe_view(x, [6]),
        lambda x: x.unsafe_chunk(2),
        lambda x: x.transpose_(0, 1),
        torch.empty_like,
        lambda x: x.new_empty(3),
        lambda x: x.resize_(3),
    ],
)
def test_looking_at_memory_is_free(function: Any, record: Any, meta: Any) -> None:
    x = meta(2, 3)
    assert record(lambda: function(x)) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone(),
        lambda x: torch.cat([x, x]),
        lambda x: x.t().contiguous(),
        lambda x: x.to(torch.float16),
        lambda x: torch.view_copy(x, [6]),
        lambda x: torch.nn.functional.pad(x, (1, 1)),
        lambda x: x.roll(1),
        lambda x: x.repeat(2, 2),
        lambda x: torch.nn.functional.pixel_shuffle(x.view(1, 6, 1, 1)[:, :4], 2),
        lambda x: torch.slice_scatter(x, x[:1], 0, 0, 1),
    ],
)
def test_moving_elements_computes_nothing(function: Any, record: Any, meta: Any) -> None:
    x = meta(2, 3)
    seen = record(lambda: function(x))
    assert [s.kind for s in seen] == ["copy"]
    assert seen[0].cost.flops == 0
    assert seen[0].cost.bytes_written > 0


def test_what_is_overwritten_is_not_read(record: Any, meta: Any) -> None:
    x, y = meta(4), meta(4)
    (copied,) = record(lambda: x.copy_(y))
    assert copied.ins == ((4,),)
    assert (copied.cost.bytes_read, copied.cost.bytes_written) == (4 * FLOAT, 4 * FLOAT)


def test_conversions_that_change_nothing_are_free_where_a_trace_names_them(translated: Any) -> None:
    x = torch.empty(2, 3, device="meta")
    assert translated(aten.contiguous.default, x, outs=((2, 3),)).kind == "view"
    assert translated(aten.contiguous.default, x.t(), outs=((3, 2),)).kind == "copy"


def test_filling_reads_nothing(translated: Any, meta: Any) -> None:
    for seen in (
        translated(aten.zero_.default, meta(4), outs=((4,),)),
        translated(aten.fill_.Scalar, meta(4), 1, outs=((4,),)),
        translated(aten.normal_.default, meta(4), outs=((4,),)),
        translated(aten.zeros_like.default, meta(4), outs=((4,),)),
    ):
        assert (seen.cost.bytes_read, seen.cost.bytes_written) == (0, 4 * FLOAT)


# -- lookups ----------------------------------------------------------------------------------------------------------


def test_an_embedding_reads_the_rows_it_looks_up(record: Any, meta: Any) -> None:
    table, indices = meta(100, 8), meta(5, dtype=torch.int64)
    (seen,) = record(lambda: torch.nn.functional.embedding(indices, table))
    assert (seen.kind, seen.ins) == ("embedding", ((100, 8), (5,)))
    assert seen.cost.bytes_read == 5 * 8 * FLOAT + 5 * INDEX


@pytest.mark.parametrize(("mode", "weighted"), [("sum", False), ("mean", False), ("max", False), ("sum", True)])
def test_an_embedding_bag_says_how_rows_are_combined(mode: str, weighted: bool, record: Any) -> None:
    table, indices, offsets = torch.randn(10, 4), torch.zeros(6, dtype=torch.int64), torch.tensor([0, 3])
    weights = torch.ones(6) if weighted else None
    seen = record(
        lambda: torch.nn.functional.embedding_bag(indices, table, offsets, mode=mode, per_sample_weights=weights)
    )
    (bag,) = [s for s in seen if s.kind == "embedding"]
    assert bag.attrs == {"reduce": mode, **({"weighted": True} if weighted else {})}


def test_the_gradient_of_an_embedding_adds_each_row(record: Any) -> None:
    layer = torch.nn.Embedding(10, 4)
    indices = torch.zeros(6, dtype=torch.int64)
    (backward,) = [s for s in record(lambda: layer(indices).sum().backward()) if s.attrs.get("grad")]
    assert backward.kind == "embedding"
    assert backward.cost.flops == 6 * 4


# -- gathers and scatters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i[:, None].expand(-1, 4)),
        torch.take,
    ],
)
def test_picking_elements_is_a_gather(function: Any, record: Any, meta: Any) -> None:
    (seen,) = record(lambda: function(meta(9, 4), meta(3, dtype=torch.int64)))
    assert seen.kind == "gather"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_scatter_in_place_moves_only_what_it_puts(in_place: bool, record: Any, meta: Any) -> None:
    x, index, source = meta(9, 4), meta(3, dtype=torch.int64), meta(3, 4)
    (seen,) = record(lambda: (x.index_add_ if in_place else x.index_add)(0, index, source))
    assert seen.kind == "scatter"
    assert seen.attrs == {"fn": "add", **({"overwrites": True} if in_place else {})}
    assert seen.ins == ((9, 4), (3,), (3, 4))
    assert seen.cost.flops == 12
    assert seen.cost.bytes_written == (12 if in_place else 36) * FLOAT


@pytest.mark.parametrize(
    ("indices", "places"),
    [
        ([(3,)], 3 * 4 * 5),
        ([(3,), (3,)], 3 * 5),
        ([(3, 1), (2,)], 3 * 2 * 5),
        ([None, (3,)], 9 * 3 * 5),
        ([()], 4 * 5),
    ],
)
def test_an_indexed_write_counts_the_places_that_its_indices_name(
    indices: list[Any], places: int, translated: Any, meta: Any
) -> None:
    given = [None if shape is None else meta(*shape, dtype=torch.int64) for shape in indices]
    seen = translated(aten.index_put_.default, meta(9, 4, 5), given, meta(1), True, outs=((9, 4, 5),))
    assert seen.attrs == {"fn": "add", "elements": places, "overwrites": True}


def test_a_mask_is_taken_to_name_everything_it_covers(translated: Any, meta: Any) -> None:
    mask = meta(9, 4, dtype=torch.bool)
    seen = translated(aten.index_put.default, meta(9, 4, 5), [mask], meta(1), outs=((9, 4, 5),))
    assert seen.attrs == {"fn": "copy", "elements": 9 * 4 * 5}


@pytest.mark.parametrize(
    ("reduce", "fn"), [("sum", "add"), ("prod", "mul"), ("amax", "max"), ("amin", "min"), ("mean", "mean")]
)
def test_a_reducing_scatter_names_its_reduction(reduce: str, fn: str, record: Any, meta: Any) -> None:
    index = meta(3, 4, dtype=torch.int64)
    (seen,) = record(lambda: meta(9, 4).scatter_reduce(0, index, meta(3, 4), reduce))
    assert seen.attrs == {"fn": fn}


def test_folding_adds_windows_and_unfolding_copies_them(record: Any, meta: Any) -> None:
    (unfolded,) = record(lambda: torch.nn.functional.unfold(meta(1, 2, 6, 6), 3))
    (folded,) = record(lambda: torch.nn.functional.fold(meta(1, 18, 16), 6, 3))
    assert (unfolded.kind, unfolded.cost.flops) == ("copy", 0)
    assert (folded.kind, folded.cost.flops) == ("scatter", 18 * 16)
