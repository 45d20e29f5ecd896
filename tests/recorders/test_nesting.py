"""Which operator owns which kernel, by hand-made events of a GPU."""

from __future__ import annotations

from opcost.core.profile import Kernel
from opcost.recorders.torch.events import (
    ASIDE,
    BACKWARD,
    MODULE,
    STEP,
    DeviceEvent,
    EventNode,
    HostEvent,
    Nesting,
)
from opcost.recorders.torch.rows import rows_of

MAIN, ENGINE = 100, 200
PATHS = ("", "conv", "fc")


def host(
    name: str,
    start: int,
    end: int,
    *,
    thread: int = MAIN,
    correlation: int = 0,
    sequence: int = -1,
    forward_thread: int = 0,
) -> HostEvent:
    runtime = name.startswith("cuda")
    number = 1 if thread == MAIN else 2
    return HostEvent(start, end, name, thread, number, forward_thread, sequence, False, correlation, runtime, (), ())


def kernel(start: int, duration: int, correlation: int, operator: int = 0) -> DeviceEvent:
    return DeviceEvent(Kernel(f"kernel{correlation}", "gpu:0", "7", start, duration), correlation, operator)


def step(*events: HostEvent) -> list[HostEvent]:
    """Events inside one step, in the order in which the recorder sorts them."""
    return sorted([host(f"{STEP}0", 0, 1000), *events], key=lambda event: (event.start_ns, -event.end_ns))


def everything(nesting: Nesting) -> dict[str, EventNode]:
    return {node.event.name: node for root in nesting.roots for node in root.walk()}


def test_a_kernel_belongs_to_the_innermost_operator_around_its_launch() -> None:
    events = step(
        host(f"{MODULE}1", 10, 100),
        host("aten::conv2d", 20, 90, correlation=1),
        host("aten::cudnn_convolution", 30, 80, correlation=2),
        host("cudaLaunchKernel", 40, 50, correlation=900),
    )
    nesting = Nesting(events, [kernel(60, 500, 900)], PATHS)
    assert [event.name for event in everything(nesting)["aten::cudnn_convolution"].kernels] == ["kernel900"]
    (row,) = rows_of(nesting.roots, {}, with_device=True)
    assert (row.type, row.module, row.device, row.device_ns, row.device_total_ns) == (
        "aten::conv2d",
        "conv",
        "gpu:0",
        500,
        500,
    )
    assert row.host_self_ns == row.host_ns == 70


def test_a_kernel_knows_when_it_was_launched_unless_a_graph_replays_it() -> None:
    events = step(
        host("aten::addmm", 20, 90, correlation=1),
        host("cudaLaunchKernel", 40, 50, correlation=900),
        host("cudaGraphLaunch", 100, 110, correlation=901),
    )
    nesting = Nesting(events, [kernel(60, 500, 900), kernel(700, 5, 901)], PATHS)
    rows = rows_of(nesting.roots, {}, with_device=True)
    assert [[k.launched_ns for k in row.kernels] for row in rows] == [[40], [None]]


def test_the_launch_decides_where_the_profilers_link_says_otherwise() -> None:
    events = step(
        host("aten::empty", 20, 30, correlation=1),
        host("aten::addmm", 40, 90, correlation=2),
        host("cudaMemsetAsync", 50, 55, correlation=900),
    )
    nesting = Nesting(events, [kernel(60, 5, 900, operator=1)], PATHS)
    assert not everything(nesting)["aten::empty"].kernels
    assert everything(nesting)["aten::addmm"].kernels


def test_the_profilers_link_serves_where_the_launch_was_not_seen() -> None:
    nesting = Nesting(step(host("aten::addmm", 40, 90, correlation=2)), [kernel(60, 5, 900, operator=2)], PATHS)
    assert everything(nesting)["aten::addmm"].kernels
    assert not nesting.unattributed


def test_a_launch_outside_any_operator_is_a_row_of_its_own() -> None:
    events = step(host(f"{MODULE}2", 10, 100), host("cudaGraphLaunch", 40, 50, correlation=900))
    nesting = Nesting(events, [kernel(60, 5, 900), kernel(70, 6, 900)], PATHS)
    (row,) = rows_of(nesting.roots, {}, with_device=True)
    assert (row.type, row.module, row.device_ns, len(row.kernels)) == ("cudaGraphLaunch", "fc", 5 + 6, 2)


def test_waiting_for_the_device_is_no_row() -> None:
    nesting = Nesting(step(host("cudaDeviceSynchronize", 900, 990, correlation=900)), [], PATHS)
    assert rows_of(nesting.roots, {}, with_device=True) == ()


def test_device_work_without_a_launch_is_unattributed_and_kept() -> None:
    nesting = Nesting(step(host("aten::add", 10, 20, correlation=1)), [kernel(60, 5, 900)], PATHS)
    assert [kernel.name for kernel in nesting.unattributed] == ["kernel900"]


def test_what_the_recorder_runs_between_steps_is_left_out() -> None:
    aside = [
        host(ASIDE, -100, -50),
        host("aten::zero_", -90, -60, correlation=1),
        host("cudaMemsetAsync", -80, -70, correlation=900),
    ]
    nesting = Nesting([*aside, *step(host("aten::add", 10, 20, correlation=2))], [kernel(-75, 5, 900)], PATHS)
    assert set(everything(nesting)) == {"aten::add"}
    assert not nesting.unattributed


def test_a_backward_pass_on_its_own_thread_finds_step_module_and_phase() -> None:
    events = [
        *step(
            host(f"{MODULE}1", 10, 100),
            host("aten::mul", 15, 18, sequence=7),  # makes no node, and sees the number of the next
            host("aten::conv2d", 20, 90, sequence=7),
            host(BACKWARD, 200, 900),
        ),
        host(
            "autograd::engine::evaluate_function: ConvolutionBackward0",
            300,
            400,
            thread=ENGINE,
            sequence=7,
            forward_thread=1,
        ),
        host("aten::convolution_backward", 310, 390, thread=ENGINE),
    ]
    nodes = everything(Nesting(events, [], PATHS))
    assert nodes["aten::convolution_backward"].place == (0, "conv", "backward")
    assert nodes["aten::conv2d"].place == (0, "conv", "forward")


def test_of_operators_with_one_number_the_last_made_the_node() -> None:
    events = step(
        host(f"{MODULE}1", 10, 50),
        host("aten::mul", 15, 18, sequence=7),
        host(f"{MODULE}2", 60, 100),
        host("aten::linear", 70, 90, sequence=7),
        host(BACKWARD, 200, 900),
        host("autograd::engine::evaluate_function: AddmmBackward0", 300, 400, sequence=7, forward_thread=1),
        host("aten::mm", 310, 390),
    )
    assert everything(Nesting(events, [], PATHS))["aten::mm"].place.module == "fc"


def test_self_time_is_what_no_inner_row_has() -> None:
    events = step(host("MyFunction", 100, 200), host("aten::add", 120, 150), host("aten::mul", 160, 170))
    rows = rows_of(Nesting(events, [], PATHS).roots, {}, with_device=False)
    assert [(row.type, row.host_ns, row.host_self_ns) for row in rows] == [
        ("MyFunction", 100, 100 - 30 - 10), ("aten::add", 30, 30), ("aten::mul", 10, 10),
    ]  # fmt: skip
