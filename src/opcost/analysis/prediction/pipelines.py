"""One rank of a pipeline in time: its passes of microbatches, and what it waits for other stages.

Each rank runs the events of its schedule one after another, each as long as its operators take, with the collectives beside them.
A stage begins with a microbatch when that has arrived. What is sent does not hold up the sender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from opcost.analysis.prediction.network import Network
from opcost.core.order import PieceOrder, StageEvent, StageMessage
from opcost.core.overlap import BESIDE, Sent, Timeline, passes, timeline
from opcost.core.report import Report, Row

Ends = Callable[[int, int], float]
"""What an event of a rank takes, by its place there."""
Passes = Callable[[int, StageMessage], float]
"""What a message of a rank takes."""


def ends_of(events: Sequence[Sequence[StageEvent]], taken_ns: Ends, sent_ns: Passes) -> list[float]:
    """When each rank has done its events."""
    received = [{each for event in own for each in event.messages if each.what == "recv"} for own in events]
    now, places = [0.0] * len(events), [0] * len(events)
    arrived: dict[StageMessage, float] = {}
    free: dict[tuple[int, str], float] = {}  # when a rank has sent what it was given, in each direction
    running = True
    while running:
        running = False
        for rank, own in enumerate(events):
            while places[rank] < len(own):
                event = own[places[rank]]
                needed = StageMessage(
                    "recv", "forward" if event.kind == "forward" else "backward", event.stage, event.microbatch
                )
                if event.kind in ("forward", "backward", "input") and needed in received[rank]:
                    if needed not in arrived:
                        break
                    now[rank] = max(now[rank], arrived[needed])
                for message in event.messages:
                    if message.what == "send":
                        begin = max(now[rank], free.get((rank, message.phase), 0.0))
                        end = free[rank, message.phase] = begin + sent_ns(rank, message)
                        to = message.stage + (1 if message.phase == "forward" else -1)
                        arrived[message._replace(what="recv", stage=to)] = end
                now[rank] += 0.0 if event.messages else taken_ns(rank, places[rank])
                places[rank] += 1
                running = True
    assert all(place == len(own) for place, own in zip(places, events, strict=True)), "ranks wait for each other"
    return now


def pipelined(
    report: Report, taken: Callable[[Report], Mapping[int, float]], network: Network, speed: float = BESIDE
) -> Timeline:
    """The step of the rank that was counted, with the time that each operator of a rank has `taken` in all of its runs."""
    ranks = [_Stages(each, taken(each), network, speed) for each in report.pipeline]
    place = 0 if network.mesh is None else network.mesh.coordinates(network.rank)["pp"]
    own, events = ranks[place], [each.order.events for each in ranks]

    def taken_ns(rank: int, at: int) -> float:
        return ranks[rank].ends[ranks[rank].order.runs[at]]

    alone = max(ends_of(events, taken_ns, lambda *_: 0.0))
    end = max(ends_of(events, taken_ns, lambda rank, message: ranks[rank].passes[message.phase]))
    busy = sum(own.ends[part] for part in own.order.runs)
    sending = sum(sent.taken_ns for sent in own.messages)
    for sent in own.messages:
        share = sent.taken_ns / sending if sending else 1 / len(own.messages)
        sent.exposed_ns = (end - alone) * share
    found = own.found
    return replace(found, end_ns=end, bubble_ns=alone - busy, sent=[*found.sent, *own.messages])


class _Stages:
    """A rank of a pipeline: how long each of its pieces takes, and each of its messages."""

    def __init__(self, report: Report, taken: Mapping[int, float], network: Network, speed: float) -> None:
        assert report.order is not None
        self.order: PieceOrder = report.order
        self.ends: list[float] = []
        self.messages: list[Sent] = []
        self.passes: dict[str, float] = {"forward": 0.0, "backward": 0.0}
        """What messages take that are sent in a phase."""
        self.found = Timeline()
        times = Counter(self.order.runs)
        sends = {part for part, event in zip(self.order.runs, self.order.events, strict=True) if event.messages}
        for part, (rows, given) in enumerate(passes(report.rows, report.input_values, report.parts)):
            if part in sends:
                self._send(rows, network, times[part])
                self.ends.append(0.0)
            else:
                self._run(rows, given, taken, network, times[part], speed)

    def _run(
        self, rows: Sequence[Row], inputs: Sequence[int], taken: Mapping[int, float], network: Network, times: int,
        speed: float,
    ) -> None:  # fmt: skip
        once = {row.op.id: taken.get(row.op.id, 0.0) / times for row in rows}
        found = timeline(
            rows, inputs, once, lambda row: network.taken_ns(row) / times, speed=speed, in_parts=network.in_parts
        )
        self.ends.append(found.end_ns)
        self.found.beside |= found.beside
        for sent in found.sent:
            self.found.sent.append(
                replace(
                    sent, taken_ns=sent.taken_ns * times, exposed_ns=sent.exposed_ns * times,
                    slowing_ns=sent.slowing_ns * times,
                )
            )  # fmt: skip

    def _send(self, rows: Sequence[Row], network: Network, times: int) -> None:
        sums: dict[str, float] = {}
        for row in rows:
            taken = network.message_ns(row)
            self.messages.append(Sent(row, "pp", 0.0, taken * row.op.repeat))
            if row.op.attrs["fn"] == "send":
                sums[row.op.phase] = sums.get(row.op.phase, 0.0) + taken * row.op.repeat / times
        self.passes.update(sums)
