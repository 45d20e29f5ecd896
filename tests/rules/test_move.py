from __future__ import annotations

from typing import Any

import pytest

from opcost.core.graph import ZERO, Cost, TensorSpec
from opcost.rules.movement import copy
from opcost.rules.registry import OpView


def int64(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "int64")


def test_a_view_is_free(cost: Any) -> None:
    assert cost("view", [(2, 3)], [(6,)]) == ZERO


def test_a_copy_reads_and_writes_everything(cost: Any) -> None:
    assert cost("copy", [(2, 3), (4, 3)], [(6, 3)]) == Cost(bytes_read=4 * 6 * 3, bytes_written=4 * 6 * 3)


def test_a_copy_to_another_type_moves_bytes_of_both(cost: Any) -> None:
    n = 10
    assert cost("copy", [(n,)], [TensorSpec((n,), "float16")]) == Cost(bytes_read=4 * n, bytes_written=2 * n)


def test_a_copy_in_place_does_not_read_the_destination(cost: Any) -> None:
    n = 10
    result = cost("copy", [(n,), TensorSpec((n,), "float16")], [(n,)], overwrites=True)
    assert result == Cost(bytes_read=2 * n, bytes_written=4 * n)


def test_a_broadcast_source_is_read_once() -> None:
    n = 10
    destination = source = TensorSpec((n,))
    one_element = 4
    # The caller knows that the source is one element, expanded.
    view = OpView(
        "copy", ins=(destination, source), outs=(destination,), attrs={"overwrites": True}, reads=4 * n + one_element
    )
    assert copy(view).bytes_read == one_element


def test_a_destination_that_is_its_own_source_is_not_read() -> None:
    n = 10
    spec = TensorSpec((n,))
    view = OpView("copy", ins=(spec, spec), outs=(spec,), attrs={"overwrites": True}, reads=4 * n)
    assert copy(view) == Cost(bytes_written=4 * n)
    part = OpView("copy", ins=(spec, spec), outs=(spec,), attrs={"overwrites": True}, reads=4)
    assert copy(part).bytes_read == 0


def test_creating_only_writes(cost: Any) -> None:
    n = 10
    assert cost("create", [], [(n,)]) == Cost(bytes_written=4 * n)
    assert cost("create", [(n,)], [(n,)]) == Cost(bytes_written=4 * n)


def test_an_embedding_reads_only_the_rows_it_looks_up(cost: Any) -> None:
    vocabulary, width, tokens = 50_000, 64, 7
    assert cost("embedding", [(vocabulary, width), int64(tokens)], [(tokens, width)]) == Cost(
        bytes_read=4 * tokens * width + 8 * tokens, bytes_written=4 * tokens * width
    )


def test_an_embedding_never_reads_more_than_its_table(cost: Any) -> None:
    vocabulary, width, tokens = 5, 64, 700
    result = cost("embedding", [(vocabulary, width), int64(tokens)], [(tokens, width)])
    assert result.bytes_read == 4 * vocabulary * width + 8 * tokens


@pytest.mark.parametrize(
    ("reduce", "weighted", "per_looked_up", "per_output"),
    [("sum", False, 1, 0), ("max", False, 1, 0), ("mean", False, 1, 1), ("sum", True, 2, 0)],
)
def test_an_embedding_bag_combines_the_rows(
    cost: Any, reduce: str, weighted: bool, per_looked_up: int, per_output: int
) -> None:
    vocabulary, width, bags, each = 100, 8, 3, 5
    weights = [(bags, each)] if weighted else []
    result = cost(
        "embedding",
        [(vocabulary, width), int64(bags, each), *weights],
        [(bags, width)],
        reduce=reduce,
        weighted=weighted,
    )
    assert result.flops == bags * each * width * per_looked_up + bags * width * per_output
    assert result.bytes_read == 4 * bags * each * width + 8 * bags * each + 4 * bags * each * weighted


def test_the_gradient_of_an_embedding_adds_every_row_and_writes_the_table(cost: Any) -> None:
    vocabulary, width, tokens = 50, 8, 7
    assert cost("embedding", [(tokens, width), int64(tokens)], [(vocabulary, width)], grad=True) == Cost(
        flops=tokens * width, bytes_read=4 * tokens * width + 8 * tokens, bytes_written=4 * vocabulary * width
    )


def test_a_gather_reads_only_what_it_picks(cost: Any) -> None:
    rows, width, picked = 1000, 8, 7
    assert cost("gather", [(rows, width), int64(picked)], [(picked, width)]) == Cost(
        bytes_read=4 * picked * width + 8 * picked, bytes_written=4 * picked * width
    )


def test_a_gather_never_reads_more_than_there_is(cost: Any) -> None:
    assert cost("gather", [(2, 8), int64(700)], [(700, 8)]).bytes_read == 4 * 2 * 8 + 8 * 700


def test_a_scatter_copies_what_it_does_not_put(cost: Any) -> None:
    rows, width, put = 1000, 8, 7
    result = cost("scatter", [(rows, width), int64(put, width), (put, width)], [(rows, width)])
    assert result == Cost(
        bytes_read=4 * rows * width + 8 * put * width + 4 * put * width, bytes_written=4 * rows * width
    )


@pytest.mark.parametrize(
    ("fn", "per_element"), [("copy", 0), ("add", 1), ("mul", 1), ("max", 1), ("min", 1), ("mean", 2)]
)
def test_a_scatter_in_place_moves_only_what_it_puts(cost: Any, fn: str, per_element: int) -> None:
    rows, width, put = 1000, 8, 7
    result = cost("scatter", [(rows, width), int64(put, width), (put, width)], [(rows, width)], fn=fn, overwrites=True)
    touched = 4 * put * width
    assert result == Cost(
        flops=put * width * per_element,
        bytes_read=8 * put * width + 4 * put * width + (touched if per_element else 0),
        bytes_written=touched,
    )


def test_a_complex_sum_adds_both_parts_of_what_it_puts(cost: Any) -> None:
    x, put = TensorSpec((10, 8), "complex64"), TensorSpec((7, 8), "complex64")
    assert cost("scatter", [x, int64(7, 8), put], [x], fn="add").flops == 2 * 7 * 8


def test_a_scatter_in_place_never_writes_more_than_there_is(cost: Any) -> None:
    result = cost("scatter", [(2, 8), int64(70, 8), (70, 8)], [(2, 8)], fn="add", overwrites=True)
    assert result.bytes_written == 4 * 2 * 8
    assert result.bytes_read == (8 + 4) * 70 * 8 + 4 * 2 * 8


def test_a_scatter_of_one_value_puts_as_many_as_there_are_indices(cost: Any) -> None:
    result = cost("scatter", [(10, 8), int64(7, 8)], [(10, 8)], fn="add")
    assert result.flops == 7 * 8


def test_the_third_tensor_is_what_is_put_whatever_follows_it(cost: Any) -> None:
    result = cost("scatter", [(10, 8), int64(7, 8), (7, 8), int64(1)], [(10, 8)], fn="add")
    assert result.flops == 7 * 8


def test_the_front_end_may_say_how_many_elements_are_put(cost: Any) -> None:
    rows, width, put = 10, 8, 3  # whole rows by index, from one broadcast value
    result = cost("scatter", [(rows, width), int64(put), ()], [(rows, width)], fn="add", elements=put * width)
    assert result.flops == put * width


class TestCollective:
    RANKS, N = 4, 64

    def test_all_reduce_passes_the_ring_twice_and_adds(self, cost: Any) -> None:
        g, n = self.RANKS, self.N
        assert cost("collective", [(n,)], [(n,)], fn="all_reduce", group=g) == Cost(
            flops=(g - 1) * n // g, bytes_read=2 * (g - 1) * 4 * n // g, bytes_written=2 * (g - 1) * 4 * n // g
        )

    def test_all_reduce_is_reduce_scatter_and_all_gather(self, cost: Any) -> None:
        g, n = self.RANKS, self.N
        scatter = cost("collective", [(n,)], [(n // g,)], fn="reduce_scatter", group=g)
        gather = cost("collective", [(n // g,)], [(n,)], fn="all_gather", group=g)
        assert scatter + gather == cost("collective", [(n,)], [(n,)], fn="all_reduce", group=g)

    def test_all_gather_receives_the_others_parts(self, cost: Any) -> None:
        g, n = self.RANKS, self.N
        result = cost("collective", [(n,)], [(g * n,)], fn="all_gather", group=g)
        assert result == Cost(bytes_read=4 * (g - 1) * n, bytes_written=4 * (g - 1) * n)

    def test_all_to_all_keeps_its_own_part(self, cost: Any) -> None:
        g, n = self.RANKS, self.N
        result = cost("collective", [(n,)], [(n,)], fn="all_to_all", group=g)
        assert result == Cost(bytes_read=4 * n * (g - 1) // g, bytes_written=4 * n * (g - 1) // g)

    def test_one_way_traffic_and_waiting(self, cost: Any) -> None:
        n = self.N
        assert cost("collective", [(n,)], [(n,)], fn="broadcast") == Cost(bytes_read=4 * n, bytes_written=4 * n)
        assert cost("collective", [(n,)], [], fn="send") == Cost(bytes_read=4 * n)
        assert cost("collective", [], [(n,)], fn="recv") == Cost(bytes_written=4 * n)
        assert cost("collective", [(n,)], [(n,)], fn="wait") == ZERO

    def test_a_sum_for_one_rank_passes_all_of_it_from_rank_to_rank(self, cost: Any) -> None:
        n = self.N
        summed = cost("collective", [(n,)], [(n,)], fn="reduce", group=self.RANKS)
        assert summed == Cost(flops=n, bytes_read=4 * n, bytes_written=4 * n)

    def test_the_root_gets_or_gives_all_parts_but_its_own(self, cost: Any) -> None:
        g, n = self.RANKS, self.N
        part, parts = [(n,)], [(n,)] * g
        assert cost("collective", part, parts, fn="gather", group=g) == Cost(bytes_written=4 * n * (g - 1))
        assert cost("collective", part, [], fn="gather", group=g) == Cost(bytes_read=4 * n)
        assert cost("collective", parts, part, fn="scatter", group=g) == Cost(bytes_read=4 * n * (g - 1))
        assert cost("collective", [], part, fn="scatter", group=g) == Cost(bytes_written=4 * n)

    @pytest.mark.parametrize("fn", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"])
    def test_one_rank_alone_moves_nothing(self, cost: Any, fn: str) -> None:
        assert cost("collective", [(self.N,)], [(self.N,)], fn=fn, group=1) == ZERO

    def test_an_unknown_number_of_ranks_is_taken_as_large(self, cost: Any) -> None:
        n = self.N
        assert cost("collective", [(n,)], [(n,)], fn="all_reduce") == Cost(
            flops=n, bytes_read=2 * 4 * n, bytes_written=2 * 4 * n
        )
