"""Pipeline parallelism: the schedules, into how many microbatches a batch is split, and which blocks each stage has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from opcost.errors import InputError, UnknownName


class Schedule(NamedTuple):
    """A schedule by its name in PyTorch."""

    name: str
    meaning: str
    stages_per_rank: int = 1
    """Usual number; another than one is possible only where this is one of several."""
    folded: bool = False
    """The second half of the stages comes back from the last rank to the first."""


SCHEDULES: Mapping[str, Schedule] = {
    "1f1b": Schedule("1F1B", "each rank runs one microbatch forward and one backward in turns"),
    "gpipe": Schedule("GPipe", "all microbatches forward, then all backward"),
    "interleaved-1f1b": Schedule("Interleaved1F1B", "1F1B with several stages on each rank", 2),
    "zero-bubble": Schedule(
        "InterleavedZeroBubble", "gradients of weights wait until a rank has nothing else to do", 2
    ),
    "zero-bubble-v": Schedule(
        "ZBVZeroBubble", "the same with two stages on each rank, of which one comes back", 2, folded=True
    ),
}


@dataclass(frozen=True, kw_only=True)
class Pipelining:
    """How stages take turns; what is None follows from the rest."""

    schedule: str = "1f1b"
    microbatches: int | None = None
    stages_per_rank: int | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise UnknownName("schedule", self.schedule, SCHEDULES)
        for name, number in (("microbatches", self.microbatches), ("stages_per_rank", self.stages_per_rank)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise InputError(f"{name} is {number!r}; it must be a whole number above zero")
        usual = SCHEDULES[self.schedule].stages_per_rank
        if (self.folded and self.per_rank != usual) or usual == 1 < self.per_rank:
            hint = "schedules with several: interleaved-1f1b, zero-bubble"
            raise InputError(
                f"the schedule {self.schedule} has {usual} stages on each rank, not {self.per_rank}", hint=hint
            )

    @property
    def folded(self) -> bool:
        """Whether the second half of the stages comes back from the last rank to the first."""
        return SCHEDULES[self.schedule].folded

    @property
    def per_rank(self) -> int:
        """Stages on each rank."""
        return self.stages_per_rank or SCHEDULES[self.schedule].stages_per_rank

    def stages(self, rank: int, ranks: int) -> tuple[int, ...]:
        """The numbers of the stages on a rank."""
        if self.folded:
            return rank, 2 * ranks - 1 - rank
        return tuple(range(rank, ranks * self.per_rank, ranks))

    def rank_of(self, stage: int, ranks: int) -> int:
        """The rank that has a stage."""
        turn, place = divmod(stage, ranks)
        return ranks - 1 - place if self.folded and turn % 2 else place

    def split(self, batch: int, ranks: int) -> int:
        """Into how many microbatches a batch is split: twice as many as ranks, or the nearest number that divides the batch.

        Fewer than ranks only where the batch is that small.
        """
        if self.microbatches is not None:
            if batch % self.microbatches:
                fault = f"a batch of {batch} cannot be split into {self.microbatches} equal microbatches"
                raise InputError(fault, hint=f"a batch of {self.microbatches}, or a multiple of it")
            return self.microbatches
        divisors = [number for number in range(1, batch + 1) if batch % number == 0]
        enough = [number for number in divisors if number >= ranks] or divisors[-1:]
        return min(enough, key=lambda number: abs(number - 2 * ranks))


def blocks_of_stages(blocks: int, stages: int) -> tuple[range, ...]:
    """Which of equal blocks each stage has: as many as others, or one less.

    The last and the first stage, which also have what comes after and before the blocks, are the first to have less.
    """
    if blocks < stages:
        fits = [str(number) for number in range(2, blocks + 1)]
        hint = f"up to {blocks} stages" if fits else "leave pp out"
        raise InputError(f"{blocks} blocks cannot be split into {stages} stages", hint=hint)
    most = -(-blocks // stages)
    sizes = [most] * stages
    from_both_ends = chain.from_iterable(zip(reversed(range(stages)), range(stages), strict=True))
    for stage in [*from_both_ends][: most * stages - blocks]:
        sizes[stage] -= 1
    return tuple(range(first, end) for first, end in pairwise(accumulate(sizes, initial=0)))
