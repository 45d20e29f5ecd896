"""What of the communication of a rank runs beside its operators, on programs small enough to draw."""

from collections.abc import Mapping
from typing import Any

from opcost.core.graph import Cost, Op, Phase, TensorSpec
from opcost.core.overlap import Timeline, overlapped, timeline
from opcost.core.report import Row

SPEC = TensorSpec((1,))


class Program:
    """Operators, each with its time; values are named by numbers."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.taken: dict[int, float] = {}

    def run(
        self, kind: str, ins: tuple[int, ...], outs: tuple[int, ...], ns: float = 0, *, phase: Phase = "forward",
        raw: str = "", **attrs: Any,
    ) -> None:  # fmt: skip
        op = Op(len(self.rows), kind, raw or kind, ins, outs, attrs, phase=phase)
        self.taken[op.id] = ns
        self.rows.append(Row(op, (SPEC,), (SPEC,), Cost(0, round(ns), 0, 0), ""))

    def send(self, fn: str, value: int, result: int, ns: float, axis: str = "fsdp") -> None:
        self.run("collective", (value,), (result,), ns, fn=fn, axis=axis, group=8)

    def timeline(
        self, *inputs: int, speed: float = 1.0, launched: Mapping[int, float] | None = None, in_parts: str = ""
    ) -> Timeline:
        return timeline(self.rows, inputs, self.taken, lambda row: self.taken[row.op.id], launched, speed, in_parts)


def gathered_block(program: Program, shard: int, gathered: int, activation: int) -> None:
    """Gather a block's parameters (10 ns to copy in, 100 to send), copy them out (20 ns), and compute with them (300 ns)."""
    program.run("copy", (shard,), (gathered,), 10)
    program.send("all_gather", gathered, gathered + 1, 100)
    program.run("view", (gathered + 1,), (gathered + 2,))
    program.run("copy", (gathered + 2,), (gathered + 3,), 20)
    program.run("matmul", (activation, gathered + 3), (activation + 1,), 300)


def test_parameters_are_gathered_one_block_ahead() -> None:
    program = Program()
    for block in range(3):
        gathered_block(program, block, 100 + 10 * block, 50 + block)
    found = program.timeline(50)
    # The first gather has nothing to run beside: 10 + 100. Then each block takes 20 + 300; the next gather begins after the 20.
    assert found.end_ns == 110 + 3 * 320
    assert [sent.exposed_ns for sent in found.sent] == [110, 0, 0]
    assert [sent.start_ns for sent in found.sent] == [10, 110 + 20 + 10, 110 + 320 + 20 + 10]
    assert found.exposed_ns() == {"fsdp": 110}
    assert found.taken_ns() == {"fsdp": 300}
    assert found.waits == [("fsdp", 0, 110)]
    assert found.copied == [("fsdp", 0, 0, 10), ("fsdp", 5, 130, 140), ("fsdp", 10, 450, 460)]


def test_a_sum_over_ranks_holds_up_what_reads_it() -> None:
    program = Program()
    program.run("matmul", (0,), (1,), 300)
    program.send("all_reduce", 1, 2, 80, "tp")
    program.run("collective", (2,), (3,), fn="wait")
    program.run("elementwise", (3,), (4,), 50)
    assert program.timeline(0).end_ns == 300 + 80 + 50
    assert program.timeline(0).exposed_ns() == {"tp": 80}


def test_gradients_are_scattered_beside_the_next_block_and_before_the_next_scatter() -> None:
    program = Program()
    for block in range(2):
        program.run("matmul", (block,), (block + 1,), 100, phase="backward")
        program.send("reduce_scatter", block + 1, 10 + block, 150)
    program.run("elementwise", (10, 11), (20,), 30, phase="update")
    found = program.timeline(0)
    # The first one runs from 100 to 250, beside the second block until 200; the second from 250 to 400, before the update.
    assert [sent.start_ns for sent in found.sent] == [100, 250]
    assert [sent.exposed_ns for sent in found.sent] == [50, 150]
    assert found.end_ns == 430


def test_an_axis_sends_one_thing_at_a_time_and_two_axes_both() -> None:
    program = Program()
    program.run("matmul", (0,), (1,), 10, phase="backward")
    program.send("all_reduce", 1, 2, 100, "replicate")
    program.send("all_reduce", 1, 3, 100, "replicate")
    program.send("all_reduce", 1, 4, 100, "tp")
    found = program.timeline(0)
    assert [sent.start_ns for sent in found.sent] == [10, 110, 10]
    assert found.end_ns == 210
    assert sum(found.exposed_ns().values()) == 200


def test_a_gather_of_what_was_computed_is_not_ahead() -> None:
    program = Program()
    program.run("matmul", (0,), (1,), 100)
    program.send("all_gather", 1, 2, 40, "tp")
    program.run("matmul", (2,), (3,), 100)
    assert program.timeline(0).end_ns == 240


def test_without_collectives_the_operators_follow_one_another() -> None:
    taken: Mapping[int, float] = {0: 5.0, 1: 7.0}
    program = Program()
    program.run("matmul", (0,), (1,))
    program.run("matmul", (1,), (2,))
    assert timeline(program.rows, (0,), taken, lambda row: 0.0).end_ns == 12


def test_operators_beside_a_collective_keep_a_part_of_their_speed() -> None:
    program = Program()
    program.run("matmul", (0,), (1,), 300)
    program.send("reduce_scatter", 1, 2, 100)
    program.run("matmul", (0,), (3,), 30)
    program.run("matmul", (0,), (4,), 300)
    found = program.timeline(0, speed=0.6)
    # In the 100 of the collective 60 of the work of 330 that follows is done.
    assert found.end_ns == 300 + 330 + 40
    assert found.slowing_ns() == {"fsdp": 40}
    assert found.exposed_ns() == {"fsdp": 0}
    assert found.ran == [(0, 0, 300), (2, 300, 350), (3, 350, 670)]


def test_a_gather_slows_what_ran_since_it_began() -> None:
    program = Program()
    for block in range(3):
        gathered_block(program, block, 100 + 10 * block, 50 + block)
    found = program.timeline(50, speed=0.5)
    # The first gather has nothing beside it; each of the others runs 100, half of which the block before it is later.
    assert found.end_ns == 110 + 3 * 320 + 2 * 50
    assert [sent.slowing_ns for sent in found.sent] == [0, 50, 50]


def test_sums_of_fsdp_are_converted_where_they_were_made() -> None:
    program = Program()
    program.run("matmul", (0,), (1,), 300, phase="backward")
    program.run("collective", (1,), (2,), 100, phase="backward", raw="c10d::_reduce_scatter_base_", fn="reduce_scatter")
    program.run("copy", (2,), (3,), 50, phase="backward")
    program.run("matmul", (0,), (4,), 300, phase="backward")
    program.run("elementwise", (3,), (5,), 10, phase="update")
    found = program.timeline(0)
    assert found.end_ns == 300 + 300 + 10
    assert found.beside == {2}
    assert found.taken_ns() == {"": 150}


def tensor_parallel(sending: float) -> Program:
    """Gather parts of the sequence, two products of 100, scatter the sums, add them in 10; then gather and multiply again."""
    program = Program()
    program.send("all_gather", 0, 1, sending, "tp")
    program.run("matmul", (1,), (2,), 100)
    program.run("matmul", (2,), (3,), 100)
    program.send("reduce_scatter", 3, 4, sending, "tp")
    program.run("elementwise", (4,), (5,), 10)
    program.send("all_gather", 5, 6, sending, "tp")
    program.run("matmul", (6,), (7,), 100)
    return program


def test_what_is_sent_in_parts_runs_beside_the_products_that_read_and_make_them() -> None:
    program = tensor_parallel(40)
    assert program.timeline(0).end_ns == 40 + 200 + 40 + 10 + 40 + 100
    found = program.timeline(0, in_parts="tp")
    # Sums of the second product leave while it runs, and the last when it is done.
    assert [(sent.start_ns, sent.end_ns) for sent in found.sent] == [(0, 40), (160, 200), (210, 250)]
    assert found.exposed_ns() == {"tp": 0}
    assert found.end_ns == 200 + 10 + 100
    assert program.timeline(0, in_parts="fsdp").end_ns == program.timeline(0).end_ns
    # Half of the speed is left beside the 40 of each of the three.
    slowed = program.timeline(0, in_parts="tp", speed=0.5)
    assert slowed.slowing_ns() == {"tp": 3 * 20}
    assert slowed.end_ns == 310 + 3 * 20
    # The second product began when the first one, 20 later for the gather, was done, and is 20 later for the scatter itself.
    assert slowed.ran[:3] == [(1, 0, 120), (2, 120, 240), (4, 240, 250)]


def test_what_is_sent_in_parts_for_longer_than_products_run_is_waited_for() -> None:
    found = tensor_parallel(250).timeline(0, in_parts="tp")
    # The products end at 200, the gather at 250: the scatter, which comes after it on this axis, ends at 500, the next gather
    # begins 10 later and ends at 760, long after the product that reads its pieces.
    assert [(sent.start_ns, sent.end_ns) for sent in found.sent] == [(0, 250), (250, 500), (510, 760)]
    assert found.exposed_ns() == {"tp": 50 + 250 + 150}
    assert found.end_ns == 760


def test_nothing_begins_before_the_host_has_launched_it() -> None:
    program = Program()
    for value in range(3):
        program.run("matmul", (value,), (value + 1,), 100)
    found = program.timeline(0, launched={0: 30, 1: 60, 2: 500})
    assert found.end_ns == 600
    assert found.host_ns == 30 + (500 - 230)


def beside(program: Program, *inputs: int) -> list[int]:
    """The FLOPs beside each collective; here an operator has as many as nanoseconds."""
    return [flops for _, flops in overlapped(program.rows, inputs)]


def test_a_gather_runs_beside_the_block_before() -> None:
    program = Program()
    for block in range(3):
        gathered_block(program, block, 100 + 10 * block, 50 + block)
    # It can begin when what was gathered before is copied out; the copy into it runs beside, and then it is copied out itself.
    assert beside(program, 50) == [0, 300 - 10, 300 - 10]


def test_nothing_runs_beside_what_is_read_at_once() -> None:
    program = Program()
    program.run("matmul", (0,), (1,), 300)
    program.send("all_reduce", 1, 2, 80, "tp")
    program.run("matmul", (2,), (3,), 300)
    program.send("all_reduce", 3, 4, 80, "tp")
    program.run("matmul", (0,), (5,), 200)  # it reads neither
    program.run("matmul", (4,), (6,), 300)
    assert beside(program, 0) == [0, 200]


def test_sums_of_gradients_run_until_the_next_ones_or_the_update() -> None:
    program = Program()
    for gradient in (10, 20, 30):
        program.run("matmul", (0,), (gradient,), 300, phase="backward")
        program.send("reduce_scatter", gradient, gradient + 1, 100)
    program.run("matmul", (0,), (40,), 50, phase="backward")
    program.run("elementwise", (31,), (41,), 70, phase="update")
    assert beside(program, 0) == [300, 300, 50]
