"""Containers and objects of the standard library that the instance holds, and that forward changes."""

from __future__ import annotations

import enum
import heapq
import queue
import types
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from stateful.registry import D, stateful
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)


@stateful("a deque with a bound, which drops its first")
class BoundedDeque(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.window: deque[Any] = deque([torch.zeros(D), torch.ones(D)], maxlen=2)

    def forward(self, x: Tensor) -> Tensor:
        self.window.append(self.layer(x).mean(0).detach())
        return self.layer(x) + sum(self.window)


@stateful("a ring buffer with a position")
class RingBuffer(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.ring: list[Any] = [torch.zeros(D) for _ in range(3)]
        self.at = 0

    def forward(self, x: Tensor) -> Tensor:
        self.ring[self.at % 3] = x.mean(0)
        self.at += 1
        return self.layer(x) + sum(self.ring)


@stateful("a queue.Queue")
class Queue(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.Queue[Any] = queue.Queue()
        self.queue.put(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + self.queue.get()
        self.queue.put(y.mean(0).detach())
        return y


@stateful("a queue.SimpleQueue, which shows nothing of what it holds", holder="simple")
class SimpleQueue(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.simple: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def forward(self, x: Tensor) -> Tensor:
        self.simple.put(self.layer(x))
        return self.layer(x) * self.simple.qsize()


@stateful("a heap of numbers and tensors")
class Heap(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.heap: list[Any] = [(0, torch.zeros(D)), (5, torch.ones(D))]

    def forward(self, x: Tensor) -> Tensor:
        count, least = heapq.heappop(self.heap)
        heapq.heappush(self.heap, (count + 2, x.mean(0)))
        return self.layer(x) + least


@stateful("a defaultdict that grows when a key is read")
class Defaults(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.by_length: defaultdict[int, list[Any]] = defaultdict(list)

    def forward(self, x: Tensor) -> Tensor:
        self.by_length[x.shape[1]].append(self.layer(x))
        return self.layer(x) * len(self.by_length[x.shape[1]])


@stateful("a Counter of lengths")
class Lengths(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lengths: Counter[int] = Counter()

    def forward(self, x: Tensor) -> Tensor:
        self.lengths[x.shape[1]] += 1
        return self.layer(x) * self.lengths[x.shape[1]]


@stateful("an OrderedDict whose order changes")
class Order(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.recent = OrderedDict(a=torch.ones(D), b=torch.zeros(D))

    def forward(self, x: Tensor) -> Tensor:
        first = next(iter(self.recent))
        self.recent.move_to_end(first)
        return self.layer(x) + self.recent[first]


@stateful("a UserDict and a UserList")
class UserContainers(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.mapping: UserDict[str, Any] = UserDict(scale=torch.ones(D))
        self.sequence: UserList[Any] = UserList()

    def forward(self, x: Tensor) -> Tensor:
        self.sequence.append(self.layer(x))
        self.mapping["scale"] = self.mapping["scale"] + 1
        return self.layer(x) * self.mapping["scale"]


@dataclass
class Plain:
    last: Any = None
    seen: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    last: Any = None
    seen: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    last: Any = None
    seen: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    last: Any = None
    seen: list[Any] = field(default_factory=list)


@stateful("dataclasses, with slots, frozen, and both")
class DataClasses(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = [Plain(), Slotted(), Frozen(), FrozenSlotted()]

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for holder in self.kept:
            object.__setattr__(holder, "last", y)
            holder.seen.append(y)
        return y * len(self.kept[0].seen)


class State(NamedTuple):
    mean: Any
    steps: int


@stateful("a named tuple that is replaced by the next one")
class NamedTupleState(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.state = State(torch.zeros(D), 0)

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state._replace(mean=self.state.mean + x.mean(0), steps=self.state.steps + 1)
        return self.layer(x) + self.state.mean * self.state.steps


@stateful("a list inside a tuple")
class ListInTuple(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.pair: tuple[Any, ...] = ([], {})

    def forward(self, x: Tensor) -> Tensor:
        self.pair[0].append(self.layer(x))
        self.pair[1][len(self.pair[0])] = x
        return self.layer(x) * len(self.pair[0])


class Stage(enum.Enum):
    WARM = 1
    HOT = 2


@stateful("attributes of the members of an enumeration")
class EnumMembers(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage.WARM

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        Stage.HOT.last = y  # type: ignore[attr-defined]
        self.stage = Stage.HOT if self.stage is Stage.WARM else Stage.WARM
        return y * self.stage.value


class Word:
    """A key of a mapping that can itself be changed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.uses: list[Any] = []


@stateful("keys of a dictionary that are changed")
class ChangedKeys(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scales = {Word("a"): torch.ones(D)}

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for word, scale in self.scales.items():
            word.uses.append(y)
            y = y * scale * len(word.uses)
        return y


@stateful("a set whose members are changed")
class ChangedMembers(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = {Word("a"), Word("b")}
        self.frozen = frozenset({Word("c")})

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for word in (*self.words, *self.frozen):
            word.uses.append(y)
        self.words.add(Word("d"))
        return y * len(self.words)


@stateful("a set that holds tensors")
class SetOfTensors(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tensors: set[Any] = {torch.ones(D)}

    def forward(self, x: Tensor) -> Tensor:
        self.tensors.add(self.layer(x).mean(0).detach())
        return self.layer(x) * len(self.tensors)


@stateful("a dictionary whose keys are tensors")
class TensorsAsKeys(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Any, Any] = {torch.ones(D): "first"}

    def forward(self, x: Tensor) -> Tensor:
        self.names[self.layer(x)] = "later"
        return self.layer(x) * len(self.names)


@stateful("a SimpleNamespace")
class Namespace(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(steps=0, nested=types.SimpleNamespace(last=None))

    def forward(self, x: Tensor) -> Tensor:
        self.config.steps += 1
        self.config.nested.last = y = self.layer(x) * self.config.steps
        return y


@stateful("a list that holds itself")
class Cycle(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.ring: list[Any] = []
        self.ring.append(self.ring)

    def forward(self, x: Tensor) -> Tensor:
        self.ring.append(self.layer(x))
        return self.layer(x) * len(self.ring)
