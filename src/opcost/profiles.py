"""A profile as users get it: what was measured, with methods that query, print and save it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opcost.core import profile as measured
from opcost.core.document import Number
from opcost.core.files import is_stream, write_text
from opcost.core.graph import Memory
from opcost.core.plugin import load_view, view_for_suffix
from opcost.core.profile import Answer
from opcost.core.profile_schema import dumps
from opcost.core.sheet import Sheet, Total
from opcost.core.showing import show_page
from opcost.core.units import format_time
from opcost.errors import SourceError
from opcost.rules import default_rules

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.prediction.predict import Share
    from opcost.core.profile import ProfileRow
    from opcost.options import Querying

PREDICTION = "prediction"  # in `extra` of a saved one
ROWS = 5_000  # rows of the table on a page, below the views of all operators


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(measured.Profile):
    """What was measured, in the order of execution; it answers questions."""

    def query(self, **options: Unpack[Querying]) -> Answer:
        """Ask: `profile.query(kind="conv", top=5, aggregate_by="type")`; `opcost.options.Querying` explains each option."""
        from opcost.analysis.query import query

        return query(self, **options)

    def breakdown(self) -> Sheet:
        """Where the time of each device went: computing, communication, copies, idle by cause."""
        from opcost.analysis.breakdown import breakdown
        from opcost.analysis.expected import compared

        return breakdown(self, compared(self))

    def allocations(self) -> Sheet:
        """Memory as the allocators recorded it: the peak of each device, its owners, and memory over time."""
        from opcost.analysis.breakdown import memory

        return memory(self)

    def communication(self, cluster: Any = None) -> Sheet:
        """Collectives by type, group and size beside what a cluster could do, exposed time by group, and stragglers."""
        from opcost.analysis.communication import communication

        return communication(self, cluster)

    def critical_path(self) -> Sheet:
        """What of host, launches, kernels and collectives decides how long the run takes, and what would help."""
        from opcost.analysis.critical_path import critical_path

        return critical_path(self)

    def launches(self) -> Sheet:
        """How far the host was ahead of its devices over time, and where they waited for it."""
        from opcost.analysis.critical_path import launches

        return launches(self)

    @property
    def answer(self) -> str:
        """One sentence with the answer, with which every format begins."""
        return self.analyze().answer

    def analyze(self, **options: Unpack[Querying]) -> Answer:
        """What `opcost analyze` shows of it: a query, without options the operators, added up where they have no names."""
        return self.query(**options) if options else self.query(aggregate_by=self.usual_keys)

    def __str__(self) -> str:
        return str(self.analyze())

    def _repr_html_(self) -> str:
        return self.analyze()._repr_html_()

    def page(self, device: Any = None) -> str:
        """Its page as HTML, with rates compared with the peaks of a device."""
        return self._written(load_view("html", "profile"), top=ROWS, device=device)

    def view(self, device: Any = None) -> Path | None:
        """Show its page, in a notebook below the cell, else in a browser; the file that the browser shows."""
        return show_page(self.page(device))

    def _stored(self) -> measured.Profile:
        """What of it is saved."""
        return self

    def _written(self, view: Any, **query: Any) -> str:
        answer = self.query(aggregate_by=self.usual_keys, **query)
        return str(view.render(answer, **more_for(view, self)))

    def to_dict(self, **options: Unpack[Querying]) -> dict[str, list[Any]]:
        """The answer of `query` as columns, named as for `--columns`; times in nanoseconds."""
        return self.analyze(**options).to_dict()

    def to_pandas(self, **options: Unpack[Querying]) -> Any:
        """The same as a `pandas.DataFrame`."""
        return self.analyze(**options).to_pandas()

    def to_polars(self, **options: Unpack[Querying]) -> Any:
        """The same as a `polars.DataFrame`."""
        return self.analyze(**options).to_polars()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile: to a `.json` all of it, for `opcost.read_profile`; to other files what `str` shows, by the suffix.

        Whatever goes wrong, the old file is as it was.
        """
        view = None if is_stream(path) else view_for_suffix(path, "profile")
        if view is None or view.suffix == ".json":
            write_text(path, dumps(self._stored()))
        else:
            write_text(path, self._written(view))


# -- predictions -----------------------------------------------------------------------------------------------------------


class CacheCopies(NamedTuple):
    """What copies of a growing cache take: each new token is concatenated with all keys and values before it."""

    time_ns: int
    time_share: float
    bytes: int
    bytes_share: float

    @classmethod
    def of(cls, rows: Sequence[ProfileRow]) -> CacheCopies | None:
        """Those among the operators that were predicted; None where there are none, as with a static cache."""

        def sums(rows: Sequence[ProfileRow]) -> tuple[int, int]:
            moved = (row.count * (row.cost.bytes_read + row.cost.bytes_written) for row in rows if row.cost is not None)
            return sum(row.device_ns or 0 for row in rows), sum(moved)

        copies = [row for row in rows if row.type.rpartition("::")[2] == "cat" and _lengthens(row)]
        (time, size), (all_time, all_size) = sums(copies), sums(rows)
        return cls(time, time / all_time, size, size / all_size) if copies and all_time and all_size else None


def _lengthens(row: ProfileRow) -> bool:
    """It puts new tokens behind those of a cache: batch, heads, tokens, features."""
    if len(row.ins) != 2 or len(row.outs) != 1 or not all(spec.known for spec in (*row.ins, *row.outs)):
        return False
    cached, new, made = (spec.dims for spec in (*row.ins, *row.outs))
    if not len(cached) == len(new) == len(made) == len("BHTF"):
        return False
    return (*made[:2], made[3]) == (*cached[:2], cached[3]) == (*new[:2], new[3]) and made[2] == cached[2] + new[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTimes:
    """What a language model takes to read a prompt and to generate tokens."""

    batch: int  # sequences at once
    first_token_ns: int | None  # time to the first token: the whole prefill; None for a decode step
    token_ns: int | None  # between two tokens of a sequence, on average; None for a prefill
    tokens_per_second: float  # of all sequences together: tokens generated, and for a prefill tokens read
    cache_tokens: int  # tokens in the cache of each sequence at the end
    cache_bytes: int  # size of the cache of all sequences then
    cache_bytes_per_token: int  # what one more token of each sequence adds
    copies: CacheCopies | None = None  # of a cache that grows
    largest_batch: int | None = None  # sequences whose cache a serving engine has memory for

    @property
    def totals(self) -> tuple[Total, ...]:
        """The same as totals of a sheet; what does not fit the device has no throughput."""
        tokens = f"{self.cache_tokens:,} tokens a sequence"
        found = [
            Total(
                "tokens/s", round(self.tokens_per_second, 1), "number", remark=f"at batch size {self.batch}", large=True
            )
        ]
        if self.first_token_ns is not None:
            found.append(Total("first token", self.first_token_ns, "time"))
        if self.token_ns is not None:
            found.append(Total("each token", self.token_ns, "time"))
        found.append(Total("cache", self.cache_bytes, "bytes", remark=tokens))
        found.append(Total("  per token", self.cache_bytes_per_token, "bytes", remark="one more of each text"))
        if self.largest_batch is not None:
            found.append(Total("largest batch", self.largest_batch, "number", remark=f"with {tokens}"))
        if self.copies is not None:
            static = f"of the time; --static {self.cache_tokens} avoids them"  # which has room at 80 columns
            found.append(Total("cache copies", self.copies.time_share, "share", remark=static))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """How fast one rank of many is in a pass or step, and what it waits for."""

    cluster: str
    compute_ns: int  # its operators, one after another
    exposed_ns: Mapping[str, int]  # in which operators wait for collectives, by axis of the mesh
    slowing_ns: Mapping[str, int]  # by which collectives slow the operators beside them, by axis
    sending_ns: Mapping[str, int]  # in which collectives run, by axis
    tokens_per_second: float | None  # of this GPU's share; None where the model reads no tokens
    mfu: float | None  # of the peak for products: three times those of the forward pass, of inference those alone
    hfu: float | None  # every product that runs
    bubble_ns: int = 0  # in which a stage of a pipeline has nothing to do

    @property
    def bubble_share(self) -> float:
        """The bubble as a share of the step."""
        step = self.compute_ns + self.bubble_ns + sum((*self.exposed_ns.values(), *self.slowing_ns.values()))
        return self.bubble_ns / step if step else 0.0

    @property
    def totals(self) -> tuple[Total, ...]:
        """The same as totals of a sheet."""
        found = [Total("computing", self.compute_ns, "time", remark="operators, one after another")]
        for axis, waited in sorted(self.exposed_ns.items(), key=lambda item: -item[1]):
            beside = (
                f"that run {format_time(self.sending_ns[axis])} and slow others by {format_time(self.slowing_ns[axis])}"
            )
            found.append(Total(f"waiting {axis}".rstrip(), waited, "time", remark=f"for collectives {beside}"))
        if self.bubble_ns:
            remark = f"{100 * self.bubble_share:.1f} % of the step: this stage has nothing to do"
            found.append(Total("bubble", self.bubble_ns, "time", remark=remark))
        if self.tokens_per_second is not None:
            found.append(Total("tokens/s", round(self.tokens_per_second, 1), "number", remark="per GPU", large=True))
        if self.mfu is not None:
            remark = "of the peak: 3 times the products of the forward pass, of inference once"
            found.append(Total("MFU", self.mfu, "share", remark=remark, large=True))
        if self.hfu is not None:
            found.append(Total("HFU", self.hfu, "share", remark="every product that runs"))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prediction(Profile):
    """A profile of what was not run: each operator with the time it would take, and what they add up to."""

    latency_ns: int
    """Kernels and the gaps between them; in eager execution also the time in which the device waits for its host."""
    kernel_ns: int
    """The kernels alone."""
    band_ns: tuple[int, int]
    """The 80 % interval: 80 % of the measured models were inside it."""
    ideal_ns: int
    """Every operator at the peaks that the maker of the device prints."""
    bounds: Mapping[str, int]
    """The time of operators by what bounds them: compute, memory, launch, host."""
    likened_ns: int = 0
    """The time of operators like which nothing was timed, taken from those that are most like them."""
    memory: Memory | None = None
    """The memory of the pass or step as the device would hold it; of a text that is written, that of its largest step."""
    text: TextTimes | None = None
    """Of a language model what prefill, decode or generate take."""
    fits: bool | None = None
    """Whether the memory of the device is enough; None where that is not known."""
    step: RankStep | None = None
    """Of one rank of many: what it waits for, tokens per second and the use of the peak."""

    def _summary(self) -> list[str]:
        low, high = map(format_time, self.band_ns)
        return [
            f"{format_time(self.latency_ns)} on {self.meta.get('device', 'a device')}",
            f"80 % interval {low} – {high}",
            f"{len(self.rows):,} operators",
        ]

    def query(self, **options: Unpack[Querying]) -> Answer:
        """The answer to a query, as of any profile, with what was predicted."""
        return replace(Profile.query(self, **options), predicted=self)

    def _stored(self) -> measured.Profile:
        memory = self.memory and replace(self.memory, curve=[*self.memory.curve], layers={}, lives=None)
        found = {name: getattr(self, name) for name in _SavedPrediction.__struct_fields__} | {"memory": memory}
        return replace(self, extra={**self.extra, PREDICTION: msgspec.to_builtins(_SavedPrediction(**found))})

    def shares(self, by: str = "module", depth: int | None = None) -> tuple[Share, ...]:
        """For each module, type, kind or name: its time, the same at the printed peaks, and what bounds it."""
        from opcost.analysis.prediction.predict import shares

        return shares(self, by, depth)


class _SavedPrediction(msgspec.Struct, forbid_unknown_fields=True):
    """What a prediction adds to a profile, as saved in its `extra`."""

    latency_ns: Number
    kernel_ns: Number
    band_ns: tuple[Number, Number]
    ideal_ns: Number
    bounds: dict[str, Number]
    memory: Memory | None
    text: TextTimes | None
    fits: bool | None
    likened_ns: Number = 0
    step: RankStep | None = None


def _restored(found: measured.Profile) -> Prediction:
    """The prediction that was saved as this profile."""
    extra = dict(found.extra)
    try:
        saved = msgspec.convert(extra.pop(PREDICTION), _SavedPrediction)
    except msgspec.ValidationError as exc:
        raise SourceError(
            f"what the profile says about its {PREDICTION} is damaged: {exc}", hint="predict again"
        ) from exc
    profile = {field.name: getattr(found, field.name) for field in fields(found)} | {"extra": extra}
    return Prediction(**profile, **{name: getattr(saved, name) for name in _SavedPrediction.__struct_fields__})


def more_for(view: Any, found: measured.Profile) -> dict[str, Any]:
    """What a view that draws more of a profile than an answer has is given: the profile with costs, and tables about it."""
    from opcost.views.view import option_names

    whole = askable(found)
    makers: dict[str, Callable[[], Any]] = {
        "profile": lambda: with_default_costs(found),
        "sheets": lambda: (whole.breakdown(), whole.communication(), whole.allocations()),
    }
    return {name: make() for name, make in makers.items() if name in option_names(view, "profile")}


def with_default_costs(found: measured.Profile) -> measured.Profile:
    """The profile with a cost on every row that can have one."""
    from opcost.analysis.join import with_costs

    return with_costs(found, default_rules())


def askable(found: measured.Profile) -> Profile:
    """What a recorder or a reader found, for users; a prediction stays what it is, and is one again when it is read."""
    if isinstance(found, Profile):
        return found
    if PREDICTION in found.extra:
        return _restored(found)
    return Profile(**{field.name: getattr(found, field.name) for field in fields(found)})


def find_trace(path: str | PathLike[str]) -> Callable[[], measured.Profile] | None:
    """The function that reads the trace that a source is; None for any other source."""
    from opcost.traces.file import TraceFile
    from opcost.traces.registry import claimant

    if not isfile(path):  # noqa: PTH113 - it takes any name
        return None
    file = TraceFile(path)
    reader = claimant(file)
    return None if reader is None else partial(reader.read, file)
